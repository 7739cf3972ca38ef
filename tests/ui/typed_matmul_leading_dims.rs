//~ matmul: leading dims `TDim<Num<4>, X>` (left) and `TDim<Num<4>>` (right) must be the same, size and sharding
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 4@X, 8, 16], b: &T![f32; 4, 16, 2]) {
    let _ = a.matmul(b);
}
