//~ error[E0425]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array, mesh: &Mesh) -> Result<()> {
    let y = device_put(x, mesh, p!["X"]);
    //~ fix: let y = x.put(mesh, p!["X"]);
    drop(y);
    Ok(())
}
