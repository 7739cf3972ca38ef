//~ a dim of size `Num<9>` cannot be sharded evenly over mesh axis `Data`
//~ the axis size must divide the dim: shard another dim, or `pad` this one first
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 9, 16]) {
    let _ = x.reshard(P![Data, _]);
    //~ fix: let _ = x.pad::<N![0], N![1], _>(D0, 0.0).reshard(P![Data, _]);
}
