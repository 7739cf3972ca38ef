//! Pass 7, row fusion: what the fusion stage must know of bound groups to find chains of rows.

use super::BufferLocation;
use super::bind::{BoundGroup, GroupKernel};
use super::planner::{PlanScope, Planner};
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::exec::compile::gather_scatter::GatherScatterKernel;
use crate::exec::compile::ir::BufferOp;
use crate::exec::compile::task_kernel::TaskKernel;
use crate::partition::fusion::row_groups::{GatherRows, RowConstraints, ScatterRows};
use crate::partition::{Slot, fusion::rows::fuse_rows};

impl Planner {
    /// Finds the chains of groups that run a batch of rows at a time.
    pub(super) fn fuse_rows(
        &self,
        g: &mut FusionPlan<'_, '_>,
        scope: &PlanScope<'_>,
        groups: &[Option<BoundGroup>],
    ) {
        let location = |s: Slot| self.locations[scope.base + s];
        let constraints = RowConstraints {
            latest_levels: scope.reuse.latest_levels(g),
            gathers: groups.iter().map(|k| gather_rows(k.as_ref()?)).collect(),
            scatters: (0..groups.len()).map(|k| scatter_rows(g, k, groups[k].as_ref()?, scope)).collect(),
            aliases: groups.iter().map(|k| k.as_ref()?.matmul_alias).collect(),
            is_excluded: &|k| groups[k].is_none() || !scope.reuse.overwrites[k].is_empty(),
            is_skipped: &|k| groups[k].is_none(),
            is_in_own_memory: &|s| matches!(location(s), BufferLocation::None | BufferLocation::Result(_)),
            is_unplaced: &|s| location(s) == BufferLocation::None,
        };
        fuse_rows(g, &constraints);
    }
}

/// Returns the gather or scatter of a group.
fn gather_scatter(group: &BoundGroup) -> Option<&GatherScatterKernel> {
    if let GroupKernel::GatherScatter(k) = &group.kernel { Some(k) } else { None }
}

/// Returns the rows of a gather.
fn gather_rows(group: &BoundGroup) -> Option<GatherRows> {
    let k = gather_scatter(group).filter(|k| !k.is_scatter())?;
    Some(GatherRows { num_rows: k.num_gather_rows(), any_order: k.allows_any_order() })
}

/// Returns the updates of a scatter, if it can apply a batch of them at a time.
///
/// A scatter that does not sort its updates must be one task, because each of several tasks would
/// have to compute all updates. So it must be small, or there is one worker.
fn scatter_rows(
    g: &FusionPlan<'_, '_>,
    k: usize,
    group: &BoundGroup,
    scope: &PlanScope<'_>,
) -> Option<ScatterRows> {
    let FusionRoot::Standalone(item) = g.groups[k].root else { return None };
    let BufferOp::GatherScatter(s) = &g.program.ops[item] else { return None };
    let kernel = gather_scatter(group).filter(|k| k.is_scatter())?;
    let chains = &scope.reuse.scatter_chains;
    let alone = |s: Slot| chains.last_value(s) == s && chains.first_value(s) == s;
    let is_alone = s.scatter_init_value(g.program).into_iter().chain([s.out]).all(alone);
    let num_tasks = kernel.num_tasks();
    let num_updates =
        kernel.num_batched_updates().filter(|_| is_alone && (num_tasks == 1 || kernel.sorts_updates()))?;
    Some(ScatterRows { updates: kernel.source_slot() as usize - scope.base, num_updates, num_tasks })
}
