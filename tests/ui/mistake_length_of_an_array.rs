//~ error[E0599]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x.len();
    //~ fix: let y = x.shape()?[0];
    drop(y);
    Ok(())
}
