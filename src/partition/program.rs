//! `SpmdProgram`: one step list for all devices.
//!
//! Nothing here is per device: a device's view of a step is a function of its position and the layouts.

use crate::diagnostic::Place;
use crate::mesh::{Axes, Mesh};
use crate::partition::layout::{DimLayout, Layout};
use crate::program::Phase;
use crate::program::sentence::{Combine, Sentence};
use crate::types::{DType, Shape};

/// A stored value's number.
pub type Slot = usize;

/// A stored value.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// The element type in memory (a key is a uint64).
    pub dtype: DType,
    /// The global shape. In manual mode a value that varies over axes has a leading dimension for each, split by it.
    pub shape: Shape,
    /// Its placement.
    pub layout: Layout,
}

impl Stored {
    /// Bytes of the largest block that a device has of it.
    pub fn block_bytes(&self) -> usize {
        let block = |(l, n): (&DimLayout, &usize)| {
            let ranks = [0, 1.min(l.ways() - 1), l.ways() - 1];
            ranks.map(|r| l.range(r, *n)).iter().map(|v| v.1 - v.0).max().unwrap_or(0)
        };
        let sizes = self.layout.dims.iter().zip(&self.shape[..]).map(block);
        (sizes.fold(1, i64::saturating_mul) as usize).saturating_mul(self.dtype.size())
    }
}

/// For whom a fetch brings something: one read of a later step. Which boxes it is of follows from the loops of that step and where they
/// run: [`SpmdProgram::needs`].
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// Which step of the program reads (its index in `steps`).
    pub reader: usize,
    /// Which of its reads.
    pub read: usize,
}

/// One step. In a [`Sentence`], `Source::Value(k)` is slot k.
#[derive(Clone, Debug)]
pub enum Step {
    /// The pieces of `src` that later steps need and devices do not hold become readable. On engines with shared memory: nothing.
    Fetch {
        /// Of what.
        src: Slot,
        /// For whom.
        needs: Vec<Need>,
    },
    /// A sentence on each device, over its box of the loops.
    Local {
        /// What is stored. It is partial if a loop beyond the sentence's rank is split.
        out: Slot,
        /// What is computed.
        sentence: Sentence,
        /// How each loop is split. The split of folded loops fixes the order of addition, also where operands are replicated.
        layout: Vec<DimLayout>,
    },
    /// A partial value becomes one that is not (or over fewer digits).
    Reduce {
        /// In parts.
        src: Slot,
        /// Not, or less.
        out: Slot,
        /// How parts combine: in the one fixed tree over their ranks.
        combine: Combine,
    },
    /// A loop of known length. The body's inputs: the step's number (int32), fixed, carries, a slice of each of `xs`; its outputs:
    /// the carries, then what is stacked.
    Loop {
        /// What runs at each step.
        body: Box<SpmdProgram>,
        /// The number of the first step.
        start: i64,
        /// How many steps.
        length: usize,
        /// From the last slice to the first.
        reverse: bool,
        /// The same at every step.
        fixed: Vec<Slot>,
        /// The first carries.
        carry: Vec<Slot>,
        /// Run over along their leading dimension, which is unsharded.
        xs: Vec<Slot>,
        /// The last carries.
        out: Vec<Slot>,
        /// Stacked along a new leading dimension, which is unsharded.
        ys: Vec<Slot>,
    },
    /// A loop while a condition holds.
    While {
        /// Inputs: its fixed slots, then the carries; one bool result, the same on all devices.
        cond: Box<SpmdProgram>,
        /// Inputs: its fixed slots, then the carries.
        body: Box<SpmdProgram>,
        /// Fixed inputs of the condition.
        cond_fixed: Vec<Slot>,
        /// Fixed inputs of the body.
        body_fixed: Vec<Slot>,
        /// The first carries.
        carry: Vec<Slot>,
        /// The last carries.
        out: Vec<Slot>,
    },
    /// One of several programs. Where `which` varies over manual axes it has a leading dimension for each, and each device takes its own branch.
    Branch {
        /// bool (true: 0) or int32 (clamped).
        which: Slot,
        /// The programs; they read `ins` and end in equal layouts.
        branches: Vec<SpmdProgram>,
        /// What they read.
        ins: Vec<Slot>,
        /// What they make.
        out: Vec<Slot>,
    },
    /// Prints values: under manual axes each device's block, in device order.
    Print {
        /// The text, with `{}` for each value.
        template: String,
        /// What is printed in place of each `{}`.
        values: Vec<Printed>,
        /// The manual axes of the body that prints; none outside `shard_map`.
        manual: Axes,
    },
}

