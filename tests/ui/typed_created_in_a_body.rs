//~ an array that is created in a `shard_map` body is equal on every device, not of the sets `(X, Invariant)`
//~ an array that varies over an axis is made of it: `.pvary(X)`
//~ an array that is created in a `shard_map` body is unsharded, not sharded over `X`
//~ state the block's size: for `8@X` over two devices write `4`

use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2, Y: 4 } }

fn varying(x: T![f32; 8@X]) {
    let _ = Pod.shard_map((x, ThisDevice), P![X], |(x, device)| x + <T![f32; 4; V: X]>::zeros(&device));
}
fn sharded(x: T![f32; 8@X]) {
    let _ = Pod.shard_map((x, ThisDevice), P![X], |(x, device)| {
        let _ = <T![f32; 8@X; in Pod]>::ones(&device);
        x
    });
}

fn main() {}
