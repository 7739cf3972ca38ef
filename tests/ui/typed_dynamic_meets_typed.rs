//~ expected a typed array or a number, found
//~ x.typed::<T![f32; 8@X, 16]>()?
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8], b: &atmesh::Array) {
    let _ = a.add(b);
}
