//~ `{float}` does not name dims of `(TDim<Num<8>, Data>, TDim<Num<16>>)` to reduce over
//~ `x.maximum(0.0)` compares with a number or another array
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.max(0.0);
    //~ fix: let _ = x.maximum(0.0);
}
