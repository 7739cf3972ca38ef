//! Boxes of loop indices, and the affine maps by which operands are read there.

use super::index::{LoopVec, MAX_LOOPS, NO_LOOP};
use crate::core::types::{DType, Scalar};
use crate::ir::program::loop_nest::Source;
use smallvec::SmallVec;

/// A box of the consumer's loop indices, in which an access is one affine map or one constant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccessBox {
    /// The value or constant that is read.
    pub(crate) source: Source,
    /// The first index of each loop.
    pub(crate) lo: LoopVec,
    /// The end of each loop (exclusive).
    pub(crate) hi: LoopVec,
    /// The offset of the element at index 0 of all loops, in elements.
    pub(crate) offset: i64,
    /// The elements from one index of each loop to the next.
    pub(crate) strides: LoopVec,
    /// For each source dimension, the loop that it follows with coefficient 1, or [`NO_LOOP`].
    pub(crate) dim_loops: [u8; MAX_LOOPS],
    /// For each source dimension, its index minus that of the loop that it follows.
    pub(crate) dim_shifts: LoopVec,
    /// The number of source dimensions.
    pub(crate) rank: usize,
}

impl AccessBox {
    /// Creates a box over all loops in which every index reads the same element.
    /// `rank` is the number of source dimensions.
    pub(crate) fn broadcast(source: Source, ext: &LoopVec, rank: usize) -> AccessBox {
        let (dim_loops, dim_shifts) = ([NO_LOOP; MAX_LOOPS], [0; MAX_LOOPS]);
        AccessBox {
            source,
            lo: [0; MAX_LOOPS],
            hi: *ext,
            offset: 0,
            strides: [0; MAX_LOOPS],
            dim_loops,
            dim_shifts,
            rank,
        }
    }
    /// Returns the shifts if there are `n` source dimensions and dimension d follows loop d.
    pub(crate) fn identity_shift(&self, n: usize) -> Option<LoopVec> {
        (self.rank == n && (0..n).all(|d| self.dim_loops[d] as usize == d)).then_some(self.dim_shifts)
    }
    /// Returns the loop of each source dimension if each of `n` loops is followed once, unshifted.
    pub(crate) fn permutation(&self, n: usize) -> Option<[u8; MAX_LOOPS]> {
        let mut seen = [false; MAX_LOOPS];
        let fine = self.rank == n
            && (0..n).all(|d| {
                let l = self.dim_loops[d];
                l != NO_LOOP && self.dim_shifts[d] == 0 && !std::mem::replace(&mut seen[l as usize], true)
            });
        fine.then_some(self.dim_loops)
    }
    /// Returns true if the box contains all indices of the loops.
    pub(crate) fn covers(&self, ext: &LoopVec, n: usize) -> bool {
        (0..n).all(|d| self.lo[d] <= 0 && self.hi[d] >= ext[d])
    }
}

/// The access of an operand: disjoint boxes, and a fill value elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OperandAccess {
    /// The element type.
    pub(crate) dtype: DType,
    /// The value at indices that no box contains.
    pub(crate) fill: Scalar,
    /// The disjoint boxes.
    pub(crate) boxes: SmallVec<[AccessBox; 1]>,
}

impl OperandAccess {
    /// Returns true if the access is one affine map, or one constant, over all loops.
    pub(crate) fn is_single_box(&self, ext: &LoopVec, n: usize) -> bool {
        match &self.boxes[..] {
            [] => true,
            [p] => p.covers(ext, n),
            _ => false,
        }
    }
}

/// The box of loop indices that one shard contributes to a reduction, a gather or a scatter.
#[derive(Clone, Debug)]
pub(crate) struct ShardBox {
    /// The first index of each loop.
    pub(crate) lo: LoopVec,
    /// The end of each loop (exclusive).
    pub(crate) hi: LoopVec,
}

/// A strided box that a pack operation copies.
#[derive(Clone, Debug)]
pub(crate) struct CopyBox {
    /// The value or constant that is copied.
    pub(crate) from: Source,
    /// The box sizes.
    pub(crate) ext: LoopVec,
    /// The offset of the first element read and the strides, in elements.
    pub(crate) src: (i64, LoopVec),
    /// The offset of the first element written and the strides, in elements.
    pub(crate) dst: (i64, LoopVec),
}
