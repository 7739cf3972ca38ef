//~ matmul: shapes
//~ cannot be multiplied
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32;], b: &T![f32; 4]) {
    let _ = a.matmul(b);
}
