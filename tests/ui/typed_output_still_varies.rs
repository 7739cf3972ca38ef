//~ this output still varies over mesh axis `X`, which its out spec does not mention
//~ .psum(X)
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = Pod.shard_map((a.clone(),), P![_], |(a,)| a.sum(D0));
}
