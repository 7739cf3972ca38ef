//~ where a closure's parameter has no type yet, write it out: `|x: &Array|`
use atmesh::prelude::*;
fn main() -> Result<()> {
    let x = Array::from([1.0f32]);
    let y = jit(|x, w| x + w).call((&x, &x))?;
    println!("{y}");
    Ok(())
}
