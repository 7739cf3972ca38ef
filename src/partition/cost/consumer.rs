//! The inputs of the cost model: consumers of values, and fetches.

use crate::ir::program::LoopNest;
use crate::partition::layout::DimLayout;
use crate::partition::program::{Slot, StoredValue};

/// An access of a stored value, with the layout of the loops that perform it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumer<'a> {
    /// The loop nest of the consumer.
    pub(crate) nest: &'a LoopNest,
    /// The index of the access.
    pub(crate) access: usize,
    /// The layout of the loops.
    pub(crate) layout: &'a [DimLayout],
}

impl Consumer<'_> {
    /// Returns true if another consumer needs exactly the same boxes.
    pub(crate) fn needs_same_boxes(&self, other: &Consumer) -> bool {
        let by_position = |r: &Consumer| r.nest.compute.has_affine_accesses();
        self.layout == other.layout
            && self.nest.extents == other.nest.extents
            && by_position(self) == by_position(other)
            && self.nest.accesses[self.access].pieces == other.nest.accesses[other.access].pieces
    }
}

/// A fetch of a value for some consumers.
#[derive(Clone, Copy)]
pub(crate) struct FetchQuery<'a> {
    /// The number of devices.
    pub(crate) devices: usize,
    /// The slot of the value.
    pub(crate) slot: Slot,
    /// The value.
    pub(crate) stored: &'a StoredValue,
    /// The consumers.
    pub(crate) consumers: &'a [Consumer<'a>],
    /// The number of partial values that are read and combined. 1 if the value is full.
    pub(crate) num_partials: i64,
}
