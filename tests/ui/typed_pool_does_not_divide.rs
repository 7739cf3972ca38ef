//~ a dim of size `Num<6>` cannot be sharded evenly over mesh axis `Y`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 12@Y]) {
    let _ = a.max_pool::<S![2]>();
}
