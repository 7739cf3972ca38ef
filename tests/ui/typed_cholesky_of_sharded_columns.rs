//~ linear algebra: `(TDim<Num<8>, X>, TDim<Num<4>>, TDim<Num<4>, Y>)` is not the shape of square matrices
//~ `reshard` it first, with `_` for the last two dims: `.reshard(P![=, _, _])`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4, 4@Y]) {
    let _ = a.cholesky();
}
