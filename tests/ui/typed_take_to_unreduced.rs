//~ is not a spec of the dims only
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(table: &T![f32; 100@X, 8], ids: &T![i32; 4]) {
    let _ = table.take_to(ids, D0, P![_, _; U: X]);
    //~ fix: let _ = table.take_to(ids, D0, P![_, _]);
}
