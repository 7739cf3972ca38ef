//! Claims that an axis differs from itself.
//~ missing: `SEAL`
use atmesh::typed::{axis::DistinctAxis, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
impl DistinctAxis<X> for X {}
fn main() {}
