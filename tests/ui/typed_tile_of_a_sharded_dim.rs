//~ tile: dim `TDim<Num<8>, X>` cannot be repeated `Num<3>` times in types
//~ repeated dims are unsharded, and their sizes numbers: `reshard` first
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.tile::<N![3], _>(D0);
}
