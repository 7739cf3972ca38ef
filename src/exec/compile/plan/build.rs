//! Passes 6, 8 and 9: builds an execution plan, with each group bound to memory as a node.

use super::control::{self, NestedPlan};
use super::result_views::result_view;
use super::reuse::{self, BufferReuse};
use super::row_fusion::{self, BoundGroups};
use super::scatter_chains::ScatterChains;
use super::{
    BoundCopyBox, BufferLocation, CompiledPlan, CopySource, DonatedBuffer, ExecutionPlan, IdleDonation,
    NodeInfo, NodeKernel, PackKernel, PlanLevel, PlanNode, PrintKernel, PrintValue, ResultPlan,
};
use crate::core::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::core::mesh::Axes;
use crate::exec::compile::arena;
use crate::exec::compile::arena::{AllocRequest, Allocation, FreeBlock};
use crate::exec::compile::codegen::segments;
use crate::exec::compile::codegen::segments::CodegenRequest;
use crate::exec::compile::codegen::values;
use crate::exec::compile::fusion;
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::exec::compile::index::{LoopVec, row_major_strides};
use crate::exec::compile::ir::{BufferOp, BufferProgram, CopyBox};
use crate::exec::compile::reduction;
use crate::exec::compile::reduction::ReductionKernel;
use crate::exec::compile::row_kernel;
use crate::exec::compile::row_kernel::BoundRowKernel;
use crate::exec::compile::{gather_scatter, lower, matmul};
use crate::exec::runtime::thread_pool;
use crate::ir::program::loop_nest::{Reducer, Source};
use crate::partition::{PrintOperand, Slot, SpmdProgram};
use std::collections::HashSet;
use std::sync::Arc;

/// Compiles a program; the memory of inputs that are `donated` may be written.
pub(crate) fn compile(p: &SpmdProgram, donated: &[bool]) -> Result<CompiledPlan> {
    let flow = lower::lower(p, &|_, shape| row_major_strides(shape))?;
    if !is_countable(&flow) {
        return Err(too_many_bytes(p));
    }
    let mut planner = Planner { locations: Vec::new(), guards: Vec::new(), num_levels: 0 };
    planner.locations.resize(flow.values.len(), BufferLocation::None);
    for (i, s) in flow.ins.iter().enumerate() {
        planner.locations[*s] = BufferLocation::Argument(i);
    }
    let mut groups = fusion::fuse(&flow);
    let (outs, skip) = planner.choose_views(&groups, p.devices);
    let reuse = reuse::assign_donated(&mut groups, donated, &outs);
    for (s, donation) in &reuse.in_donated {
        planner.locations[*s] = BufferLocation::Donated(*donation, 0);
    }
    let (mut outs, fresh) = planner.assign_results(&flow, outs);
    let (mut plan, arena) = planner.plan(&mut groups, 0, false, &skip, &reuse)?;
    plan.cost_us = plan.levels.iter().flat_map(|l| &l.nodes).map(|n| n.cost_us).sum();
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
            _ if value_bytes(flow, flow.ins[i]) == 0 => IdleDonation::Empty,
            Some(k) => IdleDonation::Returned(k),
            None => IdleDonation::NoFit,
        }
    };
    idle.map(|i| (i, reason(i))).collect()
}

/// The state of planning.
pub(super) struct Planner {
    /// The location of each slot.
    pub(super) locations: Vec<BufferLocation>,
    /// The guards so far, by slot, with their sizes in bytes.
    guards: Vec<(u32, usize)>,
    /// The number of levels so far.
    num_levels: usize,
}

/// The owner of memory in the arena.
#[derive(Clone, Copy)]
enum AllocOwner {
    /// A slot.
    Slot(usize),
    /// All of a nested program, by its operation.
    Op(usize),
}

/// Returns the size of a value, in bytes.
pub(super) fn value_bytes(flow: &BufferProgram<'_>, s: Slot) -> usize {
    let v = &flow.values[s];
    v.shape.num_elements().saturating_mul(v.dtype.size())
}

/// Returns true if the total size of all values is so small that no sum of sizes can overflow.
fn is_countable(flow: &BufferProgram<'_>) -> bool {
    fn total_bytes(flow: &BufferProgram<'_>) -> u128 {
        let nested = flow.ops.iter().flat_map(BufferOp::nested_programs).map(total_bytes);
        // carries have two buffers
        nested.chain((0..flow.values.len()).map(|s| 2 * value_bytes(flow, s) as u128)).sum()
    }
    total_bytes(flow) <= 1 << 62
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
    match made.max_by_key(|m| m.0) {
        Some((_, why, location)) => error.with_location(&why.op, location),
        None => error,
    }
}

