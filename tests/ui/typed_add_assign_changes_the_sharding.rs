//~ cannot change the type of its left side from `(TDim<Num<8>>,)` to `(TDim<Num<8>, X>,)`
//~ let x = &x + y
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &mut T![f32; 8], y: &T![f32; 8@X]) {
    *x += y;
    //~ fix: *x += y.reshard(P![_]);
}
