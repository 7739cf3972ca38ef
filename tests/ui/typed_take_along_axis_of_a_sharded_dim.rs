//~ dim `TDim<Num<16>, Y>` of the array is sharded, so each device holds only some of its elements
//~ take_along_axis_to
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(logits: &T![f32; 8@X, 16@Y], labels: &T![i32; 8@X, ~]) {
    let _ = logits.take_along_axis(labels, D1);
    //~ fix: let _ = logits.take_along_axis_to(labels, D1, P![=, _]);
}
