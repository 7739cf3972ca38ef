//~ a traced function returns arrays, but this one returns `f64`
//~ expected a tree of arrays, or a `Result` of one, as the result
use atmesh::prelude::*;
fn main() {
    let f = jit(|x: &Array| 2.0f64);
}
