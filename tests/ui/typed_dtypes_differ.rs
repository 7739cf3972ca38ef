//~ the element types differ: `f32` on the left and `i32` on the right
//~ .convert::<f32>()
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8], b: &T![i32; 8]) {
    let _ = a.add(b);
}
