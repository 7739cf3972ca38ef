//~ `f64` cannot be on the left of an operator whose right side is an array of `f32`
//~ x * n
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X], rate: f64) {
    let _ = rate * x;
    //~ fix: let _ = x * rate;
}
