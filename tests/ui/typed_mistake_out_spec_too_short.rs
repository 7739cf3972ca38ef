//~ out spec `(Data,)` does not fit the block's shape `(TDim<Num<4>>, TDim<Num<16>>)`
//~ an out spec has one entry for every dim of the output: an axis, `(X, Y)` or `_`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@Data, 16]) {
    let _ = Pod.shard_map((x,), P![Data], |(x,)| x.relu());
    //~ fix: let _ = Pod.shard_map((x,), P![Data, _], |(x,)| x.relu());
}
