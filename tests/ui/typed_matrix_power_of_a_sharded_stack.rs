//~ matrix_power: `(TDim<Num<8>, X>, TDim<Num<4>>, TDim<Num<4>>)` is not the shape of unsharded square matrices
//~ `reshard` it first, with `_` for every dim
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4, 4]) {
    let _ = a.matrix_power(3);
    //~ fix: let _ = a.reshard(P![_, _, _]).matrix_power(3);
}
