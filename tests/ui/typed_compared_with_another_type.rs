//~ expected a typed array of `f32` or a number of type `f32`, found `bool`
//~ cannot be combined with this
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8, 4]) {
    let _ = x.gt(true);
}
