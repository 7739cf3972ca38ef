//~ take: dim `TDim<Num<4>, X>` of the indices is sharded, so how the result is sharded is open
//~ table.take_to(&ids, D0, P![=, =, =])
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(table: &T![f32; 100, 8@Y], ids: &T![i32; 4@X, 6]) {
    let _ = table.take(ids, D0);
    //~ fix: let _ = table.take_to(ids, D0, P![=, =, =]);
}
