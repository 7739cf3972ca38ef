//~ the function takes `atmesh::Array`, but it is called with `(atmesh::Array, atmesh::Array)`
use atmesh::prelude::*;
fn main() {
    let f = jit(|x: &Array| x + 1);
    let y = f.call((Array::from(1), Array::from(2)));
}
