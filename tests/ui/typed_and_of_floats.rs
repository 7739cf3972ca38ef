//~ `&`, `|` and `^` are not defined for arrays of `f32`
//~ a comparison gives an array of `bool`, `x.gt(0.0)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 4, 3], b: &T![f32; 4, 3]) {
    let _ = a & b;
    //~ fix: let _ = a.gt(0.0) & b.gt(0.0);
}
