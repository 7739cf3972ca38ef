//~ top_k: a dim `TDim<Num<4>>` does not have the `Num<10>` elements that are to be taken
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X, 4]) {
    let _ = x.top_k::<N![10], _>(D1);
}
