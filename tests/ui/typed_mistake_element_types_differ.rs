//~ the element types differ: `f32` on the left and `atmesh::typed::bf16` on the right
//~ convert one of them: `.convert::<f32>()`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], y: &T![bf16; 16, 4]) {
    let _ = x.matmul(y);
    //~ fix: let _ = x.matmul(&y.convert::<f32>());
}
