//~ item: an array of shape `(TDim<Num<8>, Data>, TDim<Num<16>>)` is not a scalar
//~ make a scalar first: `x.sum(..).item()?`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.item();
    //~ fix: let _ = x.sum(..).item();
}
