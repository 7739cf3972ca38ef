//~ error[E0282]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = while_loop((x, 0), |(_, k)| k.lt(3), |(y, k)| (y / 2.0, k + 1));
    //~ fix: let y = while_loop((x, 0), |(_, k): &(Array, Array)| k.lt(3), |(y, k)| (y / 2.0, k + 1));
    drop(y);
    Ok(())
}
