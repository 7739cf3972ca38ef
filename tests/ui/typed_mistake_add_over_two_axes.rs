//~ elementwise op: dim `TDim<Num<8>, Data>` on the left and dim `TDim<Num<8>, Model>` on the right are sharded over different mesh axes
//~ `reshard` one operand, for instance `b.reshard(P![..])`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], y: &T![f32; 8@Model, 16]) {
    let _ = x + y;
    //~ fix: let _ = x + y.reshard(P![Data, _]);
}
