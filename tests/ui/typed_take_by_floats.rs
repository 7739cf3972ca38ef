//~ this operation is not defined for elements of type `f32`
//~ .convert::<i32>()
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(table: &T![f32; 8, 4], ids: &T![f32; 3]) {
    let _ = table.take(ids, D0);
}
