//! Layouts: which block of a stored value each device holds.

use crate::core::sharding::sub_axes::{canonicalize, num_shards};
use crate::core::{SubAxes, SubAxis};
use crate::ir::program::Reducer;

/// The layout of one dimension or loop.
///
/// Rank `r` holds the indices `[r·block − origin, (r+1)·block − origin)`, clipped to the dimension;
/// the blocks of the first and last rank extend to its ends. A dimension of size N that a type
/// splits into n shards has `block` ⌈N/n⌉ and `origin` 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DimLayout {
    /// The sub-axes of the device position that form the rank, major first.
    pub sub_axes: SubAxes,
    /// The block size, in elements.
    pub block: i64,
    /// The number of elements by which blocks start before multiples of `block`.
    pub origin: i64,
}

/// The layout of a stored value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The layout of each dimension.
    pub dims: Vec<DimLayout>,
    /// The reducer and the sub-axes that index the partial values, if the value is partial.
    /// `None` if it is not.
    pub partial: Option<(Reducer, SubAxes)>,
}

impl DimLayout {
    /// Returns the layout that a type defines: blocks of ⌈N/n⌉ elements, without offset.
    pub fn new(size: usize, sub_axes: impl IntoIterator<Item = SubAxis>) -> DimLayout {
        let sub_axes = canonicalize(sub_axes);
        let block = (size.div_ceil(num_shards(&sub_axes)) as i64).max(1);
        DimLayout { sub_axes, block, origin: 0 }
    }
    /// Returns the number of shards.
    pub fn num_shards(&self) -> usize {
        num_shards(&self.sub_axes)
    }
    /// Returns the rank of a device position.
    pub fn rank(&self, position: usize) -> usize {
        self.sub_axes.iter().fold(0, |r, a| r * a.size + a.index_of(position))
    }
    /// Returns the range of indices that a rank holds, in a dimension of the given size.
    pub fn range(&self, rank: usize, size: usize) -> (i64, i64) {
        let (r, n) = (rank as i64, size as i64);
        let lo = if rank == 0 { 0 } else { r * self.block - self.origin };
        let hi = if rank + 1 == self.num_shards() { n } else { (r + 1) * self.block - self.origin };
        (lo.clamp(0, n), hi.clamp(0, n))
    }
    /// Returns the maximum number of indices that a rank holds, in a dimension of the given size.
    pub(crate) fn max_block(&self, size: usize) -> usize {
        let ranks = [0, 1.min(self.num_shards() - 1), self.num_shards() - 1];
        ranks.map(|r| self.range(r, size)).iter().map(|r| (r.1 - r.0) as usize).max().unwrap_or(0)
    }
    /// Returns the rank that holds an index.
    pub fn owner(&self, index: i64) -> usize {
        (index + self.origin).div_euclid(self.block).clamp(0, self.num_shards() as i64 - 1) as usize
    }
    /// Returns the device position nearest to `position` that has the given rank.
    pub fn nearest_position(&self, position: usize, rank: usize) -> usize {
        let (mut p, mut r) = (position as i64, rank);
        for a in self.sub_axes.iter().rev() {
            p += ((r % a.size) as i64 - a.index_of(position) as i64) * a.stride as i64;
            r /= a.size;
        }
        p as usize
    }
}

impl Layout {
    /// Returns true if the value is partial and its partial values are all equal.
    /// Each device then uses its own.
    pub(crate) fn has_equal_partials(&self) -> bool {
        self.partial.as_ref().is_some_and(|p| p.0 == Reducer::AssumeEqual)
    }
}
