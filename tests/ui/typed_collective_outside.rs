//~ inside another mesh's `shard_map`, or outside any
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.all_gather(X, D0);
}
