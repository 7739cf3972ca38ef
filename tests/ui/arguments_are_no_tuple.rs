//~ the function takes `(atmesh::Array, atmesh::Array)`, but it is called with `&atmesh::Array`
//~ several arguments are one tuple: `f.call((&x, y))`
use atmesh::prelude::*;
fn main() {
    let f = jit(|x: &Array, y: &Array| x + y);
    let x = Array::from(1);
    let y = f.call(&x, &x);
}
