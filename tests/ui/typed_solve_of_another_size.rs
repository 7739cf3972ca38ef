//~ solve: a right side of shape `(TDim<Num<5>>, TDim<Num<2>>)` does not fit matrices of shape `(TDim<Num<4>>, TDim<Num<4>>)`
//~ expected one row for each row of the matrices, unsharded, and the same dims before; or one vector for one matrix
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 4, 4], b: &T![f32; 5, 2]) {
    let _ = a.solve(b);
    //~ fix: let _ = a.solve(&b.slice::<N![0], N![4], _>(D0));
}
