//~ dot_to: shapes
//~ use `matmul_to` for stacks of matrices, or `einsum!`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 2, 8, 4@X], b: &T![f32; 4@X, 3]) {
    let _ = a.dot_to(b, P![_, _, _]);
}
