//~ a collective over mesh axis `X` is for the body of a `shard_map`, and this array is outside of any
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.all_gather(X, D0);
}
