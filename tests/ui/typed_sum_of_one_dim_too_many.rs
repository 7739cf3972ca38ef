//~ has no dim number `D<3>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X, 4, 4]) {
    let _ = x.sum((D0, D1, D2, D3));
    //~ fix: let _ = x.sum((D0, D1, D2));
}
