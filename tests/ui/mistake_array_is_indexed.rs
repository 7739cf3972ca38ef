//~ error[E0608]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x[0];
    //~ fix: let y = x.slice(ix![0]);
    drop(y);
    Ok(())
}