impl Planner {
    /// Adds a slot to those of the program.
    pub(super) fn add_slot(&mut self, location: BufferLocation) -> u32 {
        self.locations.push(location);
        (self.locations.len() - 1) as u32
    }
    /// Returns the results that are arguments or blocks of one, and the groups that need not run.
    fn choose_views(&self, g: &FusionPlan<'_, '_>, devices: usize) -> (Vec<Option<ResultPlan>>, Vec<usize>) {
        let mut skip = Vec::new();
        let outs = g.program.outs.iter().map(|o| {
            let root = g.program.alias_root(*o);
            if let BufferLocation::Argument(i) = self.locations[root] {
                return Some(ResultPlan::Argument(i));
            }
            let (view, group) = result_view(g, root, devices)?;
            skip.push(group);
            Some(view)
        });
        (outs.collect(), skip)
    }
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
                    fresh.push(value_bytes(flow, root));
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

    /// Plans a program whose slots start at `base`; also returns its bytes in the arena.
    /// Offsets in the arena are relative to the memory of this program.
    pub(super) fn plan(
        &mut self,
        g: &mut FusionPlan<'_, '_>,
        base: usize,
        in_loop: bool,
        skip: &[usize],
        reuse: &BufferReuse,
    ) -> Result<(ExecutionPlan, usize)> {
        let flow = g.program;
        // nested programs come first: their slots follow, and this arena has space for theirs
        let mut nested: Vec<Option<NestedPlan>> = Vec::with_capacity(flow.ops.len());
        for k in 0..flow.ops.len() {
            nested.push(self.plan_control(flow, k, base, reuse)?);
        }
        self.build_plan(g, base, in_loop, skip, reuse, nested)
    }

