//~ `reshard` first
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(table: &T![f32; 8@X, 4], ids: &T![i32; 3]) {
    let _ = table.take(ids, D0);
}
