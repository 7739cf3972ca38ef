//! The state of planning, which the passes over a program share.

use super::BufferLocation;
use crate::partition::fusion::reuse::BufferReuse;

/// The state of planning.
#[derive(Default)]
pub(super) struct Planner {
    /// The location of each slot.
    pub(super) locations: Vec<BufferLocation>,
    /// The guards so far, by slot, with their sizes in bytes.
    pub(super) guards: Vec<(u32, usize)>,
    /// The number of levels so far.
    pub(super) num_levels: usize,
}

/// The facts about a program that is planned, apart from its groups.
#[derive(Clone, Copy)]
pub(super) struct PlanScope<'a> {
    /// The first slot of the program.
    pub(super) base: usize,
    /// True if the program is nested in control flow.
    pub(super) in_loop: bool,
    /// The groups that need not run.
    pub(super) skip: &'a [usize],
    /// The values that share memory.
    pub(super) reuse: &'a BufferReuse,
}

impl Planner {
    /// Adds a slot to those of the program.
    pub(super) fn add_slot(&mut self, location: BufferLocation) -> u32 {
        self.locations.push(location);
        (self.locations.len() - 1) as u32
    }
}
