//~ dim `TDim<Num<8>, X>` is sharded, and must be unsharded here
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = a.median(D0);
}
