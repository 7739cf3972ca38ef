//~ a collective over `Y` needs a value that varies over each of these mesh axes; this one varies over `(X, Invariant)`
//~ `.pvary(X)` first if each copy is to count as a separate value
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = Pod.shard_map((a.clone(),), P![X, _], |(a,)| a.psum(Y));
}
