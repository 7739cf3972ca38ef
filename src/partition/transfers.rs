//! Transfers: which elements a device needs and does not hold, and which device holds them.
//!
//! [`SpmdProgram::transfers`] lists the boxes that each exchange moves. In the lock-step, threads
//! and reference engines all devices share one memory, so these engines move no boxes. Tests run
//! programs on simulated devices with separate memories, which hold only their blocks and the boxes
//! listed here.

use crate::core::sharding::sub_axes::subtract;
use crate::partition::boxes::{Region, loop_box, take_missing};
use crate::partition::program::{FetchRequest, Slot, SpmdProgram};
use crate::partition::strided_box::{StridedBox, expand_boxes};
use crate::partition::{access::access_sets, layout::DimLayout};

/// A box of a stored value that one device receives from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The position of the device that holds the box.
    /// For a partial value it also selects the partial value.
    pub from: usize,
    /// The elements: an interval for each dimension of the stored value.
    pub region: Region,
}

impl SpmdProgram {
    /// Returns the box of loop indices that the device at `position` runs in step `step`.
    ///
    /// `None` unless it is a local step.
    pub fn loops(&self, step: usize, position: usize) -> Option<Region> {
        self.steps[step].local().map(|l| loop_box(l.layout, &l.nest.extents, position))
    }

    /// Returns the transfers to the device at `position` in a fetch or a reduction.
    ///
    /// The order is the same on all devices. Other steps have no transfers. For a fetch these are
    /// disjoint boxes that the device does not hold, each with its nearest holder. For a reduction
    /// these are, for each partial value in rank order, the pieces of the device's box of the
    /// result (including those that it holds itself), each with a holder of that partial value. If
    /// all partial values are equal, only the device's own is listed.
    pub fn transfers(&self, step: usize, position: usize) -> Vec<Transfer> {
        let mut pieces = Vec::new();
        if let Some((src, needs)) = self.steps[step].fetches() {
            let stored = &self.slots[src];
            for b in self.missing_regions(src, needs, position) {
                stored.layout.for_each_holder(&stored.shape, position, &b, |from, region| {
                    pieces.push(Transfer { from, region });
                });
            }
        } else if let Some((src, out, _)) = self.steps[step].reduction() {
            let stored = &self.slots[src];
            let requested = self.slots[out].layout.region(&stored.shape, position);
            for p in self.partial_holders(src, out, position) {
                stored.layout.for_each_holder(&stored.shape, p, &requested, |from, region| {
                    pieces.push(Transfer { from, region });
                });
            }
        }
        pieces
    }

    /// Returns one holder of each partial value that is combined into `out`, in rank order.
    /// `position` is the device that combines them.
    pub(crate) fn partial_holders(&self, src: Slot, out: Slot, position: usize) -> Vec<usize> {
        let along = self.reduced_sub_axes(src, out);
        match self.slot_has_equal_partials(src) {
            true => vec![position],
            false => (0..along.num_shards()).map(|r| along.nearest_position(position, r)).collect(),
        }
    }
    /// Returns true if the partial values of a slot are all equal.
    /// Each device then uses its own.
    pub(crate) fn slot_has_equal_partials(&self, src: Slot) -> bool {
        self.slots[src].layout.has_equal_partials()
    }
    /// Returns the sub-axes over which `src` is partial and `out` is not, as a layout.
    pub fn reduced_sub_axes(&self, src: Slot, out: Slot) -> DimLayout {
        let partials =
            |s: Slot| self.slots[s].layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        let sub_axis_list = subtract(&partials(src), &partials(out)).unwrap_or_default();
        DimLayout { sub_axes: sub_axis_list, block: 1, origin: 0 }
    }

    /// Returns the strided boxes of `src` that some accesses read on the device at `position`.
    ///
    /// They may overlap. The flag is false if they have elements that are not read.
    pub(crate) fn requested_boxes(
        &self,
        src: Slot,
        requests: &[FetchRequest],
        position: usize,
    ) -> (Vec<StridedBox>, bool) {
        let (mut boxes, mut exact) = (Vec::new(), true);
        for need in requests {
            if let (Some(nest), Some(loops)) =
                (self.steps[need.consumer_step].loop_nest(), self.loops(need.consumer_step, position))
            {
                let from = (src, &self.slots[src].shape[..]);
                access_sets(nest, need.access, from, &loops, &mut boxes, &mut exact);
            }
        }
        (boxes, exact)
    }

    /// Returns the disjoint boxes of `src` that a device needs and does not hold.
    ///
    /// The requests name the accesses; the device is the one at `position`. There is a box for each
    /// interval that a strided access reads.
    pub fn missing_regions(&self, src: Slot, requests: &[FetchRequest], position: usize) -> Vec<Region> {
        let stored = &self.slots[src];
        let mut requested = Vec::new();
        expand_boxes(&self.requested_boxes(src, requests, position).0, &mut requested);
        let mut held = vec![stored.layout.region(&stored.shape, position)];
        take_missing(requested, &mut held)
    }
}
