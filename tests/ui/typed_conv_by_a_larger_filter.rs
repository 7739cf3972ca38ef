//~ windows of `Num<5>` elements do not fit into a dim of size `Num<4>`
//~ windows that extend beyond the array fit any dim: `Strides::<S![..]>::same()`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X, 3, 4], w: &T![f32; 2, 3, 5]) {
    let _ = x.conv(w);
    //~ fix: let _ = x.conv_with(w, Strides::<S![1]>::same());
}
