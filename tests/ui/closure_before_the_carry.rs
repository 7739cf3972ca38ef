//~ cannot be passed as an array or a tree of arrays
//~ arguments come first and the closure last: `grad(&x, |x| ..)`, `scan(init, &xs, |carry, x| ..)`
use atmesh::prelude::*;
fn main() {
    let x = Array::from([1.0f32]);
    let (c, y) = scan(|c: Array, x: Array| (&c + &x, c), Array::from(0.0f32), &x);
}
