//~ matmul/einsum: both dims are `TDim<Num<16>, X>`, so how to shard the result is ambiguous
//~ adds the parts up on every device (all-reduce)
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 16@X], b: &T![f32; 16@X, 32]) {
    let _ = a.matmul(b);
}
