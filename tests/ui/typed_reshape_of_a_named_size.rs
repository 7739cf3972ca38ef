//~ reshape: arrays of shape `(TDim<Batch>, TDim<Num<6>>)` and `(TDim<Batch>, TDim<Num<7>>)` have different numbers of elements
//~ `NamedCount<Num<6>, (Batch, ())>` elements cannot become `NamedCount<Num<7>, (Batch, ())>` elements
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; Batch, 6]) {
    let _ = a.reshape::<S![Batch, 7]>();
    //~ fix: let _ = a.reshape::<S![Batch, 2, 3]>();
}
