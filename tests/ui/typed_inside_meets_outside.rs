//~ the operands vary, or are unreduced or reduced, over other mesh axes
//~ a block does not meet an array of outside: pass the array to `shard_map` as an argument
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4], b: &T![f32; 4]) {
    let _ = Pod.shard_map((a.clone(),), P![X, _], |(a,)| a.add(b));
}
