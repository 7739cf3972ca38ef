//~ einsum: the subscripts have another number of letters than
//~ write one letter for each dim of the operand
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 16], b: &T![f32; 16, 32]) {
    let _ = einsum!("bmk,kn->bmn", a, b);
}
