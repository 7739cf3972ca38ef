//~ dim `TDim<K<11, 8>>` on the left and dim `TDim<K<12, 288>>` on the right have different sizes
//~ `K<4, 96>` is 4,096
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 11008], b: &T![f32; 8@X, 12288]) {
    let _ = a.add(b);
}
