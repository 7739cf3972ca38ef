//! Makes a false claim about the size of a dim under an entry of a spec.
//~ missing: `SEAL`
use atmesh::typed::{prelude::*, rules::reshard::RespecDim, shape::TDim};
struct False;
impl RespecDim<False> for TDim<N![8]> {
    type Out = TDim<N![999]>;
}
fn main() {}
