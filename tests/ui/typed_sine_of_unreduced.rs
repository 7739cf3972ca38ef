//~ a sum over a mesh axis that has not been made
//~ make the sum first
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8; U: X]) {
    let _ = a.sin();
}
