//~ matmul/einsum: both dims are `TDim<Num<16>, Model>`, so how to shard the result is ambiguous
//~ `a.matmul_to(&b, P![_, _])`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16@Model], w: &T![f32; 16@Model, 32]) -> T![f32; 8@Data, 32] {
    x.matmul(w).relu()
    //~ fix: x.matmul_to(w, P![Data, _]).relu()
}
