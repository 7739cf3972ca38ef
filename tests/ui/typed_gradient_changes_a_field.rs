//~ keeps its type, but the result would be `Typed<f32, (TDim<Num<16>>,), GlobalSets<
//~ a field of the struct would change its type
//~ let the field's type be a parameter of the struct: `struct Layer<W> { w: W }`
use atmesh::prelude::Tree;
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
#[derive(Clone, Tree)]
struct Params {
    w: T![f32; 16; R: X],
}
fn main() {}
fn wrong(p: &Params, x: &T![f32; 8@X, 16]) {
    let _ = typed::grad(p, |p| x.matmul(&p.w).sum(..));
}
