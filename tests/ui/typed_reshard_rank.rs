//~ spec `(X,)` does not fit the dims of
//~ a spec has one entry for every dim
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 4]) {
    let _ = a.reshard(P![X]);
}
