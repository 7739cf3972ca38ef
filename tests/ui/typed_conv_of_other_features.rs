//~ dims `TDim<Num<3>>` (left) and `TDim<Num<4>>` (right) have different sizes
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 3, 10, 10], w: &T![f32; 8, 4, 3, 3]) {
    let _ = a.conv(w);
}
