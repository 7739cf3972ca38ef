//~ cannot differentiate with respect to `Typed<i32, (TDim<Num<4>>,)>`: its elements are not floating-point numbers
//~ convert it first: `.convert::<f32>()`
//~ or capture it in the closure: captured values are constants
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(counts: &T![i32; 4]) {
    let _ = typed::grad(counts, |counts| counts.convert::<f32>().sum(..));
}
