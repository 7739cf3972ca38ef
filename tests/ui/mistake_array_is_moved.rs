//~ error[E0382]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let x = x.clone();
    let y = x + x;
    //~ fix: let y = &x + &x;
    drop(y);
    Ok(())
}
