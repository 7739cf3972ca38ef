//! [`FusionPlan`], the value that the fusion stage returns.

use crate::partition::Slot;
use crate::partition::buffers::index::{LoopVec, MAX_LOOPS};
use crate::partition::buffers::{
    BufferOp, BufferProgram, ElementwiseOp, HalfMatmuls, ReductionLoops, ReductionOp,
};
use smallvec::SmallVec;
use std::fmt;

/// The operation that a fusion group is built around.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FusionRoot {
    /// Elementwise operations only.
    Elementwise,
    /// A matmul, followed by elementwise operations on its tiles.
    Matmul(usize),
    /// Elementwise operations, followed by a reduction of their values.
    Reduction(usize),
    /// Any other operation, unfused.
    Standalone(usize),
}

/// An elementwise operation of a group.
/// Its loop d has the index of dimension `dims[d]` of the group's iteration space, minus
/// `shift[d]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FusionMember {
    /// The index of the operation.
    pub(crate) op: usize,
    /// For each loop, the index in the iteration space minus that of the loop.
    pub(crate) shift: LoopVec,
    /// For each loop, the dimension of the iteration space.
    pub(crate) dims: [u8; MAX_LOOPS],
}

/// Operations that run as one loop nest.
#[derive(Clone, Debug)]
pub(crate) struct FusionGroup {
    /// The operation that it is built around.
    pub(crate) root: FusionRoot,
    /// The elementwise operations, in program order.
    pub(crate) members: Vec<FusionMember>,
    /// The length of the longest chain of dependencies that leads to it, at least 1.
    pub(crate) level: u32,
    /// True if another group has taken over its members.
    pub(crate) merged: bool,
    /// The number of access boxes of all operands, which bounds the number of segments.
    pub(super) num_boxes: usize,
}

/// The definition of a value: its operation, and its place in the fusion group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueDef {
    /// The group.
    pub(crate) group: usize,
    /// The operation.
    pub(crate) op: usize,
    /// The index in the group's iteration space minus that of the value.
    pub(super) shift: LoopVec,
    /// The number of dimensions; `None` if no consumer can join the group here.
    pub(super) rank: Option<usize>,
}

/// A program divided into fusion groups.
#[derive(Debug)]
pub(crate) struct FusionPlan<'f, 'p> {
    /// The program.
    pub(crate) program: &'f BufferProgram<'p>,
    /// The groups, including those that were merged into others.
    pub(crate) groups: Vec<FusionGroup>,
    /// The definition of each value; `None` for inputs.
    pub(crate) defs: Vec<Option<ValueDef>>,
    /// The group of each operation.
    pub(crate) op_groups: Vec<usize>,
    /// True for each value that is in memory.
    pub(crate) materialized: Vec<bool>,
    /// The chains of groups that run a batch of rows at a time.
    pub(crate) chains: Vec<RowFusion>,
}

/// Groups that run as one node, a batch of rows at a time.
#[derive(Clone, Debug)]
pub(crate) struct RowFusion {
    /// The groups, in the order in which they run.
    pub(crate) groups: Vec<usize>,
    /// The number of rows.
    pub(crate) num_rows: i64,
    /// The values of which only some rows are in memory, with the bytes of a row.
    pub(crate) scratch: Vec<(Slot, i64)>,
    /// The bytes of a row of all values.
    pub(crate) row_bytes: i64,
    /// The fused matmuls, which are the first and the last groups.
    pub(crate) matmuls: MatmulNeighbours,
    /// True if rows may run in any order, because each row is either in scratch or found by a
    /// gather.
    pub(crate) any_order: bool,
}

/// The matmuls of a chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatmulNeighbours {
    /// The groups that run before the other stages, with their row dimensions.
    pub(crate) before: Vec<(usize, RowDims)>,
    /// The groups that run after the other stages, with their row dimensions.
    pub(crate) after: Vec<(usize, RowDims)>,
    /// The values of the matmuls before the other stages.
    pub(crate) produced: Vec<Slot>,
    /// The values that matmuls compute or read, of which a batch of rows is in memory.
    pub(crate) batched: Vec<Slot>,
    /// The number of rows of a batch.
    pub(crate) batch_rows: i64,
}

/// The dimensions of a matmul's result that enumerate the rows of a value, outermost first.
#[derive(Clone, Debug)]
pub(crate) struct RowDims {
    /// The dimensions.
    pub(crate) dims: SmallVec<[usize; 4]>,
}