    /// Builds the plan around nested plans.
    /// This is a separate function because it has many variables: the stack of nested programs has
    /// only the small frames of `plan`.
    #[inline(never)]
    fn build_plan(
        &mut self,
        g: &mut FusionPlan<'_, '_>,
        base: usize,
        in_loop: bool,
        skip: &[usize],
        reuse: &BufferReuse,
        mut nested: Vec<Option<NestedPlan>>,
    ) -> Result<(ExecutionPlan, usize)> {
        let flow = g.program;
        let n = g.groups.len();
        let same: Vec<Option<Slot>> = (0..n).map(|k| matmul_alias(g, k, &reuse.overwrites[k])).collect();
        let mut folds: Vec<Option<(Arc<ReductionKernel>, Option<u32>)>> = vec![None; n];
        for (k, group) in g.groups.iter().enumerate() {
            if let FusionRoot::Reduction(_) = group.root {
                let f = Arc::new(reduction::bind(g, k, base as u32, in_loop)?);
                let spans = f.has_second_stage().then(|| self.add_slot(BufferLocation::None));
                folds[k] = Some((f, spans));
            }
        }
        let mut maps: Vec<Option<PlanNode>> = Vec::with_capacity(n);
        for (k, group) in g.groups.iter().enumerate() {
            let runs = group.root == FusionRoot::Elementwise && !group.merged && !skip.contains(&k);
            let node = || elementwise_node(g, k, base as u32, in_loop, &reuse.overwrites[k]);
            maps.push(runs.then(node).transpose()?);
        }
        // (no row fusion in loops, because carries change their location in each iteration)
        let chains = match in_loop {
            true => Vec::new(),
            false => BoundGroups {
                maps: &maps,
                reductions: &folds,
                gathers: &row_fusion::bind_gathers(g, base as u32, &reuse.scatter_chains),
                scatters: &row_fusion::bind_scatters(
                    g,
                    base as u32,
                    &reuse.scatter_chains,
                    thread_pool::thread_pool().num_workers() as i64,
                ),
                aliases: &same,
                bind_matmul: &|g, k| matmul::bind(g, k, base as u32, same[k], &reuse.overwrites[k]).ok(),
                base,
                locations: &self.locations,
            }
            .find_chains(g, |k| skip.contains(&k) || !reuse.overwrites[k].is_empty()),
        };
        let mut row_kernels: Vec<Option<(Arc<BoundRowKernel>, Option<u32>)>> = vec![None; flow.ops.len()];
        for (item, row_kernel_entry) in flow.ops.iter().zip(&mut row_kernels) {
            if let BufferOp::RowKernel(l) = item {
                let k = Arc::new(row_kernel::bind(
                    flow,
                    l,
                    base as u32,
                    thread_pool::thread_pool().num_workers() as i64,
                ));
                let scratch_slot = k.num_second_stage_tasks().map(|_| self.add_slot(BufferLocation::None));
                *row_kernel_entry = Some((k, scratch_slot));
            }
        }
        let top = g.groups.iter().map(|g| g.level).max().unwrap_or(0);
        let mut requests = self.alloc_requests(g, base, &same, skip, &reuse.scatter_chains);
        let scratch_slots: HashSet<usize> =
            chains.iter().flat_map(|c| &c.scratch).map(|(s, _)| base + s).collect();
        requests.retain(|w| !matches!(w.owner, AllocOwner::Slot(s) if scratch_slots.contains(&s)));
        for (k, n) in nested.iter().enumerate() {
            if let Some(n) = n {
                let level = g.op_level(k);
                requests.push(AllocRequest {
                    first_level: level,
                    last_level: level,
                    bytes: n.arena_bytes,
                    owner: AllocOwner::Op(k),
                });
            }
        }
        for (group, fold) in g.groups.iter().zip(&folds) {
            if let Some((f, Some(spans))) = fold {
                let (level, what) = (group.level, AllocOwner::Slot(*spans as usize));
                requests.push(AllocRequest {
                    first_level: level,
                    last_level: level,
                    bytes: f.scratch_bytes(),
                    owner: what,
                });
            }
        }
        for (k, bound_kernel) in row_kernels.iter().enumerate() {
            if let Some((l, Some(scratch_slot))) = bound_kernel {
                let (level, what) = (g.op_level(k), AllocOwner::Slot(*scratch_slot as usize));
                requests.push(AllocRequest {
                    first_level: level,
                    last_level: level,
                    bytes: l.scratch_bytes(),
                    owner: what,
                });
            }
        }
        let spare: Vec<FreeBlock> = reuse.free_blocks.iter().map(|s| s.1).collect();
        let mut scratch_locations: Vec<Option<BufferLocation>> = vec![None; flow.ops.len()];
        let arena = arena::assign_offsets(&spare, requests, |request, at| {
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
                AllocOwner::Op(k) => {
                    scratch_locations[k] = Some(location);
                    if let Some(n) = &nested[k] {
                        self.relocate(n.slots.clone(), location);
                    }
                }
            }
        });
        #[cfg(debug_assertions)]
        super::verify::assert_disjoint(super::verify::lifetimes(
            g,
            &self.locations[base..],
            &nested,
            &scratch_locations,
            &reuse.scatter_chains,
        ));
        let mut levels: Vec<[Vec<PlanNode>; 2]> = (0..top).map(|_| [Vec::new(), Vec::new()]).collect();
        let chained = row_fusion::chain_positions(&chains);
        let mut pieces: Vec<Vec<Option<PlanNode>>> =
            chains.iter().map(|c| vec![None; c.groups.len()]).collect();
        for (k, group) in g.groups.iter().enumerate() {
            if group.merged || skip.contains(&k) {
                continue;
            }
            let list = &mut levels[group.level as usize - 1];
            match group.root {
                FusionRoot::Elementwise => list[0].extend(maps[k].take()),
                FusionRoot::Matmul(item) => {
                    let p = matmul::bind(g, k, base as u32, same[k], &reuse.overwrites[k])?;
                    let what =
                        node_info(flow, "product", &[g.reduction_loops(item).out], group.members.len());
                    let (chunks, cost) = (p.num_tasks(), p.cost_us);
                    list[0].push(PlanNode {
                        kernel: NodeKernel::Matmul(Box::new(p)),
                        num_tasks: chunks,
                        cost_us: cost,
                        info: what,
                    });
                }
                FusionRoot::Reduction(item) => {
                    let Some((f, spans)) = folds[k].take() else { continue };
                    let out = g.reduction_op(item);
                    let what =
                        node_info(flow, reduction_name(out.reducer), &[out.loops.out], group.members.len());
                    if let Some(spans) = spans {
                        let kernel = NodeKernel::ReductionEnd(f.clone(), spans);
                        let what = NodeInfo { name: "results of spans", ..what.clone() };
                        list[1].push(PlanNode {
                            kernel,
                            num_tasks: f.num_second_stage_tasks(),
                            cost_us: 0.5,
                            info: what,
                        });
                    }
                    let (chunks, cost) = (f.num_tasks(), f.cost_us);
                    list[0].push(PlanNode {
                        kernel: NodeKernel::Reduction(f, spans),
                        num_tasks: chunks,
                        cost_us: cost,
                        info: what,
                    });
                }
                FusionRoot::Standalone(item) => match (nested[item].take(), row_kernels[item].take()) {
                    (_, Some((l, scratch_slot))) => {
                        let what = node_info(flow, "row kernel", &flow.ops[item].results(), 0);
                        let (chunks, cost) = (l.num_tasks, l.cost_us);
                        if let (Some(scratch_slot), Some(chunks)) = (scratch_slot, l.num_second_stage_tasks())
                        {
                            let (kernel, cost) =
                                (NodeKernel::RowKernelEnd(l.clone(), scratch_slot), l.second_stage_cost_us());
                            let what = NodeInfo { name: "chunks of a row kernel", ..what.clone() };
                            list[1].push(PlanNode { kernel, num_tasks: chunks, cost_us: cost, info: what });
                        }
                        list[0].push(PlanNode {
                            kernel: NodeKernel::RowKernel(l, scratch_slot),
                            num_tasks: chunks,
                            cost_us: cost,
                            info: what,
                        });
                    }
                    (Some(n), _) => {
                        let (cost, name) = control::control_cost(&n.kernel);
                        let what = node_info(flow, name, &flow.ops[item].results(), 0);
                        list[0].push(PlanNode { kernel: n.kernel, num_tasks: 1, cost_us: cost, info: what });
                    }
                    (None, None) => {
                        let over = !reuse.overwrites[k].is_empty();
                        if let Some(node) = self.standalone_node(
                            flow,
                            &flow.ops[item],
                            base as u32,
                            over,
                            &reuse.scatter_chains,
                        ) {
                            list[0].push(node);
                        }
                    }
                },
            }
            if let Some((c, at)) = chained.get(&k) {
                pieces[*c][*at] = list[0].pop();
            }
        }
        for (chain, pieces) in chains.iter().zip(pieces) {
            let level = g.groups[chain.groups[0]].level as usize - 1;
            levels[level][0].push(chain.fused_node(pieces.into_iter().flatten().collect(), base));
        }
        let mut plan = ExecutionPlan { levels: Vec::new(), cost_us: 0.0, in_loop };
        for nodes in levels.into_iter().flatten() {
            let (control, plain): (Vec<PlanNode>, Vec<PlanNode>) =
                nodes.into_iter().partition(|n| n.kernel.is_control());
            for nodes in
                std::iter::once(plain).chain(control.into_iter().map(|n| vec![n])).filter(|n| !n.is_empty())
            {
                plan.cost_us += nodes.iter().map(|n| n.cost_us).sum::<f64>();
                let chunks = nodes.iter().map(|n| n.num_tasks).sum();
                plan.levels.push(PlanLevel { id: self.num_levels, nodes, num_tasks: chunks });
                self.num_levels += 1;
            }
        }
        Ok((plan, arena))
    }

    /// Returns the allocation requests of values that are stored and have no location yet.
    fn alloc_requests(
        &self,
        g: &FusionPlan<'_, '_>,
        base: usize,
        same: &[Option<Slot>],
        skip: &[usize],
        puts: &ScatterChains,
    ) -> Vec<AllocRequest<AllocOwner>> {
        let flow = g.program;
        let mut last = vec![0u32; flow.values.len()];
        for (k, item) in flow.ops.iter().enumerate() {
            let level = g.op_level(k);
            for s in item.sources() {
                let root = flow.alias_root(s);
                last[root] = last[root].max(level);
            }
        }
        let mut requests = Vec::new();
        for (s, last) in last.iter().enumerate() {
            let Some(d) = g.defs[s] else { continue };
            let elsewhere = flow.alias_root(s) != s || puts.last_value(s) != s;
            if self.locations[base + s] != BufferLocation::None || elsewhere || skip.contains(&d.group) {
                continue;
            }
            let head = matches!(g.groups[d.group].root, FusionRoot::Matmul(k) if k == d.op)
                && same[d.group].is_none();
            if g.materialized[s] || head {
                let begun = g.defs[puts.first_value(s)].map_or(d.group, |d| d.group);
                let from = g.groups[begun].level;
                let what = AllocOwner::Slot(base + s);
                requests.push(AllocRequest {
                    first_level: from,
                    last_level: (*last).max(from),
                    bytes: value_bytes(flow, s),
                    owner: what,
                });
            }
        }
        requests
    }

    /// Returns the node of an unfused operation; `over` is true if it overwrites its operand.
    fn standalone_node(
        &self,
        flow: &BufferProgram<'_>,
        item: &BufferOp<'_>,
        base: u32,
        over: bool,
        puts: &ScatterChains,
    ) -> Option<PlanNode> {
        let slot = |s: Slot| flow.alias_root(s) as u32 + base;
        match item {
            BufferOp::GatherScatter(s) => {
                let over = over || s.scatter_init_value(flow).is_some_and(|was| puts.is_in_place(was, s.out));
                let slot_index = |s: Slot| puts.last_value(flow.alias_root(s)) as u32 + base;
                let k = gather_scatter::bind(
                    flow,
                    s,
                    &slot_index,
                    over,
                    thread_pool::thread_pool().num_workers() as i64,
                );
                let name = match s.scatter {
                    None => "gather",
                    Some(_) if over => "scatter",
                    Some(_) => "copy and scatter",
                };
                let what = node_info(flow, name, &[s.out], 0);
                let (chunks, cost) = (k.num_tasks, k.cost_us);
                Some(PlanNode {
                    kernel: NodeKernel::GatherScatter(Box::new(k)),
                    num_tasks: chunks,
                    cost_us: cost,
                    info: what,
                })
            }
            BufferOp::Pack { out, fill, parts } => {
                let v = &flow.values[*out];
                let size = v.dtype.size() as i64;
                // (a box that covers nothing may have any offset)
                let scale =
                    |(o, st): &(i64, LoopVec)| (o.saturating_mul(size), st.map(|s| s.saturating_mul(size)));
                let part = |p: &CopyBox| BoundCopyBox {
                    from: match p.from {
                        Source::Value(s) => CopySource::Slot(slot(s)),
                        Source::Const(c) => CopySource::Bits(values::scalar_bits(v.dtype, c)),
                    },
                    ext: p.ext,
                    src: scale(&p.src),
                    dst: scale(&p.dst),
                };
                let elements = v.shape.num_elements();
                let k = PackKernel {
                    out: slot(*out),
                    elements,
                    element_bytes: size as usize,
                    fill: values::scalar_bits(v.dtype, *fill),
                    boxes: parts.iter().map(part).collect(),
                };
                let what = node_info(flow, "strided copy", &[*out], 0);
                let cost = elements as f64 * 1e-3;
                Some(PlanNode {
                    kernel: NodeKernel::Pack(Box::new(k)),
                    num_tasks: 1,
                    cost_us: cost,
                    info: what,
                })
            }
            BufferOp::Print { template, values, manual, mesh } => {
                let value = |(s, printed): &(Slot, &PrintOperand)| {
                    let v = &flow.values[*s];
                    PrintValue {
                        slot: slot(*s),
                        dtype: printed.dtype,
                        shape: v.shape.clone(),
                        hidden: printed.hidden.clone(),
                    }
                };
                let values = values.iter().map(value).collect();
                let k = PrintKernel {
                    template: template.to_string(),
                    values,
                    manual: Axes::clone(manual),
                    mesh: mesh.cloned(),
                };
                let what = node_info(flow, "print", &[], 0);
                Some(PlanNode {
                    kernel: NodeKernel::Print(Box::new(k)),
                    num_tasks: 1,
                    cost_us: 10.0,
                    info: what,
                })
            }
            _ => None,
        }
    }
}

