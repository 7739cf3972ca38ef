//~ the carry of a loop keeps its type, but the body takes `Typed<f32, (TDim<Num<8>>,)>` and returns `Typed<f32, ()>`
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(xs: &T![f32; 4, 8], x: T![f32; 8]) {
    let _ = typed::scan(x, xs, |x, y| ((x + y).sum(..), ()));
}
