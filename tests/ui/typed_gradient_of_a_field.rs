//~ cannot differentiate with respect to `Typed<i32, (TDim<Num<4>>,)>`
//~ required for `Examples` to implement `Retype<
use atmesh::prelude::Tree;
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
#[derive(Clone, Tree)]
struct Examples {
    x: T![f32; 4, 8],
    labels: T![i32; 4],
}
fn main() {}
fn wrong(examples: &Examples) {
    let _ = typed::grad(examples, |e| e.x.sum(..));
}
