//~ an update of shape `(TDim<Num<8>>, TDim<Num<4>>)` does not fit into the part of shape `(TDim<Num<4>>, TDim<Num<8>>)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(table: &T![f32; 100, 8], ids: &T![i32; 4], values: &T![f32; 8, 4]) {
    let _ = table.at(ids, D0).add(values);
    //~ fix: let _ = table.at(ids, D0).add(table.take(ids, D0));
}