/// Returns the value in whose memory a matmul is computed, if its own value is not stored.
/// The other value is one that the epilogue stores, unless the epilogue stores it over an operand.
fn matmul_alias(g: &FusionPlan<'_, '_>, group: usize, over: &[(Slot, Slot)]) -> Option<Slot> {
    let FusionRoot::Matmul(p) = g.groups[group].root else { return None };
    let (flow, out) = (g.program, g.reduction_loops(p).out);
    if g.materialized[out] {
        return None;
    }
    let size = |s: Slot| flow.values[s].dtype.size();
    let fits = |o: &Slot| g.materialized[*o] && size(*o) == size(out) && over.iter().all(|x| x.0 != *o);
    g.groups[group].members.iter().map(|m| g.elementwise_op(m.op).out).find(fits)
}

/// Returns the name of a reduction in reports.
fn reduction_name(combine: Reducer) -> &'static str {
    match combine {
        Reducer::Add => "sum",
        Reducer::Mul => "product over",
        Reducer::Max => "max",
        Reducer::Min => "min",
        Reducer::And => "all",
        Reducer::Or => "any",
        Reducer::AssumeEqual => "one",
    }
}

/// Describes a node that computes these values, with `maps` fused operations.
fn node_info(flow: &BufferProgram<'_>, name: &'static str, makes: &[Slot], maps: usize) -> NodeInfo {
    let one = |s: &Slot| (*s, flow.values[*s].dtype, flow.values[*s].shape.clone());
    let step =
        makes.iter().find_map(|s| flow.values[*s].origin).map(|(why, combines)| (why.clone(), combines));
    NodeInfo { name, results: makes.iter().map(one).collect(), num_maps: maps, origin: step }
}

