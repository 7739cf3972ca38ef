//~ kron: shapes `(TDim<Num<4>>, TDim<Num<3>>)` and `(TDim<Num<6>, X>, TDim<Num<2>>)` have no Kronecker product in types
//~ expected two vectors or two matrices; the right one is unsharded, and all sizes are numbers
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 4, 3], b: &T![f32; 6@X, 2]) {
    let _ = a.kron(b);
    //~ fix: let _ = a.kron(&b.reshard(P![_, _]));
}
