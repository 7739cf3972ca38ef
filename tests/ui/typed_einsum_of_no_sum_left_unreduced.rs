//~ einsum: the spec leaves the axes of
//~ after `U:` come exactly the axes that shard contracted dims of both operands
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 16@(X, Y)], b: &T![f32; 16@(X, Y), 4]) {
    let _ = einsum!("mk,kn->mn", a, b, P![_, _; U: X]);
}
