//! [`SpmdProgram`], the per-device program: one list of steps that all devices run.
//!
//! The program contains no per-device data: what a device does in a step follows from its position
//! in the mesh and from the layouts.

use crate::core::{Axes, DType, Mesh, Shape, SourceLocation};
use crate::ir::program::{LoopNest, Phase, Reducer, ScopePath};
use crate::partition::layout::{DimLayout, Layout};

/// The index of a stored value in [`SpmdProgram::slots`].
pub type Slot = usize;

/// A stored value: its type in memory and its layout.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredValue {
    /// The element type in memory.
    /// Keys are stored as `uint64`.
    pub dtype: DType,
    /// The global shape.
    /// In manual mode a value that varies over mesh axes has a leading dimension for each of them,
    /// split over that axis.
    pub shape: Shape,
    /// The layout of the value over the devices.
    pub layout: Layout,
}

impl StoredValue {
    /// Returns the size in bytes of the largest block that any device holds.
    pub fn block_bytes(&self) -> usize {
        self.block_shape().iter().fold(self.dtype.size(), |bytes, n| bytes.saturating_mul(*n))
    }
    /// Returns the shape of the largest block that any device holds.
    pub(crate) fn block_shape(&self) -> Shape {
        self.layout.dims.iter().zip(&self.shape[..]).map(|(l, n)| l.max_block(*n)).collect()
    }
}

/// One access of a later step that a fetch serves.
///
/// The boxes it needs follow from the layout of that step's loops: see
/// [`SpmdProgram::missing_regions`].
#[derive(Clone, Debug, PartialEq)]
pub struct FetchRequest {
    /// The index in [`SpmdProgram::steps`] of the step that reads the value.
    pub consumer_step: usize,
    /// The index of the access in that step's loop nest.
    pub access: usize,
}

/// A step of a per-device program.
/// In its [`LoopNest`], `Source::Value(k)` is slot `k`.
#[derive(Clone, Debug)]
pub enum Step {
    /// Makes elements of `src` available to later steps that need them on devices that do not hold
    /// them.
    ///
    /// A no-op on engines with shared memory.
    Fetch {
        /// The value whose elements are fetched.
        src: Slot,
        /// The accesses that need the fetched elements.
        requests: Vec<FetchRequest>,
    },
    /// Runs a loop nest on each device, over that device's box of loop indices.
    Local {
        /// The result.
        /// It is partial if a reduction loop (one with index `rank` or higher) is split.
        out: Slot,
        /// The computation.
        nest: LoopNest,
        /// The layout of each loop.
        /// The split of a reduction loop fixes the order of addition, even if the operands are
        /// replicated.
        layout: Vec<DimLayout>,
    },
    /// Combines a partial value into one that is not partial, or is partial over fewer sub-axes.
    Reduce {
        /// The partial value.
        src: Slot,
        /// The result: full, or partial over fewer sub-axes.
        out: Slot,
        /// The reducer.
        /// Partial values are combined in one fixed tree over their ranks.
        combine: Reducer,
    },
    /// A loop with a known trip count.
    ///
    /// The body's inputs are the iteration index (`int32`), the fixed inputs, the carries, and a
    /// slice of each of `xs`. Its outputs are the carries, then one slice of each of `ys`.
    Loop {
        /// The body, run once per iteration.
        body: Box<SpmdProgram>,
        /// The lowest iteration index; slice `k` of `xs` and `ys` belongs to index `start + k`.
        start: i64,
        /// The trip count.
        length: usize,
        /// True if the iterations run from the highest index to the lowest.
        reverse: bool,
        /// The inputs that are the same in each iteration.
        fixed: Vec<Slot>,
        /// The initial carries.
        carry: Vec<Slot>,
        /// The arrays that the loop slices along their leading dimension, which is unsharded.
        xs: Vec<Slot>,
        /// The final carries.
        out: Vec<Slot>,
        /// The results, stacked along a new leading dimension, which is unsharded.
        ys: Vec<Slot>,
    },
    /// A loop that runs while a condition holds.
    While {
        /// The condition.
        /// Inputs: `cond_fixed`, then the carries. Its one result is a bool that is equal on all
        /// devices, or has one element for each device along manual axes. In the second case each
        /// device runs the loop while its own element is true; iterations after that do not change
        /// its carries.
        cond: Box<SpmdProgram>,
        /// The body.
        /// Inputs: `body_fixed`, then the carries.
        body: Box<SpmdProgram>,
        /// The fixed inputs of the condition.
        cond_fixed: Vec<Slot>,
        /// The fixed inputs of the body.
        body_fixed: Vec<Slot>,
        /// The initial carries.
        carry: Vec<Slot>,
        /// The final carries.
        out: Vec<Slot>,
    },
    /// Runs one of several programs.
    Branch {
        /// The selector: a bool (true selects branch 0) or an `int32`, which is clamped.
        selector: Slot,
        /// The programs.
        /// Each has the inputs `ins`, and the results of all have the types and layouts of `out`.
        branches: Vec<SpmdProgram>,
        /// The inputs of the branches.
        ins: Vec<Slot>,
        /// The results of the branch that runs.
        out: Vec<Slot>,
    },
    /// Prints values.
    /// Under manual axes each device's block is printed, in device order.
    Print {
        /// The text, with `{}` for each value.
        template: String,
        /// The values that replace each `{}`.
        values: Vec<PrintOperand>,
        /// The manual axes of the body that prints.
        /// Empty outside `shard_map`.
        manual: Axes,
    },
}

