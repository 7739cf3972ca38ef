//~ this operation is not defined for elements of type `i32`
//~ expected floating-point numbers
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![i32; 8]) {
    let _ = a.sin();
}
