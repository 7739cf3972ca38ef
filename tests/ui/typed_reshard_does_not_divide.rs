//~ a dim of size `K<50, 257>` cannot be sharded evenly over mesh axis `Y`
//~ the axis size must divide the dim
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 6, 50257]) {
    let _ = a.reshard(P![X, Y]);
}
