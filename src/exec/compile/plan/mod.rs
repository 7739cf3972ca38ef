//! Execution plans: where values are in memory, and the levels of nodes that compute them.
//!
//! The nodes of a level are independent of one another, and a barrier separates two levels. The
//! submodules implement the passes 4 and 6 to 9: `result_views`, `reuse` and `scatter_chains` share
//! memory, `build` binds groups, allocates memory and schedules the nodes, `row_fusion` and
//! `matmul_fusion` fuse rows, and `control` plans nested programs. `row_exec` executes fused rows,
//! and `verify` checks lifetimes.

mod build;
mod control;
mod matmul_fusion;
mod result_views;
mod reuse;
mod row_exec;
mod row_fusion;
mod scatter_chains;
#[cfg(debug_assertions)]
mod verify;

use super::gather_scatter::GatherScatterKernel;
use super::index::LoopVec;
use super::matmul::MatmulKernel;
use super::reduction::ReductionKernel;
use super::row_kernel::BoundRowKernel;
use crate::core::mesh::{Axes, Mesh};
use crate::core::types::{DType, Shape};
use crate::exec::compile::codegen::tile_program::TileProgram;
use crate::partition::{Slot, StepOrigin};
pub(crate) use build::compile;
pub(crate) use row_exec::RowFusionKernel;
use smallvec::SmallVec;
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

/// The memory of a result.
#[derive(Clone, Debug)]
pub(crate) enum ResultPlan {
    /// A fresh buffer, by number.
    Fresh(usize),
    /// A donated argument, as an index into `donated`.
    Donated(usize),
    /// The buffer of an argument, by number.
    Argument(usize),
    /// Blocks of an argument: their size and the offset of each, in bytes.
    View { arg: usize, block: usize, blocks: Arc<[usize]> },
}

/// A donated argument whose memory is written.
/// A fresh buffer is used instead if the caller still holds the argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DonatedBuffer {
    /// The number of the argument.
    pub(crate) arg: usize,
    /// The size, in bytes.
    pub(crate) bytes: usize,
    /// The use of its memory.
    pub(crate) purpose: DonationPurpose,
}

/// The use of the memory of a donated argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DonationPurpose {
    /// The memory of a result.
    Result,
    /// One of the two buffers of a loop-carried value.
    Carry,
    /// Scratch for intermediate values.
    Scratch,
}

impl fmt::Display for DonationPurpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DonationPurpose::Result => "a result",
            DonationPurpose::Carry => "a buffer of a loop's carry",
            DonationPurpose::Scratch => "scratch for intermediate values",
        })
    }
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

/// A copy of strided boxes, which runs on one thread.
#[derive(Clone, Debug)]
pub(crate) struct PackKernel {
    /// The slot of the result.
    pub(crate) out: u32,
    /// The number of elements of the result.
    pub(crate) elements: usize,
    /// The size of an element, in bytes.
    pub(crate) element_bytes: usize,
    /// The bits of elements that no box covers.
    pub(crate) fill: u128,
    /// The boxes.
    pub(crate) boxes: Vec<BoundCopyBox>,
}

/// A box to copy; offsets and strides are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct BoundCopyBox {
    /// The source.
    pub(crate) from: CopySource,
    /// The sizes of the box.
    pub(crate) ext: LoopVec,
    /// The offset and the strides in the source.
    pub(crate) src: (i64, LoopVec),
    /// The offset and the strides in the result.
    pub(crate) dst: (i64, LoopVec),
}

/// The source of a box: a slot, or the same bits everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopySource {
    /// A slot.
    Slot(u32),
    /// Equal bits for every element.
    Bits(u128),
}

/// A loop with a known trip count, with slots of the outermost plan.
#[derive(Clone, Debug)]
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
    /// The size of the value, in bytes.
    pub(crate) bytes: usize,
}

/// A loop that runs while a condition holds.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
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

/// The kernel of a node.
#[derive(Clone, Debug)]
pub(crate) enum NodeKernel {
    /// An elementwise tile program; a task has `step` indices of dimension `split`.
    Tiles { tiles: Box<TileProgram>, split: usize, step: i64 },
    /// A matmul with its epilogue.
    Matmul(Box<MatmulKernel>),
    /// A reduction; if it has two stages, its spans, whose results are in this slot.
    Reduction(Arc<ReductionKernel>, Option<u32>),
    /// The second stage of a reduction, which combines the results of spans.
    ReductionEnd(Arc<ReductionKernel>, u32),
    /// A chain of kernels that runs a batch of rows at a time.
    RowFusion(Box<RowFusionKernel>),
    /// A copy of strided boxes.
    Pack(Box<PackKernel>),
    /// A row kernel; if it has two stages, the first, which fills this slot.
    RowKernel(Arc<BoundRowKernel>, Option<u32>),
    /// The second stage of a row kernel.
    RowKernelEnd(Arc<BoundRowKernel>, u32),
    /// A gather or a scatter.
    GatherScatter(Box<GatherScatterKernel>),
    /// A debug print.
    Print(Box<PrintKernel>),
    /// A loop with a known trip count.
    Loop(Box<LoopKernel>),
    /// A loop that runs while a condition holds.
    While(Box<WhileKernel>),
    /// A choice among several plans.
    Branch(Box<BranchKernel>),
}

impl NodeKernel {
    /// Returns true for control flow, which all workers enter together.
    pub(crate) fn is_control(&self) -> bool {
        matches!(self, NodeKernel::Loop(_) | NodeKernel::While(_) | NodeKernel::Branch(_))
    }
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

impl PlanLevel {
    /// Returns true if all workers that execute the node in a nested plan pass a barrier.
    fn has_barrier(&self) -> bool {
        match &self.nodes[..] {
            [PlanNode { kernel: NodeKernel::Loop(l), .. }] => l.length > 0 && l.body.has_barrier(),
            _ => true,
        }
    }
}
impl ExecutionPlan {
    /// Returns true if no level has more than one task, so that more workers would only wait.
    pub(crate) fn is_sequential(&self) -> bool {
        let one = |n: &PlanNode| match &n.kernel {
            NodeKernel::Loop(l) => l.body.is_sequential(),
            NodeKernel::While(w) => w.cond.is_sequential() && w.body.is_sequential(),
            NodeKernel::Branch(b) => b.arms.iter().all(ExecutionPlan::is_sequential),
            _ => n.num_tasks <= 1,
        };
        self.levels.iter().all(|l| l.nodes.len() == 1 && l.nodes.iter().all(one))
    }
    /// Returns true if all workers that run this as a nested plan pass at least one barrier.
    pub(crate) fn has_barrier(&self) -> bool {
        self.levels.iter().any(PlanLevel::has_barrier)
    }
}

/// A kernel and its tasks.
#[derive(Clone, Debug)]
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
#[derive(Clone, Debug)]
pub(crate) struct PlanLevel {
    /// The number among all levels, including those of nested plans.
    pub(crate) id: usize,
    /// The nodes.
    pub(crate) nodes: Vec<PlanNode>,
    /// The number of tasks of all nodes.
    pub(crate) num_tasks: i64,
}

/// The levels of a program, in order.
#[derive(Clone, Debug, Default)]
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
