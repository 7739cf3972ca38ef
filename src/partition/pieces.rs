//! Fetches: what a device needs and does not hold, and who holds it.
//!
//! [`SpmdProgram::pieces`] says which boxes each exchange moves. The engines of this crate share one memory and move none of them;
//! tests run programs on devices with memories of their own, which hold nothing but their blocks and these boxes.

use crate::partition::layout::DimLayout;
use crate::partition::program::{Need, Slot, SpmdProgram, Step};
use crate::partition::reads::read_boxes;
use crate::partition::region::{Region, beyond, loop_box};
use crate::sharding::atoms::without;

/// A box of a stored value that one device has from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The position of the device that holds it. For a partial value this says whose part it is.
    pub from: usize,
    /// Which elements: an interval for each dimension of the stored value.
    pub region: Region,
}

impl SpmdProgram {
    /// The box of its loops that the device at `position` runs in local step `step`; none for other steps.
    pub fn loops(&self, step: usize, position: usize) -> Option<Region> {
        match &self.steps[step] {
            Step::Local { sentence, layout, .. } => Some(loop_box(layout, &sentence.extents, position)),
            _ => None,
        }
    }

    /// The boxes of `slot` that the device at `position` reads in step `step`; they may overlap.
    pub fn needs(&self, step: usize, slot: Slot, position: usize) -> Vec<Region> {
        let mut boxes = Vec::new();
        if let (Step::Local { sentence, .. }, Some(loops)) = (&self.steps[step], self.loops(step, position)) {
            for read in 0..sentence.reads.len() {
                read_boxes(sentence, read, slot, &self.slots[slot].shape, &loops, &mut boxes);
            }
        }
        boxes
    }

    /// What the device at `position` receives in a [`Step::Fetch`] or reads in a [`Step::Reduce`], in an order that all devices
    /// agree on; nothing for other steps.
    ///
    /// Of a fetch: disjoint boxes that it does not hold, each with its nearest holder. Of a reduce: for each part in rank order the
    /// pieces of the device's box of the result (also those that it holds itself), each with the holder of that part; of parts that are the
    /// same only its own.
    pub fn pieces(&self, step: usize, position: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        match &self.steps[step] {
            Step::Fetch { src, needs } => {
                let stored = &self.slots[*src];
                for b in self.missing(*src, needs, position) {
                    stored.layout.holders(&stored.shape, position, &b, |from, region| {
                        pieces.push(Piece { from, region });
                    });
                }
            }
            Step::Reduce { src, out, .. } => {
                let stored = &self.slots[*src];
                let wanted = self.slots[*out].layout.region(&stored.shape, position);
                for p in self.addends(*src, *out, position) {
                    stored.layout.holders(&stored.shape, p, &wanted, |from, region| {
                        pieces.push(Piece { from, region });
                    });
                }
            }
            _ => {}
        }
        pieces
    }

    /// For each part of `src` that goes into `out` on the device at `position`, in rank order: a device of that part.
    pub(crate) fn addends(&self, src: Slot, out: Slot, position: usize) -> Vec<usize> {
        let along = self.parts_gone(src, out);
        match self.own_part(src) {
            true => vec![position],
            false => (0..along.ways()).map(|r| along.place(position, r)).collect(),
        }
    }
    /// Whether the parts of a value are the same, so that each device takes its own.
    pub(crate) fn own_part(&self, src: Slot) -> bool {
        self.slots[src].layout.has_same_parts()
    }
    /// The digits over which parts of `src` differ and those of `out` do not.
    pub(crate) fn parts_gone(&self, src: Slot, out: Slot) -> DimLayout {
        let parts = |s: Slot| self.slots[s].layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        let atoms = without(&parts(src), &parts(out)).unwrap_or_default();
        DimLayout { atoms, block: 1, origin: 0 }
    }

    /// The disjoint boxes of `src` that readers need on the device at `position` and that it does not hold.
    pub fn missing(&self, src: Slot, needs: &[Need], position: usize) -> Vec<Region> {
        let stored = &self.slots[src];
        let mut wanted = Vec::new();
        for need in needs {
            if let (Step::Local { sentence, .. }, Some(loops)) =
                (&self.steps[need.reader], self.loops(need.reader, position))
            {
                read_boxes(sentence, need.read, src, &stored.shape, &loops, &mut wanted);
            }
        }
        let mut held = vec![stored.layout.region(&stored.shape, position)];
        beyond(wanted, &mut held)
    }
}
