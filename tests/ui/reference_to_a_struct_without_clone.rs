//~ the function takes `Layer`, but it is called with `&Layer`
//~ a struct of arrays derives `Tree`, and `Clone` if it is passed by reference
use atmesh::prelude::*;
#[derive(Tree)]
struct Layer {
    w: Array,
}
fn main() {
    let f = jit(|l: &Layer| l.w.sin());
    let y = f.call(&Layer { w: Array::from(1.0f32) });
}
