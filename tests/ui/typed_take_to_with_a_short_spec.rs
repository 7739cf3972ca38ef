//~ does not fit the dims of
//~ a spec has one entry for every dim
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(table: &T![f32; 100, 8@Y], ids: &T![i32; 4@X, 6]) {
    let _ = table.take_to(ids, D0, P![=, =]);
    //~ fix: let _ = table.take_to(ids, D0, P![=, =, =]);
}
