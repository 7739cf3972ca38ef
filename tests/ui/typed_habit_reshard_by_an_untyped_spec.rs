//~ reshard: spec `atmesh::Spec` does not fit an array of shape `(TDim<Num<8>, Data>, TDim<Num<16>>)`
//~ write it as `P![X, _]`; `p!["X", _]` is for untyped arrays
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.reshard(p!["Data", _]);
    //~ fix: let _ = x.reshard(P![Data, _]);
}
