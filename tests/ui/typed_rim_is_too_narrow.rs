//~ the neighbours at distance `Num<2>` are not in a rim of `Num<1>` elements
//~ a rim of `Num<1>` elements holds the neighbours up to this distance
//~ exchange a wider rim: `x.halo::<N![2], _, _>(D0, X)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) -> T![f32; 8@X, 4] {
    Pod.shard_map((a,), P![X, _], |(a,)| a.halo::<N![1], _, _>(D0, X).after::<N![2], _>(D0))
}
