//! Execution plans: where values are in memory, and the levels of nodes that compute them.
//!
//! The nodes of a level are independent of one another, and a barrier separates two levels. The
//! submodules implement the passes 6 to 9: `bind` binds groups to memory, `allocate` finds memory
//! for their values, and `build` calls them and schedules the nodes. `row_fusion` and
//! `fused_kernel` fuse rows, `row_exec` executes them, and `control` plans nested programs.
//! `verify` checks, in debug builds, that memory is shared only where it may be.

mod allocate;
mod bind;
mod build;
mod control;
mod fused_kernel;
mod planner;
mod print;
mod row_exec;
mod row_fusion;
#[cfg(debug_assertions)]
mod verify;

use super::task_kernel::{KernelStage, TaskKernel};
use crate::core::{Axes, DType, Mesh, Shape};
pub(crate) use crate::partition::fusion::{ResultPlan, reuse::DonatedBuffer, reuse::DonationPurpose};
use crate::partition::{Slot, StepOrigin};
pub(crate) use build::compile;
use smallvec::{SmallVec, smallvec};
use std::fmt;
use std::sync::Arc;

/// The memory of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum BufferLocation {
    /// The slot is never in memory.
    None,
    /// The buffer of an argument, by number.
    Argument(usize),
    /// A fresh buffer, by number.
    Result(usize),
    /// The arena, from this byte on.
    Arena(usize),
    /// A donated argument, as an index into `donated`, and an offset in bytes.
    Donated(usize, usize),
    /// Memory that control flow sets in each iteration.
    LoopControlled,
}

/// The reason why the memory of a donated argument is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum IdleDonation {
    /// The argument has no elements.
    Empty,
    /// The argument, or a part of it, is this result, by number.
    Returned(usize),
    /// No result or intermediate value can take its memory.
    NoFit,
}

impl fmt::Display for IdleDonation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdleDonation::Empty => f.write_str("it has no elements"),
            IdleDonation::Returned(k) => write!(f, "result {k} is this argument or a part of it"),
            IdleDonation::NoFit => f.write_str("no result or intermediate value can take its memory"),
        }
    }
}

/// A loop with a known trip count, with slots of the outermost plan.
#[derive(Debug)]
pub(crate) struct LoopKernel {
    /// The plan of the body.
    pub(crate) body: ExecutionPlan,
    /// The slot of the iteration number.
    pub(crate) iteration: u32,
    /// The number of the first iteration.
    pub(crate) start: i64,
    /// The trip count.
    pub(crate) length: usize,
    /// True if the iterations run from last to first.
    pub(crate) reverse: bool,
    /// The loop-invariant inputs, as (outer slot, inner slot).
    pub(crate) fixed: Vec<(u32, u32)>,
    /// The loop-carried values.
    pub(crate) carry: Vec<CarryBuffers>,
    /// The sliced inputs, as (outer slot, inner slot, bytes of a slice).
    pub(crate) xs: Vec<(u32, u32, usize)>,
    /// The stacked results, as (inner slot, outer slot, bytes of a slice).
    pub(crate) ys: Vec<(u32, u32, usize)>,
}

/// The buffers of a loop-carried value.
/// The value alternates between the buffer of the final value and `alternate`, or is updated in
/// place if there is no alternate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarryBuffers {
    /// The outer slot of the initial value.
    pub(crate) init: u32,
    /// The inner slot that an iteration reads.
    pub(crate) body_in: u32,
    /// The inner slot that an iteration writes.
    pub(crate) body_out: u32,
    /// The outer slot of the final value.
    pub(crate) result: u32,
    /// The slot of the alternate buffer; `None` if the value is updated in place.
    pub(crate) alternate: Option<u32>,
    /// True if an iteration writes a part of the value only, so that the loop starts with a copy of
    /// the initial value.
    pub(crate) starts_from_copy: bool,
    /// The size of the value, in bytes.
    pub(crate) bytes: usize,
}

/// A loop that runs while a condition holds.
#[derive(Debug)]
pub(crate) struct WhileKernel {
    /// The plan of the condition.
    pub(crate) cond: ExecutionPlan,
    /// The plan of the body.
    pub(crate) body: ExecutionPlan,
    /// The loop-invariant inputs of condition and body, as (outer slot, inner slot).
    pub(crate) fixed: Vec<(u32, u32)>,
    /// The slots of the carries inside the condition.
    pub(crate) cond_carry: Vec<u32>,
    /// The loop-carried values.
    pub(crate) carry: Vec<CarryBuffers>,
    /// The slot of the condition's result.
    pub(crate) test: u32,
    /// The number of its elements: the loop runs while any of them is true.
    pub(crate) test_elements: usize,
}

