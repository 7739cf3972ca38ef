//~ have different sizes
//~ a dim of size 1 is repeated only if its type says so: `~`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 4], b: &T![f32; 8, 1]) {
    let _ = a.mul(b);
}
