//! Claims that a value that varies over an axis may leave a `shard_map`.
//~ missing: `SEAL`
use atmesh::typed::{prelude::*, sets::{Invariant, Mentioned}};
mesh! { struct Pod { X: 2, Y: 4 } }
impl Mentioned<Invariant> for X {}
fn main() {}
