//~ windows of `Num<7>` elements do not fit into a dim of size `Num<4>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X, 4]) {
    let _ = x.max_pool::<S![7]>();
    //~ fix: let _ = x.max_pool::<S![4]>();
}
