//~ error[E0061]
//~ x.sum(/* dims */)
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x.sum();
    //~ fix: let y = x.sum(..);
    drop(y);
    Ok(())
}
