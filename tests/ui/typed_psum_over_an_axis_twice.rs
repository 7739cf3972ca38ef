//~ a collective over `(X, X)` needs a value that varies over each of these mesh axes; this one varies over `(X, Y)`
//~ name each axis once
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4@Y]) {
    let _ = Pod.shard_map((a.clone(),), P![_, _], |(a,)| a.psum((X, X)));
}
