//! Pass 8: finds memory for the values that have none yet.

use super::BufferLocation;
use super::bind::{BoundGroup, GroupKernel};
use super::planner::{PlanScope, Planner};
use crate::exec::compile::arena::{self, AllocRequest, Allocation, FreeBlock};
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::partition::{Slot, fusion::RowFusion};
use std::collections::HashSet;

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
        chains: &[RowFusion],
        bound: &mut [Option<BoundGroup>],
    ) -> usize {
        let last_reads = last_read_levels(g);
        let mut requests = self.value_requests(g, scope, (chains, &last_reads), bound);
        requests.extend(nested_requests(g, bound));
        requests.extend(stage_requests(g, bound));
        let reuse = scope.reuse;
        let free = |s: Slot| FreeBlock { bytes: g.program.value_bytes(s), free_after_level: last_reads[s] };
        let spare: Vec<FreeBlock> = reuse.free_blocks.iter().map(|b| free(b.1)).collect();
        arena::assign_offsets(&spare, requests, |request, at| {
            let location = match at {
                Allocation::Arena(at) => BufferLocation::Arena(at),
                Allocation::FreeBlock(k, at) => BufferLocation::Donated(reuse.free_blocks[k].0, at),
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
        (chains, last_reads): (&[RowFusion], &[u32]),
        bound: &[Option<BoundGroup>],
    ) -> Vec<AllocRequest<AllocOwner>> {
        let (flow, puts) = (g.program, &scope.reuse.scatter_chains);
        let in_scratch: HashSet<usize> = chains.iter().flat_map(|c| &c.scratch).map(|s| s.0).collect();
        let mut requests = Vec::new();
        for (s, last) in last_reads.iter().enumerate() {
            let Some(d) = g.defs[s] else { continue };
            let Some(group) = &bound[d.group] else { continue };
            let elsewhere = flow.alias_root(s) != s || puts.last_value(s) != s || in_scratch.contains(&s);
            if self.locations[scope.base + s] != BufferLocation::None || elsewhere {
                continue;
            }
            let head = matches!(g.groups[d.group].root, FusionRoot::Matmul(k) if k == d.op)
                && group.matmul_alias.is_none();
            if g.materialized[s] || head {
                let begun = g.defs[puts.first_value(s)].map_or(d.group, |d| d.group);
                let from = g.groups[begun].level;
                requests.push(AllocRequest {
                    first_level: from,
                    last_level: (*last).max(from),
                    bytes: flow.value_bytes(s),
                    owner: AllocOwner::Slot(scope.base + s),
                });
            }
        }
        requests
    }
}

/// Returns for each value the last level that reads it, 0 if none does.
fn last_read_levels(g: &FusionPlan<'_, '_>) -> Vec<u32> {
    let mut last = vec![0; g.program.values.len()];
    for (k, item) in g.program.ops.iter().enumerate() {
        let level = g.op_level(k);
        for s in item.sources() {
            let root = g.program.alias_root(s);
            last[root] = level.max(last[root]);
        }
    }
    last
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
