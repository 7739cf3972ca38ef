//! Pass 8: finds memory for the values that have none yet.

use super::BufferLocation;
use super::bind::{BoundGroup, GroupKernel};
use super::planner::{PlanScope, Planner};
use crate::exec::compile::arena::{self, AllocRequest, Allocation};
use crate::exec::compile::fusion::lifetimes::{ValueLifetime, value_lifetimes};
use crate::partition::{Slot, fusion::FusionPlan, fusion::reuse::FreeBlock};

/// The owner of memory in the arena.
#[derive(Clone, Copy)]
enum AllocOwner {
    /// A slot.
    Slot(usize),
    /// All of a nested program, by its group.
    Nested(usize),
}

impl Planner {
    /// Assigns memory to all values, nested programs and stages that need it.
    /// Returns the size of the arena, in bytes.
    pub(super) fn allocate(
        &mut self,
        g: &FusionPlan<'_, '_>,
        scope: &PlanScope<'_>,
        bound: &mut [Option<BoundGroup>],
    ) -> usize {
        let mut requests = self.value_requests(g, scope, bound);
        requests.extend(nested_requests(g, bound));
        requests.extend(stage_requests(g, bound));
        let free_blocks = scope.reuse.free_blocks(g);
        let spare: Vec<FreeBlock> = free_blocks.iter().map(|s| s.1).collect();
        arena::assign_offsets(&spare, requests, |request, at| {
            let location = match at {
                Allocation::Arena(at) => BufferLocation::Arena(at),
                Allocation::FreeBlock(k, at) => BufferLocation::Donated(free_blocks[k].0, at),
            };
            match request.owner {
                AllocOwner::Slot(s) => {
                    self.locations[s] = location;
                    if let (true, Allocation::Arena(at)) = (arena::HAS_GUARDS, at) {
                        let guard = self.add_slot(BufferLocation::Arena(at + request.bytes));
                        self.guards.push((guard, arena::guard_bytes(request.bytes)));
                    }
                }
                AllocOwner::Nested(k) => {
                    if let Some(BoundGroup { kernel: GroupKernel::Control(n), .. }) = &mut bound[k] {
                        n.location = Some(location);
                        self.relocate(n.slots.clone(), location);
                    }
                }
            }
        })
    }

    /// Returns the requests of values that are stored and have no location yet.
    fn value_requests(
        &self,
        g: &FusionPlan<'_, '_>,
        scope: &PlanScope<'_>,
        bound: &[Option<BoundGroup>],
    ) -> Vec<AllocRequest<AllocOwner>> {
        let is_placed = |s: Slot| self.locations[scope.base + s] != BufferLocation::None;
        let lifetimes = value_lifetimes(g, scope.reuse, |k| bound[k].is_none(), is_placed);
        let request = |l: ValueLifetime| AllocRequest {
            first_level: l.first_level,
            last_level: l.last_level,
            bytes: l.bytes,
            owner: AllocOwner::Slot(scope.base + l.value),
        };
        lifetimes.into_iter().map(request).collect()
    }
}

/// Returns the requests of nested programs.
fn nested_requests(
    g: &FusionPlan<'_, '_>,
    bound: &[Option<BoundGroup>],
) -> impl Iterator<Item = AllocRequest<AllocOwner>> {
    let request = |(k, group): (usize, &Option<BoundGroup>)| {
        let bytes = group.as_ref()?.nested()?.arena_bytes;
        let level = g.groups[k].level;
        Some(AllocRequest { first_level: level, last_level: level, bytes, owner: AllocOwner::Nested(k) })
    };
    bound.iter().enumerate().filter_map(request)
}

/// Returns the requests of the memory between the two stages of kernels.
fn stage_requests(
    g: &FusionPlan<'_, '_>,
    bound: &[Option<BoundGroup>],
) -> impl Iterator<Item = AllocRequest<AllocOwner>> {
    let request = |(k, group): (usize, &Option<BoundGroup>)| {
        let group = group.as_ref()?;
        let bytes = group.kernel.task()?.second_stage()?.scratch_bytes;
        let (level, owner) = (g.groups[k].level, AllocOwner::Slot(group.scratch_slot? as usize));
        Some(AllocRequest { first_level: level, last_level: level, bytes, owner })
    };
    bound.iter().enumerate().filter_map(request)
}
