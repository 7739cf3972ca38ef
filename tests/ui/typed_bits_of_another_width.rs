//~ the bits of `i32` cannot be read as `i64`
//~ expected two element types of the same width
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![i32; 8@X, 4]) {
    let _ = a.bitcast::<i64>();
}