/// A choice among several plans.
#[derive(Debug)]
pub(crate) struct BranchKernel {
    /// The slot of the selector.
    pub(crate) selector: u32,
    /// The element type of the selector.
    pub(crate) dtype: DType,
    /// The plans.
    pub(crate) arms: Vec<ExecutionPlan>,
    /// For each plan, the (outer, inner) slots of its inputs, then those of its results.
    pub(crate) wires: Vec<Vec<(u32, u32)>>,
}

/// A debug print.
#[derive(Clone, Debug)]
pub(crate) struct PrintKernel {
    /// The text, with `{}` for each value.
    pub(crate) template: String,
    /// The values.
    pub(crate) values: Vec<PrintValue>,
    /// The manual axes of the region that prints.
    pub(crate) manual: Axes,
    /// The mesh of the program; `None` if the program has no mesh.
    pub(crate) mesh: Option<Mesh>,
}

/// A value to print.
#[derive(Clone, Debug)]
pub(crate) struct PrintValue {
    /// The slot.
    pub(crate) slot: u32,
    /// The element type as the user knows it; keys are stored as integers.
    pub(crate) dtype: DType,
    /// The shape.
    pub(crate) shape: Shape,
    /// The manual axes of its hidden dimensions.
    pub(crate) hidden: Axes,
}

/// Control flow, which all workers enter together.
#[derive(Debug)]
pub(crate) enum ControlKernel {
    /// A loop with a known trip count.
    Loop(LoopKernel),
    /// A loop that runs while a condition holds.
    While(WhileKernel),
    /// A choice among several plans.
    Branch(BranchKernel),
}

impl ControlKernel {
    /// Returns the nested plans, in the order in which they are listed in reports.
    pub(crate) fn nested_plans(&self) -> SmallVec<[&ExecutionPlan; 2]> {
        match self {
            ControlKernel::Loop(l) => smallvec![&l.body],
            ControlKernel::While(w) => smallvec![&w.cond, &w.body],
            ControlKernel::Branch(b) => b.arms.iter().collect(),
        }
    }
    /// Returns the nested plans, as [`nested_plans`](Self::nested_plans).
    pub(crate) fn nested_plans_mut(&mut self) -> SmallVec<[&mut ExecutionPlan; 2]> {
        match self {
            ControlKernel::Loop(l) => smallvec![&mut l.body],
            ControlKernel::While(w) => smallvec![&mut w.cond, &mut w.body],
            ControlKernel::Branch(b) => b.arms.iter_mut().collect(),
        }
    }
}

/// The kernel of a node.
#[derive(Debug)]
pub(crate) enum NodeKernel {
    /// A stage of a kernel that runs as independent tasks.
    Task(Arc<dyn TaskKernel>, KernelStage),
    /// A debug print, which the engine runs.
    Print(Box<PrintKernel>),
    /// Control flow with nested plans, which the engine runs.
    Control(Box<ControlKernel>),
}

/// The description of a node, for reports.
#[derive(Clone, Debug)]
pub(crate) struct NodeInfo {
    /// The kind of the node, in a word or two.
    pub(crate) name: &'static str,
    /// The values that it computes: slot, element type and shape.
    pub(crate) results: SmallVec<[(Slot, DType, Shape); 1]>,
    /// The number of fused elementwise operations.
    pub(crate) num_maps: usize,
    /// The origin of its first value's step, and true if the step combines partials of devices.
    pub(crate) origin: Option<(StepOrigin, bool)>,
}

impl fmt::Display for NodeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (k, (slot, dtype, shape)) in self.results.iter().enumerate() {
            write!(f, "{} %{slot} {}{shape}", if k == 0 { "" } else { "," }, dtype.short_name())?;
        }
        match self.num_maps {
            0 => Ok(()),
            1 => f.write_str(" with 1 map"),
            n => write!(f, " with {n} maps"),
        }
    }
}

