//~ error[E0277]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x.sum((0, 1));
    //~ fix: let y = x.sum([0, 1]);
    drop(y);
    Ok(())
}
