//! Rules of the leading dims that `scan` and `vmap` run over.

use crate::axis::Shard;
use crate::shape::{D, DimAccess, DimType, Shape, Stretch, TDim};
use crate::size::{Num, Size};

/// A leading dim of size `Z`, over which a loop of `Z` steps runs.
#[diagnostic::on_unimplemented(
    message = "scan: the loop has `{Z}` steps, but the leading dim of an array is `{Self}`",
    label = "the leading dims of all arrays have one size",
    note = "capture values that are the same at every step"
)]
pub trait StepsDim<Z>: DimType {}
impl<Z: Size, S: Shard> StepsDim<Z> for TDim<Z, S> {}
#[diagnostic::do_not_recommend]
impl StepsDim<Num<1>> for Stretch {}

/// A leading dim that equals the dim `Q`, over which `vmap` maps.
#[diagnostic::on_unimplemented(
    message = "vmap: the mapped dims are `{Q}` and `{Self}`, and must be the same",
    label = "the leading dims of all arguments have one size and one sharding",
    note = "`reshard` one of the arguments; capture values that are the same for all examples"
)]
pub trait MappedDim<Q>: DimType {}
impl<Q: DimType> MappedDim<Q> for Q {}

/// A shape with a leading dim: the rank is at least one.
#[diagnostic::on_unimplemented(
    message = "an array of shape `{Self}` has no leading dim to run over",
    label = "`scan` and `vmap` take arrays of rank 1 or more",
    note = "capture values that are the same at every step, or for all examples"
)]
pub trait LeadingShape: Shape {
    /// The leading dim.
    type Dim: DimType;
    /// The shape of one slice.
    type Slice: Shape;
}
#[diagnostic::do_not_recommend]
impl<S: DimAccess<D<0>>> LeadingShape for S {
    type Dim = S::Dim;
    type Slice = S::Removed;
}
