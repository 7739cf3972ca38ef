//~ device code returns ndarray arrays or numbers, but this returns
//~ a view borrows the device's block: return `x.to_owned()`
use atmesh::nd::ArrayView1;
use atmesh::prelude::*;
fn main() {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let f = spmd(&mesh, p!["x"], p!["x"], |_dev: &Device, x: ArrayView1<f32>| Ok(x));
}
