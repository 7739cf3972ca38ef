//~ error[E0425]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x.sum(axis = 0);
    //~ fix: let y = x.sum(0);
    drop(y);
    Ok(())
}
