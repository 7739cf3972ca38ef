//! Makes a false claim about the type of a resharded array.
//~ `False` is not a part of a typed array's type
use atmesh::typed::{prelude::*, rules::reshard::ReshardTo};
mesh! { struct Pod { X: 2, Y: 4 } }
struct False;
impl<S, V> ReshardTo<S, V> for False {
    type Shape = S![999@X];
    type Sets = ();
}
fn main() {}
