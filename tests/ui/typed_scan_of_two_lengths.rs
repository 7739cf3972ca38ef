//~ scan: the loop has `Num<3>` steps, but the leading dim of an array is `TDim<Num<4>>`
//~ capture values that are the same at every step
use atmesh::prelude::Tree;
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
#[derive(Clone, Tree)]
struct Layer<W, B> {
    w: W,
    b: B,
}
fn main() {}
fn wrong(layers: Layer<T![f32; 3, 8, 8], T![f32; 4, 8]>, x: T![f32; 8]) {
    let _ = typed::scan(x, layers, |x, l| (x.matmul(&l.w) + l.b, ()));
}
