//~ this function cannot run on device threads
//~ expected `|dev: &Device, x: ArrayViewD<f32>, ..| -> Result<..>`
//~ parameters are ndarray views or slices, with their types written out; the result is a `Result`
use atmesh::prelude::*;
fn main() {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let f = spmd(&mesh, p!["x"], p!["x"], |_dev: &Device, x: &Array| Ok(vec![1.0f32]));
}
