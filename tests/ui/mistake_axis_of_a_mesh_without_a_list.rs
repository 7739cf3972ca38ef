//~ error[E0277]
use atmesh::prelude::*;
fn main() {}
fn wrong() -> Result<()> {
    let y = Mesh::new(("X", 4))?;
    //~ fix: let y = Mesh::new([("X", 4)])?;
    drop(y);
    Ok(())
}
