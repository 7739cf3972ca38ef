//~ error[E0308]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y: f32 = x.sum(..);
    //~ fix: let y: f32 = x.sum(..).item()?;
    drop(y);
    Ok(())
}
