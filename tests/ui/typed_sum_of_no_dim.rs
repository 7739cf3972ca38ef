//~ has no dim number `D<2>`
//~ dims count from 0
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.sum(D2);
}
