//~ dot takes arrays of rank 1 and 2
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 2, 8, 16], b: &T![f32; 16, 4]) {
    let _ = a.dot(b);
}