impl FusionPlan<'_, '_> {
    /// Returns elementwise operation `k`.
    pub(crate) fn elementwise_op(&self, k: usize) -> &ElementwiseOp<'_> {
        match &self.program.ops[k] {
            BufferOp::Elementwise(m) => m,
            _ => unreachable!("members are elementwise operations"),
        }
    }
    /// Returns reduction `k`.
    pub(crate) fn reduction_op(&self, k: usize) -> &ReductionOp<'_> {
        match &self.program.ops[k] {
            BufferOp::Reduction(f) => f,
            _ => unreachable!("the root is a reduction"),
        }
    }
    /// Returns the loops of reduction or contraction `k`.
    pub(crate) fn reduction_loops(&self, k: usize) -> &ReductionLoops {
        match self.program.ops[k].reduction_loops() {
            Some((loops, _)) => loops,
            None => unreachable!("the root is a reduction or a contraction"),
        }
    }
    /// Returns the operations of a group.
    pub(crate) fn group_ops(&self, group: usize) -> impl Iterator<Item = usize> {
        let head = match self.groups[group].root {
            FusionRoot::Reduction(item) | FusionRoot::Standalone(item) | FusionRoot::Matmul(item) => {
                Some(item)
            }
            FusionRoot::Elementwise => None,
        };
        self.groups[group].members.iter().map(|m| m.op).chain(head)
    }
    /// Returns the values of a group's members that are in memory.
    pub(crate) fn stored_members(&self, group: usize) -> impl Iterator<Item = Slot> {
        let outs = self.groups[group].members.iter().map(move |m| self.elementwise_op(m.op).out);
        outs.filter(move |s| self.materialized[*s])
    }
    /// Returns the value in whose memory a matmul is computed, if its own value is not stored.
    ///
    /// The other value is one that the epilogue stores and for which `may` is true.
    pub(crate) fn matmul_alias(&self, group: usize, may: impl Fn(Slot) -> bool) -> Option<Slot> {
        let FusionRoot::Matmul(k) = self.groups[group].root else { return None };
        let out = self.reduction_loops(k).out;
        let size = |s: Slot| self.program.values[s].dtype.size();
        // (the accumulators of an accelerator are in no memory, whatever the size of their elements)
        let is_native = self.program.half_matmuls == HalfMatmuls::Native;
        let fits = |s: &Slot| (size(*s) == size(out) || is_native) && may(*s);
        let mut others = self.stored_members(group).filter(fits);
        if self.materialized[out] { None } else { others.next() }
    }
    /// Returns the element size in bytes of the reduction that a group is built around.
    /// It is `None` for other groups.
    pub(crate) fn reduction_element_bytes(&self, group: usize) -> Option<i64> {
        let FusionRoot::Reduction(k) = self.groups[group].root else { return None };
        Some(self.reduction_loops(k).dtype.size() as i64)
    }
    /// Returns the level after which a value is available; 0 for inputs.
    pub(crate) fn value_level(&self, s: Slot) -> u32 {
        self.defs[self.program.alias_root(s)].map_or(0, |d| self.groups[d.group].level)
    }
    /// Returns the level at which an operation runs.
    pub(crate) fn op_level(&self, item: usize) -> u32 {
        self.groups[self.op_groups[item]].level
    }
    /// Returns for each value the last level that reads it, 0 if none does.
    pub(super) fn last_read_levels(&self) -> Vec<u32> {
        let mut last = vec![0; self.program.values.len()];
        for (k, op) in self.program.ops.iter().enumerate() {
            let level = self.op_level(k);
            for s in op.sources() {
                let root = self.program.alias_root(s);
                last[root] = level.max(last[root]);
            }
        }
        last
    }
}

impl fmt::Display for FusionPlan<'_, '_> {
    /// Writes one line for each group, by level, and one for each chain of rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut order: Vec<usize> = (0..self.groups.len()).filter(|k| !self.groups[*k].merged).collect();
        crate::core::util::small_sort::sort_by_key(&mut order, |k| self.groups[*k].level);
        for k in order {
            let group = &self.groups[k];
            write!(f, "level {}, group {k}: {}", group.level, self.root_text(k))?;
            let inner = group.members.iter().map(|m| self.elementwise_op(m.op).out);
            write_values(f, " computes", inner.filter(|s| !self.materialized[*s]))?;
            let root = self.group_ops(k).last().filter(|_| group.root != FusionRoot::Elementwise);
            let made = root.into_iter().flat_map(|k| self.program.ops[k].results());
            let made = made.filter(|s| self.materialized[*s]);
            write_values(f, " stores", self.stored_members(k).chain(made))?;
            writeln!(f)?;
        }
        for c in &self.chains {
            write!(f, "{} rows: groups", c.num_rows)?;
            c.groups.iter().try_for_each(|k| write!(f, " {k}"))?;
            write_values(f, "; in cache", c.scratch.iter().map(|s| s.0))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl FusionPlan<'_, '_> {
    /// Returns the name of the operation that a group is built around, with its results.
    fn root_text(&self, group: usize) -> String {
        let (FusionRoot::Matmul(k) | FusionRoot::Reduction(k) | FusionRoot::Standalone(k)) =
            self.groups[group].root
        else {
            return "elementwise".to_string();
        };
        let name = match &self.program.ops[k] {
            BufferOp::Elementwise(_) => "elementwise",
            BufferOp::Reduction(_) => "reduction",
            BufferOp::Contraction(_) => "matmul",
            BufferOp::RowKernel(_) => "row kernel",
            BufferOp::GatherScatter(s) if s.scatter.is_some() => "scatter",
            BufferOp::GatherScatter(_) => "gather",
            BufferOp::Pack { .. } => "pack",
            BufferOp::Window(w) => w.kind.name(),
            BufferOp::Loop(_) => "loop",
            BufferOp::While(_) => "while",
            BufferOp::Branch(_) => "branch",
            BufferOp::Print { .. } => "print",
        };
        let results = self.program.ops[k].results();
        results.iter().fold(name.to_string(), |text, s| format!("{text} %{s}"))
    }
}

/// Writes a list of values after a title, or nothing if there are none.
fn write_values(f: &mut fmt::Formatter<'_>, title: &str, values: impl Iterator<Item = Slot>) -> fmt::Result {
    for (k, s) in values.enumerate() {
        write!(f, "{} %{s}", if k == 0 { title } else { "" })?;
    }
    Ok(())
}
