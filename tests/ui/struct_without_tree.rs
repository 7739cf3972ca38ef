//~ this function cannot be traced
//~ a struct of arrays is a tree with `#[derive(Tree)]`
use atmesh::prelude::*;
struct Layer {
    w: Array,
}
fn main() -> Result<()> {
    let f = jit(|l: &Layer| &l.w + 1.0);
    let y = f.call(&Layer { w: Array::ones([8]) })?;
    println!("{y}");
    Ok(())
}