impl PlanNode {
    /// Returns the control flow of the node, if it is control flow.
    pub(crate) fn control(&self) -> Option<&ControlKernel> {
        match &self.kernel {
            NodeKernel::Control(k) => Some(k),
            NodeKernel::Task(..) | NodeKernel::Print(_) => None,
        }
    }
    /// Returns the implementation of the kernel and the reason for it, if there are several.
    pub(crate) fn implementation(&self) -> Option<&'static str> {
        match &self.kernel {
            NodeKernel::Task(k, _) => k.implementation(),
            NodeKernel::Print(_) | NodeKernel::Control(_) => None,
        }
    }
    /// Returns the plans that are nested in the node.
    pub(crate) fn nested_plans(&self) -> SmallVec<[&ExecutionPlan; 2]> {
        self.control().map_or_else(SmallVec::new, ControlKernel::nested_plans)
    }
}

impl PlanLevel {
    /// Returns true if all workers that execute the level in a nested plan pass a barrier.
    fn has_barrier(&self) -> bool {
        let control = if let [n] = &self.nodes[..] { n.control() } else { None };
        !matches!(control, Some(ControlKernel::Loop(l)) if l.length == 0 || !l.body.has_barrier())
    }
}

impl ExecutionPlan {
    /// Returns true if no level has more than one task, so that more workers would only wait.
    pub(crate) fn is_sequential(&self) -> bool {
        let one =
            |n: &PlanNode| n.num_tasks <= 1 && n.nested_plans().into_iter().all(ExecutionPlan::is_sequential);
        self.levels.iter().all(|l| l.nodes.len() == 1 && l.nodes.iter().all(one))
    }
    /// Returns true if all workers that run this as a nested plan pass at least one barrier.
    pub(crate) fn has_barrier(&self) -> bool {
        self.levels.iter().any(PlanLevel::has_barrier)
    }
    /// Calls `visit` with all levels, including those of nested plans.
    pub(crate) fn visit_levels<'a>(&'a self, visit: &mut dyn FnMut(&'a PlanLevel)) {
        for level in &self.levels {
            visit(level);
            level.nodes.iter().flat_map(PlanNode::nested_plans).for_each(|p| p.visit_levels(visit));
        }
    }
}

/// A kernel and its tasks.
#[derive(Debug)]
pub(crate) struct PlanNode {
    /// The kernel.
    pub(crate) kernel: NodeKernel,
    /// The number of independent tasks.
    pub(crate) num_tasks: i64,
    /// The approximate cost, in microseconds.
    pub(crate) cost_us: f64,
    /// The description, for reports.
    pub(crate) info: NodeInfo,
}

/// Independent nodes, or one node of control flow.
#[derive(Debug)]
pub(crate) struct PlanLevel {
    /// The number among all levels, including those of nested plans.
    pub(crate) id: usize,
    /// The nodes.
    pub(crate) nodes: Vec<PlanNode>,
    /// The number of tasks of all nodes.
    pub(crate) num_tasks: i64,
}

/// The levels of a program, in order.
#[derive(Debug, Default)]
pub(crate) struct ExecutionPlan {
    /// The levels.
    pub(crate) levels: Vec<PlanLevel>,
    /// The approximate cost, in microseconds.
    pub(crate) cost_us: f64,
    /// True if it is nested in control flow.
    pub(crate) in_loop: bool,
}

/// A compiled program, ready to run.
#[derive(Debug)]
pub(crate) struct CompiledPlan {
    /// The plan.
    pub(crate) plan: ExecutionPlan,
    /// The location of each slot.
    pub(crate) locations: Vec<BufferLocation>,
    /// The guards after values of the arena, by slot, with their sizes in bytes. There are none
    /// unless AddressSanitizer is used.
    pub(crate) guards: Vec<(u32, usize)>,
    /// The size of the arena, in bytes.
    pub(crate) arena_bytes: usize,
    /// The memory of each result.
    pub(crate) results: Vec<ResultPlan>,
    /// The size of each fresh buffer, in bytes.
    pub(crate) fresh_bytes: Vec<usize>,
    /// The donated arguments whose memory is written.
    pub(crate) donated: Vec<DonatedBuffer>,
    /// The donated arguments whose memory is not written, by number.
    pub(crate) idle_donations: Vec<(usize, IdleDonation)>,
    /// The number of levels, including those of nested plans.
    pub(crate) num_levels: usize,
}
