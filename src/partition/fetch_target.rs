//! Copies into which fetched data is received directly.

use crate::ir::program::loop_nest::{LoopNest, StridedRange};
use crate::partition::program::{FetchRequest, Slot, SpmdProgram};

/// Returns the copy that a fetch serves, if that is its only consumer.
/// It must copy the value or a part of it, element by element. Data is then received directly into
/// the copy.
pub(crate) fn fetch_target(p: &SpmdProgram, slot: Slot, needs: &[FetchRequest]) -> Option<Slot> {
    let reader = needs.first()?.consumer_step;
    let l = p.steps[reader].local().filter(|_| needs.iter().all(|n| n.consumer_step == reader))?;
    (l.nest.copied_operand() == Some(slot) && reads_a_box(l.nest)).then_some(l.out)
}

/// Returns true if the only access of a copy reads a box of the value, whose dimensions are the
/// loops in order, or single indices.
fn reads_a_box(s: &LoopNest) -> bool {
    let [piece] = &s.accesses[0].pieces[..] else { return false };
    let loops = piece.map.iter().flat_map(|m| &m.terms).copied();
    piece.ranges == StridedRange::full_box(&s.extents)
        && piece.map.iter().all(|m| m.terms.len() < 2)
        && loops.eq((0..s.extents.len()).map(|l| (l, 1)))
}
