//~ this operation is not defined for elements of type `i32`
//~ convert the array first: `.convert::<f32>()`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![i32; 4, 4]) {
    let _ = a.eigh();
    //~ fix: let _ = a.convert::<f32>().eigh();
}
