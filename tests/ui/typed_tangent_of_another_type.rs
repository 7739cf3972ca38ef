//~ the function takes `Typed<f32, (TDim<Num<8>>,)>`, but it is called with `&Typed<f32, ()>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8]) {
    let _ = atmesh::jvp(x, &x.sum(..), |a| a);
    //~ fix: let _ = atmesh::jvp(x, &x.ones_like(), |a| a);
}
