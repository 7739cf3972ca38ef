//~ dims `TDim<B>` and `TDim<S>` cannot be merged into one
//~ a generic function has a bound on the sizes: `A: MulSize<B, Out = C>, B: Size, C: Size`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong<B: Size, S: Size>(a: &T![f32; B, S]) {
//~ fix: fn right<B: MulSize<S, Out = C>, S: Size, C: Size>(a: &T![f32; B, S]) {
    let _ = a.merge_dims(D0);
}
