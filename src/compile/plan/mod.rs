//! A program that is ready to run: where values are in memory, and levels of nodes.
//!
//! `schedule` makes it (passes 5 to 9 of the lock-step engine: views, aliases, levels, buffers, and each group bound to memory as a node),
//! with what is inside loops and choices in `control`, results that are blocks of an argument
//! in `view`, groups that share their rows in `rows` (`strips`: as they run), products beside them in `scores`, and memory that is written again in `reuse` and `puts`.

#[cfg(debug_assertions)]
mod check;
mod control;
mod puts;
mod reuse;
mod rows;
mod schedule;
mod scores;
mod strips;
mod view;

use super::fold::FoldKernel;
use super::index::Ix;
use super::lines::LinesKernel;
use super::product::ProductKernel;
use super::seek::SeekKernel;
use super::tiles::Tiles;
use crate::mesh::{Axes, Mesh};
use crate::partition::{Slot, Why};
use crate::types::{DType, Shape};
pub(crate) use schedule::compile;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
pub(crate) use strips::RowsKernel;

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Memory {
    /// Nowhere: it is never in memory.
    Nowhere,
    /// In the buffer of an argument.
    Arg(usize),
    /// In a fresh buffer.
    Out(usize),
    /// In the arena.
    Arena(usize),
    /// In a donated argument: of `gifts`, and from which byte on.
    Given(usize, usize),
    /// Where control puts it, step by step.
    Moving,
}

/// What a result is.
#[derive(Clone, Debug)]
pub(crate) enum OutPlan {
    /// A fresh buffer.
    Fresh(usize),
    /// A donated argument, of `gifts`.
    Given(usize),
    /// The buffer of an argument.
    Arg(usize),
    /// Blocks of an argument: bytes of a block, and where each is.
    View { arg: usize, block: usize, blocks: Arc<[usize]> },
}

/// A donated argument whose memory is written to; where a caller still holds it, a new buffer is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gift {
    /// Which argument.
    pub(crate) arg: usize,
    /// Its bytes.
    pub(crate) bytes: usize,
    /// What for.
    pub(crate) purpose: Use,
}

/// What the memory of a donated argument is used for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    /// A result.
    Result,
    /// One of a loop's two places for a carry.
    Carry,
    /// Values in between.
    Room,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Use::Result => "a result",
            Use::Carry => "a place of a loop's carry",
            Use::Room => "room for values in between",
        })
    }
}

/// A copy of strided boxes, on one thread.
#[derive(Clone, Debug)]
pub(crate) struct PackKernel {
    pub(crate) out: u32,
    pub(crate) elements: usize,
    pub(crate) size: usize,
    pub(crate) fill: u128,
    pub(crate) parts: Vec<PackCopy>,
}

/// One box: from a slot, or the same bits everywhere; offsets and steps in bytes.
#[derive(Clone, Debug)]
pub(crate) struct PackCopy {
    pub(crate) from: PackFrom,
    pub(crate) ext: Ix,
    pub(crate) src: (i64, Ix),
    pub(crate) dst: (i64, Ix),
}

/// What a box is copied from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackFrom {
    Slot(u32),
    Bits(u128),
}

/// A loop of known length. Slots are the whole plan's.
#[derive(Clone, Debug)]
pub(crate) struct LoopKernel {
    pub(crate) body: Plan,
    pub(crate) step: u32,
    pub(crate) start: i64,
    pub(crate) length: usize,
    pub(crate) reverse: bool,
    pub(crate) fixed: Vec<(u32, u32)>,
    pub(crate) carry: Vec<CarryKernel>,
    /// Outer slot, inner slot, bytes of a slice.
    pub(crate) xs: Vec<(u32, u32, usize)>,
    /// Inner slot, outer slot, bytes of a slice.
    pub(crate) ys: Vec<(u32, u32, usize)>,
}

/// A value that goes from step to step. It alternates between the place of the last one and another; or is updated in place, if there is
/// no other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarryKernel {
    pub(crate) first: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) last: u32,
    pub(crate) other: Option<u32>,
    pub(crate) bytes: usize,
}

/// A loop while a condition holds.
#[derive(Clone, Debug)]
pub(crate) struct WhileKernel {
    pub(crate) cond: Plan,
    pub(crate) body: Plan,
    pub(crate) fixed: Vec<(u32, u32)>,
    pub(crate) cond_carry: Vec<u32>,
    pub(crate) carry: Vec<CarryKernel>,
    /// The condition's result.
    pub(crate) test: u32,
}

/// One of several programs.
#[derive(Clone, Debug)]
pub(crate) struct BranchKernel {
    pub(crate) which: u32,
    pub(crate) dtype: DType,
    pub(crate) arms: Vec<Plan>,
    /// For each arm, outer and inner slots of what it reads, then of what it makes.
    pub(crate) wires: Vec<Vec<(u32, u32)>>,
}

