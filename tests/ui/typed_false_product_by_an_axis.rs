//! Makes a false claim about the shape of a product whose spec is a type that `mesh!` declares.
//~ missing: `SEAL`
use atmesh::typed::{prelude::*, rules::dot::MatmulToRhs};
mesh! { struct Pod { X: 2, Y: 4 } }
impl MatmulToRhs<S![8@X, 4], X> for S![4, 8] {
    type Out = S![999@X];
}
fn main() {}
