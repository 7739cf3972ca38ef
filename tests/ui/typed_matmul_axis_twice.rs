//~ a mesh axis would shard two dims of one array: `(TDim<Num<8>, X>, TDim<Num<32>, X>)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 16], b: &T![f32; 16, 32@X]) {
    let _ = a.matmul(b);
}
