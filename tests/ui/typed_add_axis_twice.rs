//~ a mesh axis would shard two dims of one array: `(TDim<Num<8>, X>, TDim<Num<4>, X>)`
//~ `reshard` an operand first
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4], b: &T![f32; 8, 4@X]) {
    let _ = a.add(b);
}
