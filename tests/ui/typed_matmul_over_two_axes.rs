//~ matmul/einsum: dims `TDim<Num<16>, X>` (left) and `TDim<Num<16>, Y>` (right) are sharded over different mesh axes
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8, 16@X], b: &T![f32; 16@Y, 32]) {
    let _ = a.matmul(b);
}
