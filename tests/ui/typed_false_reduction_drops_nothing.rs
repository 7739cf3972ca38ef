//! Makes a false claim about the shape of a sum.
//~ `False` is not a part of a typed array's type
use atmesh::typed::{prelude::*, rules::reduce::ReduceDims};
mesh! { struct Pod { X: 2, Y: 4 } }
struct False;
impl ReduceDims<S![8@X, 4]> for False {
    type Out = S![8@X, 4];
    const KEEP: bool = false;
    fn numbers(_: usize) -> Vec<usize> {
        vec![1]
    }
}
fn main() {}
