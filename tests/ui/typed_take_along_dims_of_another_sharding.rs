//~ take: dim `TDim<Num<4>, Data>` of the indices is sharded
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(table: &T![f32; 100, 16], ids: &T![i32; 4@Data, 6]) {
    let _ = table.take(ids, D0);
    //~ fix: let _ = table.take(&ids.reshard(P![_, _]), D0);
}
