//~ a dim of size `Num<3>` cannot be sharded evenly over mesh axis `X`
//~ every device along a mesh axis holds an equal part of the dim
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.slice::<N![0], N![3], _>(D0);
    //~ fix: let _ = a.slice::<N![0], N![4], _>(D0);
}
