//~ matmul/einsum: dims `TDim<Num<16>>` (left) and `TDim<Num<32>>` (right) have different sizes
//~ give both dims one size, or turn an operand: `a.matmul(&b.t())`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], w: &T![f32; 32, 16]) {
    let _ = x.matmul(w);
    //~ fix: let _ = x.matmul(&w.t());
}
