//~ type mismatch in closure arguments
//~ consider adjusting the signature so it does not borrow its argument
//~ |x: Array| x.square().sum(..)
use atmesh::prelude::*;
fn main() {
    let x = Array::from([1.0f32]);
    let g = grad(&x, |x: &Array| x.square().sum(..));
}
