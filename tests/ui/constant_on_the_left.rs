//~ `f32` cannot be on the left of an operator whose right side is an array
//~ `usize` cannot be on the left of an operator whose right side is an array
//~ expected `f64` or `i32`
//~ declare a float as `f64`, and an integer as `i32`: it takes the element type of the array
//~ or put the number on the right, where any type may be: `&x * number`
use atmesh::prelude::*;
fn main() {
    const RATE: f32 = 0.1;
    let x = Array::from([1f32]);
    let y = RATE * &x;
    let z = 3usize - y;
    // literals are still inferred
    let _ = (2.0 * (2 + &z).sin() / 1.5).exp();
}
