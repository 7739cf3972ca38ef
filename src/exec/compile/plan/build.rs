//! Passes 6, 8 and 9: builds an execution plan, with each group bound to memory as a node.

use super::bind::{BoundGroup, GroupKernel, task_nodes};
use super::planner::{PlanScope, Planner};
use super::{
    BufferLocation, CompiledPlan, DonatedBuffer, ExecutionPlan, IdleDonation, NodeKernel, PlanLevel,
    PlanNode, ResultPlan, control::NestedPlan,
};
use crate::core::{Error, ErrorKind, Fault, PrintedStage, Result};
use crate::exec::compile::elementwise;
use crate::exec::compile::fusion::{self, FusionPlan, order::delay_groups, reuse};
use crate::exec::{compile::ir::BufferProgram, compile::ir::HalfMatmuls, compile::lower};
use crate::partition::{Slot, SpmdProgram};

/// Compiles a program; the memory of inputs that are `donated` may be written.
pub(crate) fn compile(p: &SpmdProgram, donated: &[bool]) -> Result<CompiledPlan> {
    let stage = PrintedStage::Compile;
    let flow = lower::lower(p, HalfMatmuls::Widened)?;
    stage.print_pass("lower", || flow.to_string());
    if !flow.is_countable() {
        return Err(too_many_bytes(p));
    }
    let mut planner = Planner::default();
    planner.locations.resize(flow.values.len(), BufferLocation::None);
    for (i, s) in flow.ins.iter().enumerate() {
        planner.locations[*s] = BufferLocation::Argument(i);
    }
    let mut groups = fusion::fuse(&flow);
    stage.print_pass("fuse", || groups.to_string());
    let (outs, skip) = fusion::choose_views(&groups, p.devices);
    let reuse = reuse::assign_donated(&mut groups, donated, &outs);
    for (s, donation) in &reuse.in_donated {
        planner.locations[*s] = BufferLocation::Donated(*donation, 0);
    }
    let (mut outs, fresh) = planner.assign_results(&flow, outs);
    let scope = PlanScope { base: 0, in_loop: false, skip: &skip, reuse: &reuse };
    let (mut plan, arena) = planner.plan(&mut groups, &scope)?;
    plan.cost_us = plan.levels.iter().flat_map(|l| &l.nodes).map(|n| n.cost_us).sum();
    stage.print_pass("schedule", || plan.to_string());
    let donations = planner.keep_used_donations(&reuse.donated, &mut outs);
    let idle = idle_donations(&flow, donated, &donations, &outs);
    let Planner { locations: places, guards, num_levels: levels } = planner;
    Ok(CompiledPlan {
        plan,
        locations: places,
        guards,
        arena_bytes: arena,
        results: outs,
        fresh_bytes: fresh,
        donated: donations,
        idle_donations: idle,
        num_levels: levels,
    })
}

/// Returns the donated inputs that are not among the used ones, each with the reason.
fn idle_donations(
    flow: &BufferProgram<'_>,
    donated: &[bool],
    used: &[DonatedBuffer],
    outs: &[ResultPlan],
) -> Vec<(usize, IdleDonation)> {
    let given = donated.iter().take(flow.ins.len()).enumerate().filter(|(_, d)| **d).map(|(i, _)| i);
    let idle = given.filter(|i| used.iter().all(|d| d.arg != *i));
    let reason = |i: usize| {
        let is = |o: &ResultPlan| matches!(o, ResultPlan::Argument(a) | ResultPlan::View { arg: a, .. } if *a == i);
        match outs.iter().position(is) {
            _ if flow.value_bytes(flow.ins[i]) == 0 => IdleDonation::Empty,
            Some(k) => IdleDonation::Returned(k),
            None => IdleDonation::NoFit,
        }
    };
    idle.map(|i| (i, reason(i))).collect()
}

/// Returns the error for a program whose values are together too large.
///
/// The error is located at the operation that computes the largest value.
fn too_many_bytes(p: &SpmdProgram) -> Error {
    let what = "the values of the program have more bytes than can be counted; the largest is computed here";
    let error = Error::from(Fault::new(ErrorKind::Shape, what));
    let bytes = |s: Slot| p.slots[s].shape.num_elements() as u128 * p.slots[s].dtype.size() as u128;
    let made = p.steps.iter().zip(&p.origins).filter_map(|(step, why)| {
        let most = step.outputs().into_iter().map(bytes).max()?;
        Some((most, why, why.location?))
    });
    let Some((_, why, location)) = made.max_by_key(|m| m.0) else { return error };
    error.with_location(&why.op, location)
}

impl Planner {
    /// Returns the memory of all results, and the size of each fresh buffer in bytes.
    fn assign_results(
        &mut self,
        flow: &BufferProgram<'_>,
        known: Vec<Option<ResultPlan>>,
    ) -> (Vec<ResultPlan>, Vec<usize>) {
        let mut fresh = Vec::new();
        let outs = flow.outs.iter().zip(known).map(|(o, known)| {
            let root = flow.alias_root(*o);
            known.unwrap_or_else(|| match self.locations[root] {
                BufferLocation::Donated(donation, _) => ResultPlan::Donated(donation),
                BufferLocation::Result(i) => ResultPlan::Fresh(i),
                _ => {
                    self.locations[root] = BufferLocation::Result(fresh.len());
                    fresh.push(flow.value_bytes(root));
                    ResultPlan::Fresh(fresh.len() - 1)
                }
            })
        });
        (outs.collect(), fresh)
    }
    /// Returns the donated buffers in which something is stored; the results are renumbered
    /// accordingly.
    fn keep_used_donations(
        &mut self,
        donated: &[DonatedBuffer],
        outs: &mut [ResultPlan],
    ) -> Vec<DonatedBuffer> {
        let (mut used, mut number) = (Vec::new(), vec![None; donated.len()]);
        let places = self.locations.iter_mut().filter_map(|p| match p {
            BufferLocation::Donated(donation, _) => Some(donation),
            _ => None,
        });
        let outs = outs.iter_mut().filter_map(|o| match o {
            ResultPlan::Donated(donation) => Some(donation),
            _ => None,
        });
        for donation in places.chain(outs) {
            *donation = *number[*donation].get_or_insert_with(|| {
                used.push(donated[*donation]);
                used.len() - 1
            });
        }
        used
    }

