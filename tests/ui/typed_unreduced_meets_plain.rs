//~ an array from inside of a `shard_map` meets one from outside, or one with other sets
//~ `.reshard(P![..])` makes it
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8; U: X], b: &T![f32; 8]) {
    let _ = a.add(b);
}
