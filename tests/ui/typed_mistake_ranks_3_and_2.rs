//~ elementwise op: dim `TDim<Num<6>>` on the left and dim `TDim<Num<8>, Data>` on the right have different sizes
//~ insert a dim that repeats, `b.expand_dims(D1)`, to pair the others
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 6, 16], y: &T![f32; 8@Data, 16]) {
    let _ = x + y;
    //~ fix: let _ = x + y.expand_dims(D1);
}
