//~ take_along_axis: dim `TDim<Num<8>, X>` of the array and dim `TDim<Num<4>, X>` of the indices do not go together
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(logits: &T![f32; 8@X, 16], labels: &T![i32; 4@X, ~]) {
    let _ = logits.take_along_axis(labels, D1);
}
