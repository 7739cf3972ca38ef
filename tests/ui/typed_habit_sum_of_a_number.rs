//~ `{integer}` does not name dims of `(TDim<Num<8>, Data>, TDim<Num<16>>)` to reduce over
//~ expected `D1`
//~ dims are named by types, so numbers do not name them: `D0` is the first, and none counts from the end
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.sum(1);
    //~ fix: let _ = x.sum(D1);
}
