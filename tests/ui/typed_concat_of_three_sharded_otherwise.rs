//~ differ in more than the joined dim
//~ all other dims are the same, sharding and all
use atmesh::typed::{concat, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8@X, 6], b: &T![f32; 8, 6]) {
    let _ = concat((a, a, b), D1);
    //~ fix: let _ = concat((a, a, &b.reshard(P![X, _])), D1);
}
