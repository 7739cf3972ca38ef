//~ elementwise op: dim `TDim<Num<8>, X>` on the left and dim `TDim<Num<8>, Y>` on the right are sharded over different mesh axes
//~ `reshard` one operand
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4], b: &T![f32; 8@Y, 4]) {
    let _ = a.add(b);
}