/// A borrowed [`Step::Local`].
#[derive(Clone, Copy)]
pub(crate) struct LocalStep<'a> {
    /// The slot of the result.
    pub(crate) out: Slot,
    /// The computation.
    pub(crate) nest: &'a LoopNest,
    /// The layout of each loop.
    pub(crate) layout: &'a [DimLayout],
}

impl Step {
    /// Returns the slots that the step reads.
    pub(crate) fn inputs(&self) -> Vec<Slot> {
        match self {
            Step::Fetch { src, .. } | Step::Reduce { src, .. } => vec![*src],
            Step::Local { nest: loop_nest, .. } => {
                let mut slots = Vec::with_capacity(loop_nest.accesses.len());
                loop_nest.accesses.iter().for_each(|r| slots.extend(r.sources()));
                slots
            }
            Step::Loop { fixed, carry, xs, .. } => [&fixed[..], carry, xs].concat(),
            Step::While { cond_fixed, body_fixed, carry, .. } => {
                [&cond_fixed[..], body_fixed, carry].concat()
            }
            Step::Branch { selector: which, ins, .. } => [&[*which], &ins[..]].concat(),
            Step::Print { values, .. } => values.iter().map(|v| v.slot).collect(),
        }
    }
    /// Returns the slots that the step writes.
    pub(crate) fn outputs(&self) -> Vec<Slot> {
        match self {
            Step::Fetch { .. } | Step::Print { .. } => Vec::new(),
            Step::Local { out, .. } | Step::Reduce { out, .. } => vec![*out],
            Step::Loop { out, ys, .. } => [&out[..], ys].concat(),
            Step::While { out, .. } | Step::Branch { out, .. } => out.clone(),
        }
    }
    /// Returns the loop nest of a local step, `None` for other steps.
    pub(crate) fn loop_nest(&self) -> Option<&LoopNest> {
        self.local().map(|l| l.nest)
    }
    /// Returns the step as a [`LocalStep`] if it is local, `None` for other steps.
    pub(crate) fn local(&self) -> Option<LocalStep<'_>> {
        let Step::Local { out, nest, layout } = self else { return None };
        Some(LocalStep { out: *out, nest, layout })
    }
    /// Returns the source and the requests of a [`Step::Fetch`], `None` for other steps.
    pub(crate) fn fetches(&self) -> Option<(Slot, &[FetchRequest])> {
        let Step::Fetch { src, requests } = self else { return None };
        Some((*src, requests))
    }
    /// Returns source, result and reducer of a [`Step::Reduce`], `None` for other steps.
    pub(crate) fn reduction(&self) -> Option<(Slot, Slot, Reducer)> {
        let Step::Reduce { src, out, combine } = self else { return None };
        Some((*src, *out, *combine))
    }
    /// Returns true if the step may be removed when no step reads its results.
    ///
    /// False for control steps, because they may print.
    pub(crate) fn is_pure(&self) -> bool {
        matches!(self, Step::Local { .. } | Step::Reduce { .. })
    }
    /// Replaces the slot `from` by `to` wherever the step reads it.
    pub(crate) fn replace_input(&mut self, from: Slot, to: Slot) {
        let replace = |slot: &mut Slot| {
            if *slot == from {
                *slot = to;
            }
        };
        match self {
            Step::Local { nest, .. } => nest.replace_source(from, to),
            Step::Fetch { src, .. } | Step::Reduce { src, .. } => replace(src),
            Step::Loop { fixed, carry, xs, .. } => {
                fixed.iter_mut().chain(carry).chain(xs).for_each(replace);
            }
            Step::While { cond_fixed, body_fixed, carry, .. } => {
                cond_fixed.iter_mut().chain(body_fixed).chain(carry).for_each(replace);
            }
            Step::Branch { selector, ins, .. } => {
                std::iter::once(selector).chain(ins).for_each(replace);
            }
            Step::Print { values, .. } => values.iter_mut().map(|v| &mut v.slot).for_each(replace),
        }
    }
}

/// A value that a [`Step::Print`] prints.
#[derive(Clone, Debug)]
pub struct PrintOperand {
    /// The slot of the value.
    pub slot: Slot,
    /// The element type that the user sees.
    /// It differs from the stored type for keys only.
    pub dtype: DType,
    /// The manual axes of the leading hidden dimensions, in order.
    pub hidden: Axes,
}

/// The origin of a step in the user's program, for error messages and reports.
#[derive(Clone, Debug, Default)]
pub struct StepOrigin {
    /// The source location.
    /// `None` if it is unknown.
    pub location: Option<SourceLocation>,
    /// The name of the operation.
    pub op: String,
    /// The phase of the step: forward, recomputed or backward.
    pub phase: Phase,
    /// The named scopes around the operation.
    pub scope: ScopePath,
    /// The backward pass of a checkpoint that the step belongs to, counted from 1; 0 if none.
    /// Steps with different numbers do not share what they fetch.
    pub checkpoint: usize,
}

/// A per-device program: one list of steps for all devices.
#[derive(Clone, Debug, Default)]
pub struct SpmdProgram {
    /// The number of devices.
    pub devices: usize,
    /// The mesh.
    /// `None` if the program has no mesh.
    pub mesh: Option<Mesh>,
    /// All stored values.
    pub slots: Vec<StoredValue>,
    /// The steps, in execution order.
    pub steps: Vec<Step>,
    /// The origin of each step.
    pub origins: Vec<StepOrigin>,
    /// The slots of the inputs.
    pub ins: Vec<Slot>,
    /// The slots of the results.
    pub outs: Vec<Slot>,
}
