//! Pass 6: binds the groups of a program to memory.

use super::planner::{PlanScope, Planner};
use super::{BufferLocation, NodeInfo, NodeKernel, PlanNode, PrintKernel, PrintValue, control::NestedPlan};
use crate::core::{Axes, Result};
use crate::exec::compile::elementwise::{self, ElementwiseKernel};
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::exec::compile::gather_scatter::{self, GatherScatterKernel};
use crate::exec::compile::ir::{BufferOp, BufferProgram, GatherScatterOp};
use crate::exec::compile::matmul::{self, MatmulKernel};
use crate::exec::compile::reduction::{self, ReductionKernel};
use crate::exec::compile::task_kernel::{KernelStage, TaskKernel};
use crate::exec::compile::{pack, row_kernel, windows};
use crate::exec::runtime::thread_pool;
use crate::ir::program::Reducer;
use crate::kernels::HAS_FAST_PATHS;
use crate::partition::{PrintOperand, Slot, print::reducer_name};
use std::sync::Arc;

/// The approximate cost of a print, in microseconds.
const PRINT_US: f64 = 10.0;

/// The kernel of a group. The kinds that row fusion combines have separate variants.
#[derive(Debug)]
pub(super) enum GroupKernel {
    /// An elementwise tile program.
    Elementwise(Box<ElementwiseKernel>),
    /// A matmul with its epilogue.
    Matmul(Box<MatmulKernel>),
    /// A reduction of elementwise operations.
    Reduction(Box<ReductionKernel>),
    /// A gather or a scatter.
    GatherScatter(Box<GatherScatterKernel>),
    /// Any other kernel.
    Unfused(Box<dyn TaskKernel>),
    /// A debug print.
    Print(Box<PrintKernel>),
    /// Control flow.
    Control(Box<NestedPlan>),
}

impl GroupKernel {
    /// Returns the kernel, if it runs as independent tasks.
    pub(super) fn task(&self) -> Option<&dyn TaskKernel> {
        match self {
            GroupKernel::Elementwise(k) => Some(&**k),
            GroupKernel::Matmul(k) => Some(&**k),
            GroupKernel::Reduction(k) => Some(&**k),
            GroupKernel::GatherScatter(k) => Some(&**k),
            GroupKernel::Unfused(k) => Some(&**k),
            GroupKernel::Print(_) | GroupKernel::Control(_) => None,
        }
    }
}

/// A group that is bound to memory.
#[derive(Debug)]
pub(super) struct BoundGroup {
    /// The kernel.
    pub(super) kernel: GroupKernel,
    /// The value in whose memory a matmul is computed, if its own value is not stored.
    pub(super) matmul_alias: Option<Slot>,
    /// The slot that the first of two stages fills for the second; `None` if there is one stage.
    pub(super) scratch_slot: Option<u32>,
    /// The description, for reports.
    pub(super) info: NodeInfo,
}

impl BoundGroup {
    /// Creates a group with a kernel that is not a matmul.
    fn new(kernel: GroupKernel, info: NodeInfo) -> BoundGroup {
        BoundGroup { kernel, matmul_alias: None, scratch_slot: None, info }
    }
    /// Returns the nested plan of control flow.
    pub(super) fn nested(&self) -> Option<&NestedPlan> {
        if let GroupKernel::Control(n) = &self.kernel { Some(n) } else { None }
    }
    /// Returns the node of the group, and that of the second stage, if there is one.
    pub(super) fn into_nodes(self) -> (PlanNode, Option<PlanNode>) {
        let info = self.info;
        let single = |kernel, cost_us, info| (PlanNode { kernel, num_tasks: 1, cost_us, info }, None);
        let task: Box<dyn TaskKernel> = match self.kernel {
            GroupKernel::Elementwise(k) => k,
            GroupKernel::Matmul(k) => k,
            GroupKernel::Reduction(k) => k,
            GroupKernel::GatherScatter(k) => k,
            GroupKernel::Unfused(k) => k,
            GroupKernel::Print(k) => return single(NodeKernel::Print(k), PRINT_US, info),
            GroupKernel::Control(n) => {
                let cost_us = n.kernel.cost_us();
                return single(NodeKernel::Control(Box::new(n.kernel)), cost_us, info);
            }
        };
        task_nodes(task, self.scratch_slot, info)
    }
}

