//~ matmul/einsum: dims `TDim<Num<16>>` (left) and `TDim<Num<32>>` (right) have different sizes
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 16], b: &T![f32; 32, 16]) {
    let _ = a.matmul(b);
}
