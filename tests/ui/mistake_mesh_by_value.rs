//~ error[E0308]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array, mesh: &Mesh) -> Result<()> {
    let mesh = mesh.clone();
    let y = x.put(mesh, p!["X"]);
    //~ fix: let y = x.put(&mesh, p!["X"]);
    drop(y);
    Ok(())
}
