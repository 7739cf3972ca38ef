//~ select: the condition is an array of `bool`, not of `f32`
//~ compare first: `x.gt(0.0).select(&a, &b)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.select(x, 0.0);
    //~ fix: let _ = x.gt(0.0).select(x, 0.0);
}
