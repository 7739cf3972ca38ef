//~ split: the sizes of the pieces add up to `Num<7>`, but the dim has size `Num<6>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8@X, 6]) {
    let _ = a.split_into::<(N![1], N![2], N![4]), _>(D1);
    //~ fix: let _ = a.split_into::<(N![1], N![2], N![3]), _>(D1);
}
