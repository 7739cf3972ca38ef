//~ a traced function returns arrays, but this one returns `&atmesh::Array`
//~ expected a tree of arrays, or a `Result` of one, as the result
use atmesh::prelude::*;
fn main() {
    let f = jit(|x: &Array| x);
}
