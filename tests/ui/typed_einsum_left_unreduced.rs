//~ einsum: dims `TDim<Num<16>, X>` (left) and `TDim<Num<16>>` (right) are not sharded the same way, so their product cannot be left unreduced
//~ `reshard` one of them, or leave out `; U: X`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 16@X], b: &T![f32; 16, 4]) {
    let _ = einsum!("mk,kn->mn", a, b, P![_, _; U: X]);
}
