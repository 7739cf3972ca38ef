//~ error[E0308]
//~ expected `DType`, found `&str`
use atmesh::prelude::*;
fn main() {}
fn wrong(x: &Array) -> Result<()> {
    let y = x.astype("float32");
    //~ fix: let y = x.astype(DType::F32);
    drop(y);
    Ok(())
}
