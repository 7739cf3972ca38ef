//~ expected a typed array of `i32` or a number of type `i32`, found `{float}`
//~ x.convert::<f32>()
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![i32; 8@X]) {
    let _ = x * 0.5;
    //~ fix: let _ = x.convert::<f32>() * 0.5;
}
