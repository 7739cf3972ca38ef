//~ matmul/einsum: dims `TDim<Num<16>, Data>` (left) and `TDim<Num<16>, Model>` (right) are sharded over different mesh axes
//~ `reshard` one operand
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8, 16@Data], w: &T![f32; 16@Model, 32]) {
    let _ = x.matmul(w);
    //~ fix: let _ = x.matmul(&w.reshard(P![_, Model]));
}
