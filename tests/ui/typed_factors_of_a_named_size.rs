//~ a dim of size `Embed` is not `Num<4>` times `Num<15>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8@X, Embed]) {
    let _ = a.split_dim::<N![4], N![15], _>(D1);
    //~ fix: let _ = a.split_dim::<N![4], N![16], _>(D1);
}
