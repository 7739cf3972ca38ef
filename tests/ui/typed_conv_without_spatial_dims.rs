//~ conv: a filter of shape `(TDim<Num<8>, X>, TDim<Num<16>>)` does not fit an array of shape `(TDim<Num<8>, X>, TDim<Num<16>>)`
//~ the array is [batch, features, ..], the filter [output features, features, ..], with one to three spatial dims
//~ an array without spatial dims is multiplied: `x.matmul(&w.t())`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X, 16]) {
    let _ = x.conv(x);
    //~ fix: let _ = x.matmul(&x.reshard(P![_, _]).t());
}
