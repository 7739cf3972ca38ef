//~ a Jacobian is that of a function that returns one `Array`, but this one returns `Typed<f32, (TDim<Num<8>>,)>`
//~ pass and return untyped arrays, and state the type of the result
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
type T8 = T![f32; 8];
fn main() {}
fn wrong(x: &T![f32; 8]) {
    let _ = atmesh::jacrev(x.as_untyped(), |x| T8::from(x).sin());
    //~ fix: let _ = atmesh::jacrev(x.as_untyped(), |x| T8::from(x).sin().untyped()).typed::<T![f32; 8, 8]>();
}
