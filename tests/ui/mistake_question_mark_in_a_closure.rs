//~ error[E0277]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = jit(|x: &Array| { let n = x.shape()?[0]; x.reshape([n, 1]) }).call(x)?;
    //~ fix: let y = jit(|x: &Array| { let n = x.shape()?[0]; Ok(x.reshape([n, 1])) }).call(x)?;
    drop(y);
    Ok(())
}
