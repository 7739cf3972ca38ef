//~ cannot be left unreduced so
//~ the unreduced axes are exactly those by which both contracted dims are sharded, alike
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 16@X], b: &T![f32; 16, 4]) {
    let _ = a.matmul_to(b, P![_, _; U: X]);
}
