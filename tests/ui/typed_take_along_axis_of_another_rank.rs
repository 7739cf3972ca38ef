//~ take_along_axis: indices of shape `(TDim<Num<8>, X>,)` do not fit
//~ add dims of size 1: `.expand_dims(D1)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(logits: &T![f32; 8@X, 10], labels: &T![i32; 8@X]) {
    let _ = logits.take_along_axis(labels, D1);
    //~ fix: let _ = logits.take_along_axis(&labels.expand_dims(D1), D1);
}
