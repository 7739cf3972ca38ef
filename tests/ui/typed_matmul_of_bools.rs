//~ this operation is not defined for elements of type `bool`
//~ convert the array first: `.convert::<f32>()`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![bool; 4, 3], b: &T![bool; 3, 2]) {
    let _ = a.matmul(b);
    //~ fix: let _ = a.convert::<f32>().matmul(&b.convert::<f32>());
}
