//~ a field of type `Typed<f32, (TDim<Num<4>>, TDim<Num<8>>)>` keeps its type, but the result would be `Typed<f32, (TDim<Num<8>>,)>`
use atmesh::prelude::Tree;
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
#[derive(Clone, Tree)]
struct Layers {
    b: T![f32; 4, 8],
}
fn main() {}
fn wrong(layers: &Layers, x: T![f32; 8]) {
    let _ = typed::scan(x, layers, |x, l| (x, ()));
}
