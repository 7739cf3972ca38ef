//~ a dim of size `B` cannot be sharded evenly over mesh axis `X`
//~ SplitsOver<X>
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong<B: Size>(a: &T![f32; B, 4]) {
    let _ = a.reshard(P![X, =]);
}
