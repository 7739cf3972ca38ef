//! Claims that a run-time size is the parts of its share along another axis.
//~ missing: `SEAL`
use atmesh::typed::{prelude::*, size::{DeviceShare, GatherImpl, Symbol}};
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
impl GatherImpl<DeviceShare<Batch, X>, Y> for Symbol {
    type Full = N![999];
}
fn main() {}
