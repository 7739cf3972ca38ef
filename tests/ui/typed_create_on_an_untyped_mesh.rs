//~ no typed array can be created on `atmesh::Mesh`
//~ a `Mesh` becomes a typed one by `mesh.typed::<Pod>()?`

use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2, Y: 4 } }

fn main() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x: T![f32; 8@X, 3] = Typed::zeros(&mesh);
    Ok(())
}