/// Returns the node of a kernel, and that of its second stage, which reads `scratch_slot`.
pub(super) fn task_nodes(
    kernel: Box<dyn TaskKernel>,
    scratch_slot: Option<u32>,
    info: NodeInfo,
) -> (PlanNode, Option<PlanNode>) {
    let kernel: Arc<dyn TaskKernel> = Arc::from(kernel);
    let second = scratch_slot.zip(kernel.second_stage()).map(|(slot, stage)| PlanNode {
        kernel: NodeKernel::Task(kernel.clone(), KernelStage::Second(slot)),
        num_tasks: stage.num_tasks,
        cost_us: stage.cost_us,
        info: NodeInfo { name: stage.name, ..info.clone() },
    });
    let stage = scratch_slot.map_or(KernelStage::Only, KernelStage::First);
    let (num_tasks, cost_us) = (kernel.num_tasks(), kernel.cost_us());
    (PlanNode { kernel: NodeKernel::Task(kernel, stage), num_tasks, cost_us, info }, second)
}

impl Planner {
    /// Binds all groups that run; `nested` has the nested plans, by operation.
    pub(super) fn bind_groups(
        &mut self,
        g: &FusionPlan<'_, '_>,
        scope: &PlanScope<'_>,
        mut nested: Vec<Option<NestedPlan>>,
    ) -> Result<Vec<Option<BoundGroup>>> {
        let mut all = Vec::with_capacity(g.groups.len());
        for (k, group) in g.groups.iter().enumerate() {
            if group.merged || scope.skip.contains(&k) {
                all.push(None);
                continue;
            }
            let mut bound = match group.root {
                FusionRoot::Elementwise => bind_elementwise(g, k, scope)?,
                FusionRoot::Matmul(op) => bind_matmul(g, k, op, scope)?,
                FusionRoot::Reduction(op) => bind_reduction(g, k, op, scope)?,
                FusionRoot::Standalone(op) => bind_standalone(g, k, op, scope, nested[op].take()),
            };
            let stage = bound.kernel.task().and_then(TaskKernel::second_stage);
            bound.scratch_slot = stage.map(|_| self.add_slot(BufferLocation::None));
            all.push(Some(bound));
        }
        Ok(all)
    }
}

/// Binds an elementwise group.
fn bind_elementwise(g: &FusionPlan<'_, '_>, k: usize, scope: &PlanScope<'_>) -> Result<BoundGroup> {
    let kernel = elementwise::bind(g, k, scope.base as u32, scope.in_loop, &scope.reuse.overwrites[k])?;
    let members = &g.groups[k].members;
    let outs: Vec<Slot> = g.stored_members(k).collect();
    let mut info = node_info(g.program, kernel.name(), &outs, members.len());
    if info.origin.is_none() {
        let origin = members.iter().find_map(|m| g.program.values[g.elementwise_op(m.op).out].origin);
        info.origin = origin.map(|(step, combines)| (step.clone(), combines));
    }
    Ok(BoundGroup::new(GroupKernel::Elementwise(Box::new(kernel)), info))
}

/// Binds the group of the matmul `op`.
fn bind_matmul(g: &FusionPlan<'_, '_>, k: usize, op: usize, scope: &PlanScope<'_>) -> Result<BoundGroup> {
    let over = &scope.reuse.overwrites[k];
    let matmul_alias = scope.reuse.matmul_alias(g, k);
    let kernel = matmul::bind(g, k, scope.base as u32, matmul_alias, over)?;
    let info = node_info(g.program, "product", &[g.reduction_loops(op).out], g.groups[k].members.len());
    Ok(BoundGroup { matmul_alias, ..BoundGroup::new(GroupKernel::Matmul(Box::new(kernel)), info) })
}

/// Binds the group of the reduction `op`.
fn bind_reduction(g: &FusionPlan<'_, '_>, k: usize, op: usize, scope: &PlanScope<'_>) -> Result<BoundGroup> {
    let f = g.reduction_op(op);
    let kernel = reduction::bind(g, k, scope.base as u32, scope.in_loop)?;
    let info = node_info(g.program, reduction_name(f.reducer), &[f.loops.out], g.groups[k].members.len());
    Ok(BoundGroup::new(GroupKernel::Reduction(Box::new(kernel)), info))
}

