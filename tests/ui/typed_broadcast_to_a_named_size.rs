//~ broadcast_to: the size `Batch` is known only at run time, so an array must give it
//~ broadcast_like
use atmesh::typed::prelude::*;
dim!(Batch);
fn main() {}
fn wrong(m: &T![f32; ~, 3]) {
    let _ = m.broadcast_to::<S![Batch, 3]>();
}
