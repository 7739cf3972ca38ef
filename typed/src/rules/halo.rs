//! Rules of halos: blocks with a rim of their neighbours' elements.

use crate::shape::{DimType, TDim};
use crate::size::{KnownSize, Size, SizeAtMost, WithRim};

rule_traits! {
    /// A dim of a block that can get a rim of `K` elements on both sides.
    message = "halo: a dim `{Self}` cannot get a rim of `{K}` elements",
    label = "a block's dims are unsharded, and the width of a rim is a number: `x.halo::<N![1], _, _>(D0, X)`",
    pub trait HaloDim<K>: DimType, sealed => Out: DimType, "The dim with its rim." {
        hidden sealed [Z: Size, K: KnownSize] TDim<Z>: HaloDim<K> = TDim<WithRim<Z, K>>;
    }
}

/// A dim with a rim.
#[diagnostic::on_unimplemented(
    message = "dim `{Self}` has no rim",
    label = "expected a dim that `halo` made",
    note = "exchange the rim first, along the axis that shards the dim: `x.halo::<N![1], _, _>(D0, X)`"
)]
pub trait RimDim: DimType {
    /// The dim without the rim.
    type Block: DimType;
    /// The width of the rim.
    type Width: KnownSize;
}
impl<Z: Size, K: KnownSize> RimDim for TDim<WithRim<Z, K>> {
    type Block = TDim<Z>;
    type Width = K;
}

/// A distance that is at most the width `K` of a rim.
#[diagnostic::on_unimplemented(
    message = "the neighbours at distance `{Self}` are not in a rim of `{K}` elements",
    label = "a rim of `{K}` elements holds the neighbours up to this distance",
    note = "exchange a wider rim: `x.halo::<N![2], _, _>(D0, X)`"
)]
pub trait WithinRim<K>: KnownSize {}
#[diagnostic::do_not_recommend]
impl<B: KnownSize + SizeAtMost<K>, K> WithinRim<K> for B {}