/// Binds an operation that is not fused; `nested` has its plans, if it is control flow.
fn bind_standalone(
    g: &FusionPlan<'_, '_>,
    k: usize,
    op: usize,
    scope: &PlanScope<'_>,
    nested: Option<NestedPlan>,
) -> BoundGroup {
    let (flow, base) = (g.program, scope.base as u32);
    let describe = |name| node_info(flow, name, &flow.ops[op].results(), 0);
    if let Some(n) = nested {
        let info = describe(n.kernel.name());
        return BoundGroup::new(GroupKernel::Control(Box::new(n)), info);
    }
    match &flow.ops[op] {
        BufferOp::RowKernel(l) => {
            let kernel = row_kernel::bind(flow, l, base, num_workers());
            BoundGroup::new(GroupKernel::Unfused(Box::new(kernel)), describe("row kernel"))
        }
        BufferOp::GatherScatter(s) => bind_gather_scatter(flow, s, k, scope),
        BufferOp::Pack { out, fill, parts } => {
            let kernel = pack::bind(flow, *out, *fill, parts, base);
            BoundGroup::new(GroupKernel::Unfused(Box::new(kernel)), describe("strided copy"))
        }
        BufferOp::Window(w) => {
            if !HAS_FAST_PATHS {
                unreachable!("the lowering makes no such operation")
            }
            let kernel = windows::bind(flow, w, base);
            BoundGroup::new(GroupKernel::Unfused(Box::new(kernel)), describe(w.kind.name()))
        }
        BufferOp::Print { template, values, manual, mesh } => {
            let value = |(s, printed): &(Slot, &PrintOperand)| PrintValue {
                slot: flow.alias_root(*s) as u32 + base,
                dtype: printed.dtype,
                shape: flow.values[*s].shape.clone(),
                hidden: printed.hidden.clone(),
            };
            let kernel = PrintKernel {
                template: template.to_string(),
                values: values.iter().map(value).collect(),
                manual: Axes::clone(manual),
                mesh: mesh.cloned(),
            };
            BoundGroup::new(GroupKernel::Print(Box::new(kernel)), describe("print"))
        }
        BufferOp::Elementwise(_)
        | BufferOp::Reduction(_)
        | BufferOp::Contraction(_)
        | BufferOp::Loop(_)
        | BufferOp::While(_)
        | BufferOp::Branch(_) => unreachable!("the operation is fused, or has nested plans"),
    }
}

/// Binds a gather or a scatter, which may be computed in the memory of its initial value.
fn bind_gather_scatter(
    flow: &BufferProgram<'_>,
    s: &GatherScatterOp,
    k: usize,
    scope: &PlanScope<'_>,
) -> BoundGroup {
    let chains = &scope.reuse.scatter_chains;
    let in_place = !scope.reuse.overwrites[k].is_empty()
        || s.scatter_init_value(flow).is_some_and(|was| chains.is_in_place(was, s.out));
    let slot = |s: Slot| (chains.last_value(flow.alias_root(s)) + scope.base) as u32;
    let kernel = gather_scatter::bind(flow, s, &slot, in_place, num_workers());
    let name = match s.scatter {
        None => "gather",
        Some(_) if in_place => "scatter",
        Some(_) => "copy and scatter",
    };
    BoundGroup::new(GroupKernel::GatherScatter(Box::new(kernel)), node_info(flow, name, &[s.out], 0))
}

/// Returns the number of workers that share the tasks of a level.
fn num_workers() -> i64 {
    thread_pool::thread_pool().num_workers() as i64
}

/// Returns the name of a reduction in reports.
fn reduction_name(combine: Reducer) -> &'static str {
    if combine == Reducer::Mul { "product over" } else { reducer_name(combine) }
}

/// Describes a node that computes these values, with `maps` fused operations.
fn node_info(flow: &BufferProgram<'_>, name: &'static str, makes: &[Slot], maps: usize) -> NodeInfo {
    let one = |s: &Slot| (*s, flow.values[*s].dtype, flow.values[*s].shape.clone());
    let step =
        makes.iter().find_map(|s| flow.values[*s].origin).map(|(why, combines)| (why.clone(), combines));
    NodeInfo { name, results: makes.iter().map(one).collect(), num_maps: maps, origin: step }
}
