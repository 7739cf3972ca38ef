//~ conv: a filter of shape `(TDim<Num<8>>, TDim<Num<3>>, TDim<Num<3>>)` does not fit an array of shape
//~ the array is [batch, features, ..], the filter [output features, features, ..], with one to three spatial dims
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 3, 10, 10], w: &T![f32; 8, 3, 3]) {
    let _ = a.conv(w);
}
