//~ the size `Num<60>` cannot be divided by `Num<20>` in types
//~ expected a number, and a divisor from 1 to 16
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8@X, 60]) {
    let _ = a.slice_by::<N![0], N![60], N![20], _>(D1);
    //~ fix: let _ = a.slice_by::<N![0], N![60], N![10], _>(D1).slice_by::<N![0], N![6], N![2], _>(D1);
}
