//~ this function cannot be traced
//~ each parameter is an array, a tree of arrays or a reference to one, with its type written out: `|x: &Array, w: Array|`
//~ anything that is not an array can be captured, or passed as `Static<_>`
use atmesh::prelude::*;
fn main() {
    let f = jit(|x: &Array, n: f32| x.clone());
}
