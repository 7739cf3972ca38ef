//~ make one number of an array: `.sum(..)` or `.mean(..)`
//~ `grad` needs one number to differentiate
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X]) {
    let _ = atmesh::grad(a, |a| a.sin());
}