/// What is printed.
#[derive(Clone, Debug)]
pub(crate) struct PrintKernel {
    pub(crate) template: String,
    pub(crate) values: Vec<PrintValue>,
    pub(crate) manual: Axes,
    pub(crate) mesh: Option<Mesh>,
}

/// A value that is printed.
#[derive(Clone, Debug)]
pub(crate) struct PrintValue {
    pub(crate) slot: u32,
    /// As the user knows it: keys are stored as numbers.
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The manual axes of its hidden dimensions.
    pub(crate) hidden: Axes,
}

/// What a node runs.
#[derive(Clone, Debug)]
pub(crate) enum Kernel {
    Tiles {
        tiles: Box<Tiles>,
        split: usize,
        step: i64,
    },
    Product(Box<ProductKernel>),
    /// In one stage, or its spans, whose results are in this slot.
    Fold(Arc<FoldKernel>, Option<u32>),
    /// The results of spans combined.
    FoldEnd(Arc<FoldKernel>, u32),
    /// Several of these, rows by rows.
    Rows(Box<RowsKernel>),
    Pack(Box<PackKernel>),
    /// At once, or the first of two stages, which leaves in this slot what the second wants.
    Lines(Arc<LinesKernel>, Option<u32>),
    /// The second stage.
    LinesEnd(Arc<LinesKernel>, u32),
    Seek(Box<SeekKernel>),
    Print(Box<PrintKernel>),
    Loop(Box<LoopKernel>),
    While(Box<WhileKernel>),
    Branch(Box<BranchKernel>),
}

impl Kernel {
    /// Whether all workers enter it together.
    pub(crate) fn control(&self) -> bool {
        matches!(self, Kernel::Loop(_) | Kernel::While(_) | Kernel::Branch(_))
    }
}

/// What a node is, for the report.
#[derive(Clone, Debug)]
pub(crate) struct What {
    /// In a word or two.
    pub(crate) name: &'static str,
    /// What it makes: slot, element type, shape.
    pub(crate) makes: SmallVec<[(Slot, DType, Shape); 1]>,
    /// How many maps run in it.
    pub(crate) maps: usize,
    /// The step that makes the first of these: where it comes from, and whether it combines parts of several devices.
    pub(crate) step: Option<(Why, bool)>,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (k, (slot, dtype, shape)) in self.makes.iter().enumerate() {
            write!(f, "{} %{slot} {}{shape}", if k == 0 { "" } else { "," }, dtype.short())?;
        }
        match self.maps {
            0 => Ok(()),
            1 => f.write_str(" with 1 map"),
            n => write!(f, " with {n} maps"),
        }
    }
}

impl Level {
    /// Whether members that run it with others, inside a nested program, all pass a barrier.
    fn meets(&self) -> bool {
        match &self.nodes[..] {
            [Node { kernel: Kernel::Loop(l), .. }] => l.length > 0 && l.body.meets(),
            _ => true,
        }
    }
}
impl Plan {
    /// Whether no level has more than one task, inside loops and choices neither: workers would only wait for one another.
    pub(crate) fn alone(&self) -> bool {
        let one = |n: &Node| match &n.kernel {
            Kernel::Loop(l) => l.body.alone(),
            Kernel::While(w) => w.cond.alone() && w.body.alone(),
            Kernel::Branch(b) => b.arms.iter().all(Plan::alone),
            _ => n.chunks <= 1,
        };
        self.levels.iter().all(|l| l.nodes.len() == 1 && l.nodes.iter().all(one))
    }
    /// Whether all members that run it with others, as a nested program, pass a barrier on the way.
    pub(crate) fn meets(&self) -> bool {
        self.levels.iter().any(Level::meets)
    }
}

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kernel: Kernel,
    /// Independent tasks.
    pub(crate) chunks: i64,
    /// Microseconds, roughly.
    pub(crate) cost: f64,
    /// For the report.
    pub(crate) what: What,
}

/// Nodes that are independent; or one node of control.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    /// Its number among all levels, those of nested plans too.
    pub(crate) id: usize,
    pub(crate) nodes: Vec<Node>,
    /// Tasks of all nodes.
    pub(crate) chunks: i64,
}

/// Levels in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) levels: Vec<Level>,
    pub(crate) cost: f64,
    /// Whether it is inside a loop.
    pub(crate) in_loop: bool,
}

/// A program that is ready to run.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) plan: Plan,
    pub(crate) places: Vec<Memory>,
    pub(crate) arena: usize,
    pub(crate) outs: Vec<OutPlan>,
    /// Bytes of each fresh buffer.
    pub(crate) fresh: Vec<usize>,
    /// Donated arguments that are written to.
    pub(crate) gifts: Vec<Gift>,
    /// Number of levels, nested ones too.
    pub(crate) levels: usize,
}
