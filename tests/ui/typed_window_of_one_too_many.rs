//~ windows of `Num<5>` elements do not fit into a dim of size `Num<4>`
//~ the size of the dim is a number, at least that of the window
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 4]) {
    let _ = x.window_sum::<S![5]>();
    //~ fix: let _ = x.window_sum_with::<S![5], _, _>(Strides::<S![1]>::same());
}
