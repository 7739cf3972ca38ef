//~ type mismatch in function arguments
//~ consider wrapping the function in a closure
//~ loss(&x)
use atmesh::prelude::*;
fn loss(x: &Array) -> Array {
    x.square().sum(..)
}
fn main() {
    let x = Array::from([1.0f32]);
    let (y, g) = value_and_grad(&x, loss);
}
