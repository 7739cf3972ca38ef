//~ diff: a dim `TDim<Num<8>, X>` has no differences of order `Num<1>` in types
//~ along a sharded dim keep the size, with a value for the missing neighbour: `&x - x.shift(1, D0, 0.0)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.diff::<N![1], _>(D0);
}
