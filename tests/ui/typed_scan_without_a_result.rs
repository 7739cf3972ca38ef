//~ the body of a `scan` returns a tuple of the next carry and a result, but this one returns `Typed<f32, (TDim<Num<8>>,)>`
//~ a scan without results returns `(carry, ())`
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(xs: &T![f32; 4, 8], x: T![f32; 8]) {
    let _ = typed::scan(x, xs, |x, y| x + y);
}
