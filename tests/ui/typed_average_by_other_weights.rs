//~ the shapes `(TDim<Num<8>, X>, TDim<Num<4>>)` and `(TDim<Num<4>>,)` must be the same here, sharding and all
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4], w: &T![f32; 4]) {
    let _ = a.average(w, D1);
}
