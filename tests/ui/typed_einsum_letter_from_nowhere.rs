//~ `z` is in the result but in no operand
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 16], b: &T![f32; 16, 32]) {
    let _ = einsum!("mk,kn->mz", a, b);
}
