//~ transpose: `(D<1>, D<0>)` does not permute the dims of `(TDim<Num<8>, Data>, TDim<Num<4>>, TDim<Num<2>>)`
//~ name every dim of the array once
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 4, 2]) {
    let _ = x.t();
    //~ fix: let _ = x.transpose((D0, D2, D1));
}
