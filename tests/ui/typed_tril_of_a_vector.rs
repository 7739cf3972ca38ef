//~ has no diagonal
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X]) {
    let _ = x.tril(0);
}
