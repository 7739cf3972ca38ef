//~ axes of two meshes never go together
//~ are sharded over different mesh axes
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
mod other { atmesh::typed::mesh! { pub struct Ring { X: 2 } } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4], b: &T![f32; 8@other::X, 4]) {
    let _ = a.add(b);
}
