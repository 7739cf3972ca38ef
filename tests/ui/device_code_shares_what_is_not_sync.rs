//~ `Cell<i32>` cannot be shared between threads safely
//~ required by a bound in `atmesh::spmd`
use atmesh::nd::ArrayView1;
use atmesh::prelude::*;
use std::cell::Cell;
fn main() {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let calls = Cell::new(0);
    let f = spmd(&mesh, p!["x"], p!["x"], |_dev: &Device, x: ArrayView1<f32>| {
        calls.set(calls.get() + 1);
        Ok(x.to_owned())
    });
}
