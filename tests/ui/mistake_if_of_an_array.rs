//~ error[E0369]
//~ binary operation `>` cannot be applied to type `atmesh::Array`
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = if x.sum(..) > 0.0 { x.exp() } else { x.clone() };
    //~ fix: let y = cond(x.sum(..).gt(0.0), || x.exp(), || x.clone());
    drop(y);
    Ok(())
}
