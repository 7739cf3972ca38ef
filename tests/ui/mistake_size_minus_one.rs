//~ error[E0277]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x.reshape([-1, 4]);
    //~ fix: let y = x.reshape([x.size()? / 4, 4]);
    drop(y);
    Ok(())
}
