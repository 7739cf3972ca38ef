//~ the window's own dims are unsharded: `reshard` the filter
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 3, 10, 10], w: &T![f32; 8, 3, 3@Y, 3]) {
    let _ = a.conv(w);
}
