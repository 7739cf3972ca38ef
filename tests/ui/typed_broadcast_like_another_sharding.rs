//~ broadcast_like: an array of shape `(TDim<Num<8>, X>,)` cannot be broadcast to the shape `(TDim<Num<2>>, TDim<Num<8>>)`
//~ its dims are the last dims of that shape, or `~`, and sharded alike or unsharded
//~ reshard
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(m: &T![f32; 8@X], x: &T![f32; 2, 8]) {
    let _ = m.broadcast_like(x);
}
