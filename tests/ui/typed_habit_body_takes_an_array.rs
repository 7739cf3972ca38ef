//~ `relu` is for one array: the body of this `shard_map` takes the tuple `(Typed<f32, (TDim<Num<4>>, TDim<Num<16>>), (Data, Invariant)>,)`
//~ take the array out of the tuple: `|(x,)| x.relu(..)`, or `x.0.relu(..)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@Data, 16]) {
    let _ = Pod.shard_map((x,), P![Data, _], |x| x.relu());
    //~ fix: let _ = Pod.shard_map((x,), P![Data, _], |(x,)| x.relu());
}