/// Returns the node of an elementwise group.
fn elementwise_node(
    g: &FusionPlan<'_, '_>,
    group: usize,
    base: u32,
    in_loop: bool,
    over: &[(Slot, Slot)],
) -> Result<PlanNode> {
    let (lo, hi, n) = segments::iteration_space(g, group);
    let order: Vec<usize> = (0..n).filter(|d| hi[*d] - lo[*d] != 1).collect();
    let outs: Vec<Slot> = g.groups[group]
        .members
        .iter()
        .map(|m| g.elementwise_op(m.op).out)
        .filter(|o| g.materialized[*o])
        .collect();
    let large = |o: &Slot| value_bytes(g.program, *o) >= 16 << 20;
    let stream = !in_loop
        && over.is_empty()
        && outs.len() == 1
        && outs.iter().all(large)
        && g.program.outs.iter().any(|o| g.program.alias_root(*o) == outs[0]);
    let ask = CodegenRequest { order: &order, stream, alias: None, overwrites: over, slot_base: base };
    let mut t = segments::tile_program(g, group, &ask)?;
    t.collapse_dims();
    let size = t.elements();
    let (mut operands, mut calls) = (1, 0.0);
    for b in &t.boxes {
        let rows: i64 = (0..t.rank - 1).map(|d| b.hi[d] - b.lo[d]).product();
        for s in &b.segments {
            operands = operands.max(s.mems.iter().map(|m| m.element_bytes as usize).sum());
            let tiles = (s.hi - s.lo + t.tile_elements - 1) / t.tile_elements;
            calls += rows as f64 * (tiles as f64 * (s.tile_code.len() + 2) as f64 + s.row_code.len() as f64);
        }
    }
    let cost =
        (size as f64 * t.ns_per_element + 3.0 * calls).max(size as f64 * operands as f64 / 60.0) / 1000.0;
    let workers = thread_pool::thread_pool().num_workers() as i64;
    let requested_tasks = match in_loop {
        true if cost < 3.0 => 1,
        true if cost < 1000.0 => workers,
        true => 16 * workers,
        false => ((cost / 20.0) as i64).clamp(1, 512),
    };
    let split = match t.ext[0] >= requested_tasks.min(8) {
        true => 0,
        false => (0..t.rank).max_by_key(|d| t.ext[*d]).unwrap_or(0),
    };
    let quantum = if split == t.rank - 1 { 512 } else { 1 };
    let step = ((t.ext[split] + requested_tasks - 1) / requested_tasks).max(1);
    let step = (step + quantum - 1) / quantum * quantum;
    let chunks = ((t.ext[split] + step - 1) / step).max(1);
    let name = if stream { "streamed tiles" } else { "tiles" };
    let members = &g.groups[group].members;
    let mut what = node_info(g.program, name, &outs, members.len());
    if what.origin.is_none() {
        let made = members.iter().find_map(|m| g.program.values[g.elementwise_op(m.op).out].origin);
        what.origin = made.map(|(why, combines)| (why.clone(), combines));
    }
    Ok(PlanNode {
        kernel: NodeKernel::Tiles { tiles: Box::new(t), split, step },
        num_tasks: chunks,
        cost_us: cost,
        info: what,
    })
}
