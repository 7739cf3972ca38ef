//~ consider giving this closure parameter an explicit type
use atmesh::prelude::*;
fn main() -> Result<()> {
    let (mesh, x) = (Mesh::new([("X", 2)])?, Array::from([1.0f32, 2.0]));
    let y = shard_map(&mesh, p!["X"], p![], |x| x.sum(..).psum("X")).call(&x)?;
    println!("{y}");
    Ok(())
}
