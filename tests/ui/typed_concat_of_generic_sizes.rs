//~ the sum of the sizes `A` and `B` is not known when compiling
//~ a generic function has the sum as a further parameter: `A: AddSize<B, Out = C>, B: Size, C: Size`
use atmesh::typed::{concat, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong<A: Size, B: Size>(a: &T![f32; A, 4], b: &T![f32; B, 4]) {
//~ fix: fn right<A: AddSize<B, Out = C>, B: Size, C: Size>(a: &T![f32; A, 4], b: &T![f32; B, 4]) {
    let _ = a.concat(b, D0);
}