/// A [`Step::Local`].
#[derive(Clone, Copy)]
pub(crate) struct Local<'a> {
    /// What is stored.
    pub(crate) out: Slot,
    /// What is computed.
    pub(crate) sentence: &'a Sentence,
    /// How each loop is split.
    pub(crate) layout: &'a [DimLayout],
}

impl Step {
    /// The slots that a step reads.
    pub(crate) fn inputs(&self) -> Vec<Slot> {
        match self {
            Step::Fetch { src, .. } | Step::Reduce { src, .. } => vec![*src],
            Step::Local { sentence, .. } => {
                let mut slots = Vec::with_capacity(sentence.reads.len());
                sentence.reads.iter().for_each(|r| slots.extend(r.sources()));
                slots
            }
            Step::Loop { fixed, carry, xs, .. } => [&fixed[..], carry, xs].concat(),
            Step::While { cond_fixed, body_fixed, carry, .. } => {
                [&cond_fixed[..], body_fixed, carry].concat()
            }
            Step::Branch { which, ins, .. } => [&[*which], &ins[..]].concat(),
            Step::Print { values, .. } => values.iter().map(|v| v.slot).collect(),
        }
    }
    /// The slots that a step makes.
    pub(crate) fn outputs(&self) -> Vec<Slot> {
        match self {
            Step::Fetch { .. } | Step::Print { .. } => Vec::new(),
            Step::Local { out, .. } | Step::Reduce { out, .. } => vec![*out],
            Step::Loop { out, ys, .. } => [&out[..], ys].concat(),
            Step::While { out, .. } | Step::Branch { out, .. } => out.clone(),
        }
    }
    /// What it computes, if that is one sentence.
    pub(crate) fn sentence(&self) -> Option<&Sentence> {
        self.local().map(|l| l.sentence)
    }
    /// What it computes on each device alone: one sentence.
    pub(crate) fn local(&self) -> Option<Local<'_>> {
        match self {
            Step::Local { out, sentence, layout } => Some(Local { out: *out, sentence, layout }),
            Step::Fetch { .. }
            | Step::Reduce { .. }
            | Step::Loop { .. }
            | Step::While { .. }
            | Step::Branch { .. }
            | Step::Print { .. } => None,
        }
    }
    /// What it brings to devices: of which slot, and for which reads.
    pub(crate) fn fetches(&self) -> Option<(Slot, &[Need])> {
        match self {
            Step::Fetch { src, needs } => Some((*src, needs)),
            Step::Local { .. }
            | Step::Reduce { .. }
            | Step::Loop { .. }
            | Step::While { .. }
            | Step::Branch { .. }
            | Step::Print { .. } => None,
        }
    }
    /// Whether it is gone where nobody reads what it makes: it prints nothing, nor does what is nested in it.
    pub(crate) fn only_computes(&self) -> bool {
        match self {
            Step::Local { .. } | Step::Reduce { .. } => true,
            Step::Fetch { .. }
            | Step::Loop { .. }
            | Step::While { .. }
            | Step::Branch { .. }
            | Step::Print { .. } => false,
        }
    }
    /// Whether it prints, or something nested in it does.
    pub(crate) fn prints(&self) -> bool {
        let within = |p: &SpmdProgram| p.steps.iter().any(Step::prints);
        match self {
            Step::Local { .. } | Step::Reduce { .. } | Step::Fetch { .. } => false,
            Step::Loop { body, .. } => within(body),
            Step::While { cond, body, .. } => within(cond) || within(body),
            Step::Branch { branches, .. } => branches.iter().any(within),
            Step::Print { .. } => true,
        }
    }
}

/// A value that a program prints.
#[derive(Clone, Debug)]
pub struct Printed {
    /// The value.
    pub slot: Slot,
    /// The element type as the user knows it: keys are stored as numbers.
    pub dtype: DType,
    /// The manual axes of its leading (hidden) dimensions, in order.
    pub hidden: Axes,
}

/// Where a step comes from.
#[derive(Clone, Debug, Default)]
pub struct Why {
    /// The user's line.
    pub place: Option<Place>,
    /// The operation, as the user knows it.
    pub op: String,
    /// Whether derivatives put it there.
    pub phase: Phase,
}

/// One program for all devices.
#[derive(Clone, Debug, Default)]
pub struct SpmdProgram {
    /// How many devices run it.
    pub devices: usize,
    /// Their mesh, if the program is on one.
    pub mesh: Option<Mesh>,
    /// All stored values.
    pub slots: Vec<Stored>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Where each step comes from.
    pub whys: Vec<Why>,
    /// Its inputs.
    pub ins: Vec<Slot>,
    /// Its results.
    pub outs: Vec<Slot>,
}
