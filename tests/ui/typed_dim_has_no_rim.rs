//~ dim `TDim<Num<4>>` has no rim
//~ exchange the rim first, along the axis that shards the dim: `x.halo::<N![1], _, _>(D0, X)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) -> T![f32; 8@X, 4] {
    Pod.shard_map((a,), P![X, _], |(a,)| a.after::<N![1], _>(D0))
}
