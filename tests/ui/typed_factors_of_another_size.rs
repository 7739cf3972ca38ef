//~ the two factors multiply to the dim's size
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 12@X, 4]) {
    let _ = a.split_dim::<N![5], N![2], _>(D0);
}
