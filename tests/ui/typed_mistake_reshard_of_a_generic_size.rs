//~ a dim of size `B` cannot be sharded evenly over mesh axis `Data`
//~ in a generic function, the bound of a size `B` is `B: SplitsOver<Data>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong<B: Size>(x: &T![f32; B, 16]) {
//~ fix: fn right<B: Size + SplitsOver<Data>>(x: &T![f32; B, 16]) {
    let _ = x.reshard(P![Data, _]);
}
