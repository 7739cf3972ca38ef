//~ dim numbers come in rising order, each once
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4, 2]) {
    let _ = a.sum((D1, D0));
}
