//~ have different numbers of elements
//~ sizes that are known only at run time keep their order, so `transpose` first to exchange two
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; Batch, Seq]) {
    let _ = a.reshape::<S![Seq, Batch]>();
    //~ fix: let _ = a.transpose((D1, D0));
}
