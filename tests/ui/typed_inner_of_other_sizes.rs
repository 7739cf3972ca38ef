//~ matmul/einsum: dims `TDim<Num<3>>` (left) and `TDim<Num<2>>` (right) have different sizes
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 4, 3], b: &T![f32; 4, 2]) {
    let _ = a.inner(b);
    //~ fix: let _ = a.inner(&b.pad::<N![0], N![1], _>(D1, 0.0));
}