    /// Plans a program; also returns its bytes in the arena.
    /// Offsets in the arena are relative to the memory of this program.
    pub(super) fn plan(
        &mut self,
        g: &mut FusionPlan<'_, '_>,
        scope: &PlanScope<'_>,
    ) -> Result<(ExecutionPlan, usize)> {
        let flow = g.program;
        // nested programs come first: their slots follow, and this arena has space for theirs
        let mut nested: Vec<Option<NestedPlan>> = Vec::with_capacity(flow.ops.len());
        for k in 0..flow.ops.len() {
            nested.push(self.plan_control(flow, k, scope)?);
        }
        self.build_plan(g, scope, nested)
    }

    /// Builds the plan around nested plans.
    /// This is a separate function because it has many variables: the stack of nested programs has
    /// only the small frames of `plan`.
    #[inline(never)]
    fn build_plan(
        &mut self,
        g: &mut FusionPlan<'_, '_>,
        scope: &PlanScope<'_>,
        nested: Vec<Option<NestedPlan>>,
    ) -> Result<(ExecutionPlan, usize)> {
        let mut bound = self.bind_groups(g, scope, nested)?;
        // (no row fusion in loops, because carries change their location in each iteration)
        if !scope.in_loop {
            self.fuse_rows(g, scope, &bound);
        }
        let is_placed = |s: Slot| self.locations[scope.base + s] != BufferLocation::None;
        delay_groups(g, scope.reuse, &is_placed);
        flatten_short_rows(g, scope, &mut bound)?;
        let arena = self.allocate(g, scope, &mut bound);
        #[cfg(debug_assertions)]
        super::verify::assert_disjoint(super::verify::lifetimes(
            g,
            &self.locations[scope.base..],
            &bound,
            scope.reuse,
        ));
        let levels = schedule(g, bound, scope.base);
        let plan = self.number_levels(levels, scope.in_loop);
        #[cfg(debug_assertions)]
        super::verify::assert_independent(&plan);
        Ok((plan, arena))
    }

    /// Numbers the levels; a node of control flow has a separate level.
    fn number_levels(&mut self, levels: Vec<Vec<PlanNode>>, in_loop: bool) -> ExecutionPlan {
        let mut plan = ExecutionPlan { levels: Vec::new(), cost_us: 0.0, in_loop };
        for nodes in levels {
            let (control, plain): (Vec<PlanNode>, Vec<PlanNode>) =
                nodes.into_iter().partition(|n| matches!(n.kernel, NodeKernel::Control(_)));
            for nodes in
                std::iter::once(plain).chain(control.into_iter().map(|n| vec![n])).filter(|n| !n.is_empty())
            {
                plan.cost_us += nodes.iter().map(|n| n.cost_us).sum::<f64>();
                let num_tasks = nodes.iter().map(|n| n.num_tasks).sum();
                plan.levels.push(PlanLevel { id: self.num_levels, nodes, num_tasks });
                self.num_levels += 1;
            }
        }
        plan
    }
}

/// Binds elementwise groups that run alone with flat rows, if their rows are short.
fn flatten_short_rows(
    g: &FusionPlan<'_, '_>,
    scope: &PlanScope<'_>,
    bound: &mut [Option<BoundGroup>],
) -> Result<()> {
    for (k, group) in bound.iter_mut().enumerate() {
        if let Some(BoundGroup { kernel: GroupKernel::Elementwise(kernel), .. }) = group
            && !g.chains.iter().any(|chain| chain.groups.contains(&k))
        {
            let over = &scope.reuse.overwrites[k];
            let flat = elementwise::bind_flat(g, k, scope.base as u32, scope.in_loop, over, kernel)?;
            if let Some(flat) = flat {
                **kernel = flat;
            }
        }
    }
    Ok(())
}

/// Returns the nodes of each level. The second stages of kernels come after their first stages.
fn schedule(g: &FusionPlan<'_, '_>, mut bound: Vec<Option<BoundGroup>>, base: usize) -> Vec<Vec<PlanNode>> {
    let top = g.groups.iter().map(|g| g.level).max().unwrap_or(0) as usize;
    let mut levels: Vec<Vec<PlanNode>> = (0..2 * top).map(|_| Vec::new()).collect();
    let fused: Vec<(usize, PlanNode)> = g
        .chains
        .iter()
        .map(|chain| {
            let parts = chain.groups.iter().filter_map(|k| bound[*k].take()).collect();
            let (kernel, info) = chain.fused_kernel(parts, base);
            (chain.groups[0], task_nodes(Box::new(kernel), None, info).0)
        })
        .collect();
    let single = bound.into_iter().enumerate().filter_map(|(k, group)| Some((k, group?.into_nodes())));
    for (k, (first, second)) in single.chain(fused.into_iter().map(|(k, node)| (k, (node, None)))) {
        let level = 2 * (g.groups[k].level as usize - 1);
        levels[level].push(first);
        levels[level + 1].extend(second);
    }
    levels
}
