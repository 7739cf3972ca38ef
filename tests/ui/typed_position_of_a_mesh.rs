//~ `axis_index` is the position of the device that runs a `shard_map` body; `Pod` is a mesh
//~ `ThisDevice` among the arguments becomes the device
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: T![i32; 8@X]) {
    let _ = Pod.shard_map((x, ThisDevice), P![X], |(x, device)| {
        let _ = device;
        x + Pod.axis_index(X)
        //~ fix: x + device.axis_index(X)
    });
}
