//~ stack: shapes `(TDim<Num<8>, Data>, TDim<Num<16>>)` and `(TDim<Num<8>>, TDim<Num<16>>)` differ
//~ `reshard` one operand to the other's sharding
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], y: &T![f32; 8, 16]) {
    let _ = x.stack(y, D1);
    //~ fix: let _ = x.stack(&y.reshard(P![Data, _]), D1);
}
