//~ concat: dims
//~ joined dims have one sharding
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4], b: &T![f32; 8, 4]) {
    let _ = a.concat(b, D0);
}
