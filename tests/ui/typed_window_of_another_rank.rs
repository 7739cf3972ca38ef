//~ windows of shape `(TDim<Num<3>>,)` with strides `(TDim<Num<1>>,)` do not move over `(TDim<Num<8>, X>, TDim<Num<12>>)`
//~ give one window size for each dim, `1` where a window is one element
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 12]) {
    let _ = a.window_max::<S![3]>();
}
