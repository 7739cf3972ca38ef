//~ change the closure to accept a tuple instead of individual arguments
//~ |(w, b)| (w * b).sum(..)
use atmesh::prelude::*;
fn main() {
    let x = Array::from([1.0f32]);
    let g = grad((&x, &x), |w, b| (w * b).sum(..));
}
