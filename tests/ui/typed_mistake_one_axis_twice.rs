//~ a mesh axis would shard two dims of one array: `(TDim<Num<8>, Data>, TDim<Num<32>, Data>)`
//~ `reshard` an operand first, so that the axis is used once
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], w: &T![f32; 16, 32@Data]) {
    let _ = x.matmul(w);
    //~ fix: let _ = x.matmul(&w.reshard(P![_, Model]));
}
