//~ halo: a dim `TDim<Num<8>, X>` cannot get a rim of `Num<1>` elements
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.halo::<N![1], _, _>(D0, X);
}
