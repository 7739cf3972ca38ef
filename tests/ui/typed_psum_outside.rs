//~ a collective over mesh axis `Data` is for the body of a `shard_map`, and this array is outside of any
//~ `x.sum(D0)` sums over a dim, sharded or not
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.psum(Data);
    //~ fix: let _ = x.sum(D0);
}
