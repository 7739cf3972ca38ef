//! Makes a false claim about the sizes of a resharded array.
//~ `False` is not a part of a typed array's type
//~ the traits of shapes, specs and rules are sealed
use atmesh::typed::{prelude::*, rules::reshard::Spec};
mesh! { struct Pod { X: 2, Y: 4 } }
struct False;
impl<S> Spec<S> for False {
    type Out = S![999@X];
}
fn main() {}
