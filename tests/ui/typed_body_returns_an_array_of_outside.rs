//~ the body of a `shard_map` returns an array that is no block of its mesh: its sets are `()`
//~ return what the body computes from its blocks
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data], y: &T![f32; 8]) {
    let _ = Pod.shard_map(x, P![_], |_| y.clone());
    //~ fix: let _ = Pod.shard_map((x, y), P![_], |(_, y)| y);
}
