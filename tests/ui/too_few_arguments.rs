//~ type mismatch resolving
//~ expected `(Array, Array)`, found `Array`
use atmesh::prelude::*;
fn main() {
    let f = jit(|x: &Array, y: &Array| x + y);
    let y = f.call(&Array::from(1));
}
