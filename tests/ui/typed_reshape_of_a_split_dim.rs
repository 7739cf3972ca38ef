//~ is sharded, and must be unsharded here
//~ reshaping keeps no sharding by itself: how the new dims are sharded is open
//~ `.split_dim(..)` and `.merge_dims(..)` keep the sharding of the first factor
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.reshape::<S![32]>();
}
