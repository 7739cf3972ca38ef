//~ a dim of size `B` is not known to be cut evenly over mesh axis `Data` and put together again
//~ in a generic function: `B: Tiles<Data>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn halves<B: Tiles<Data>>(x: T![f32; B@Data, 16]) -> T![f32; B@Data, 16] {
    Pod.shard_map((x,), P![Data, _], |(x,)| x)
}
fn main() {}
fn wrong<B: Size>(x: T![f32; B@Data, 16]) {
//~ fix: fn right<B: Size + Tiles<Data>>(x: T![f32; B@Data, 16]) {
    let _ = halves(x);
}
