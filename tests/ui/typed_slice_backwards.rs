//~ a slice from `Num<5>` to `Num<3>` is not known to have a size
//~ expected two numbers, the lesser one first
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8@X, 6]) {
    let _ = a.slice::<N![5], N![3], _>(D1);
    //~ fix: let _ = a.slice::<N![3], N![5], _>(D1);
}
