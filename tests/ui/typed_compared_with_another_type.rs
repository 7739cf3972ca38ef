//~ elements of type `f32` cannot be compared with `bool`
//~ a number of that type
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8, 4]) {
    let _ = x.gt(true);
}
