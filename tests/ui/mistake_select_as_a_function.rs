//~ error[E0425]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = select(x.gt(0.0), x, 0.0);
    //~ fix: let y = x.gt(0.0).select(x, 0.0);
    drop(y);
    Ok(())
}
