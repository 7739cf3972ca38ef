//~ error[E0308]
use atmesh::prelude::*;
fn main() {}
fn wrong() -> Result<()> {
    let y = Array::from([[1.0, 2.0], [3.0]]);
    //~ fix: let y = Array::from([[1.0, 2.0], [3.0, 0.0]]);
    drop(y);
    Ok(())
}
