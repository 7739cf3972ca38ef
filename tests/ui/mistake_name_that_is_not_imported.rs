//~ error[E0433]
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x.at(ix![0]).mode(Mode::Clip).get();
    //~ fix: let y = x.at(ix![0]).mode(atmesh::IndexMode::Clip).get();
    drop(y);
    Ok(())
}
