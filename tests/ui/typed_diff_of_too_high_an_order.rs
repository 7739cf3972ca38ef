//~ diff: a dim `TDim<Num<4>>` has no differences of order `Num<5>` in types
//~ the dim is unsharded, and its size a number, at least the order
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 4]) {
    let _ = x.diff::<N![5], _>(D0);
    //~ fix: let _ = x.diff::<N![3], _>(D0);
}
