//~ a dim of size `Num<11>` cannot be sharded evenly over mesh axis `X`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8@X, 6]) {
    let _ = a.clone().pad::<N![1], N![2], _>(D0, 0.0);
    //~ fix: let _ = a.pad::<N![1], N![1], _>(D0, 0.0);
}
