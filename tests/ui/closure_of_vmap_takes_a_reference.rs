//~ type mismatch in closure arguments
//~ consider adjusting the signature so it does not borrow its argument
//~ |x: Array| x.sin()
use atmesh::prelude::*;
fn main() {
    let x = Array::from([1.0f32]);
    let y = vmap(&x, |x: &Array| x.sin());
}
