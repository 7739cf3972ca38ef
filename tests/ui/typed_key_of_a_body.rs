//~ `atmesh::Key` is not a key from which an array with the sets `(Invariant, Invariant)` can be drawn
//~ pass the key to `shard_map` as an argument: `Pod.shard_map((x, key), .., |(x, key)| ..)`
//~ `BlockKey<(Invariant, Invariant)>` is not a key from which an array with the sets `(X, Invariant)` can be drawn
//~ so that devices along `X` draw different numbers: `key.fold_in(device.axis_index(X))`
//~ random bits are unsigned integers, not `i32`

use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2, Y: 4 } }

fn captured(x: T![f32; 8@X], key: Key) {
    let _ = Pod.shard_map((x, ThisDevice), P![X], |(x, device)| {
        x + <T![f32; 4; in Pod]>::normal(&device, &key)
    });
}
fn equal(x: T![f32; 8@X], key: Key) {
    let _ = Pod.shard_map((x, key, ThisDevice), P![X], |(x, key, device)| {
        x + <T![f32; 4; V: X]>::normal(&device, &key)
    });
}
fn integers(pod: MeshOf<Pod>, key: Key) {
    let _ = <T![i32; 4]>::bits(&pod, &key);
}

fn main() {}
