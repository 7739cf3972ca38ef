//~ the end of a slice is at most the dim's size
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.slice::<N![0], N![9], _>(D1);
}
