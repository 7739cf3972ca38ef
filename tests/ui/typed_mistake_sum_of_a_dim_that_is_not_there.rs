//~ `(TDim<Num<8>, Data>, TDim<Num<16>>)` has no dim number `D<2>`
//~ no dim `D<2>`; dims count from 0
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.sum(D2);
    //~ fix: let _ = x.sum(D1);
}
