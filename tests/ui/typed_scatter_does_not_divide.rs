//~ a dim of size `Num<6>` cannot be sharded evenly over mesh axis `Y`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 4, 6@X]) {
    let _ = Pod.shard_map((a.reshard(P![Y, _]),), P![_, _], |(a,)| a.psum_scatter(Y, D1));
}
