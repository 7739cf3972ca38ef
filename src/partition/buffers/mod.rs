//! The compiler's IR: a per-device program as a list of operations over buffers.
//!
//! A [`BufferProgram`] lists [`BufferOp`]s over [`BufferValue`]s. The use of memory is explicit
//! here: a partial value has a leading dimension over its partials, reductions that add or multiply
//! 16-bit floats accumulate in float32, operands that a reduction cannot read as one affine map are
//! copied to separate values, and nested programs are operations.

mod access_box;
pub(crate) mod index;
pub(crate) mod lower;
mod print;
mod value;
mod window_op;

pub(crate) use access_box::{AccessBox, CopyBox, OperandAccess, ShardBox};
pub(crate) use value::{BufferValue, UseCount};
pub(crate) use window_op::{WindowOp, WindowOpKind, WindowedDim};

use self::index::{LoopVec, MAX_LOOPS, extents, row_major_strides};
use crate::core::mesh::{Axes, Mesh};
use crate::core::types::{DType, Scalar};
use crate::core::util::small_sort;
use crate::ir::program::RowKernel;
use crate::ir::program::loop_nest::{DynamicIndex, Reducer, ScalarCode, Source};
use crate::partition::{PrintOperand, Slot};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// An elementwise operation.
#[derive(Clone, Debug)]
pub(crate) struct ElementwiseOp<'p> {
    /// The value that it computes.
    pub(crate) out: Slot,
    /// The number of loops, which are the dimensions of `out`.
    pub(crate) num_loops: usize,
    /// The loop sizes.
    pub(crate) ext: LoopVec,
    /// The operands.
    pub(crate) reads: Vec<OperandAccess>,
    /// The scalar code of one element.
    pub(crate) code: Cow<'p, ScalarCode>,
    /// The loop that the code calls loop 0: 1 if loop 0 runs over partials, otherwise 0.
    pub(crate) code_loop_base: usize,
}

/// The loops of a reduction or a contraction, with the operands.
#[derive(Clone, Debug)]
pub(crate) struct ReductionLoops {
    /// The value that is computed.
    pub(crate) out: Slot,
    /// The element type of the accumulator.
    pub(crate) dtype: DType,
    /// The number of loops.
    pub(crate) num_loops: usize,
    /// The number of loops that are dimensions of the result; they come first.
    pub(crate) rank: usize,
    /// The loop sizes.
    pub(crate) ext: LoopVec,
    /// The operands; each is one affine map or, unless this is a contraction, one constant.
    pub(crate) reads: Vec<OperandAccess>,
    /// For each partial of the result, the shard boxes that are reduced to it, in order.
    pub(crate) partials: Vec<Vec<ShardBox>>,
}

/// A reduction of elementwise code.
#[derive(Clone, Debug)]
pub(crate) struct ReductionOp<'p> {
    /// The loops and operands.
    pub(crate) loops: ReductionLoops,
    /// The reducer.
    pub(crate) reducer: Reducer,
    /// The code whose values are reduced.
    pub(crate) code: Cow<'p, ScalarCode>,
}

impl ReductionLoops {
    /// Returns the shard boxes that contain terms.
    pub(crate) fn filled_boxes(&self) -> impl Iterator<Item = &ShardBox> {
        let is_filled = |s: &&ShardBox| (self.rank..self.num_loops).all(|l| s.lo[l] < s.hi[l]);
        self.partials.iter().flatten().filter(is_filled)
    }
    /// Permutes the loops of the result: loop `l` becomes loop `to[l]`.
    /// The terms and the order of addition do not change.
    pub(crate) fn permute_result_loops(&mut self, to: &[u8; MAX_LOOPS]) {
        let rank = self.rank;
        let turn = |x: &mut LoopVec| {
            let old = *x;
            for l in 0..rank {
                x[to[l] as usize] = old[l];
            }
        };
        turn(&mut self.ext);
        for p in self.reads.iter_mut().flat_map(|r| &mut r.boxes) {
            turn(&mut p.lo);
            turn(&mut p.hi);
            turn(&mut p.strides);
            for l in p.dim_loops.iter_mut().filter(|l| (**l as usize) < rank) {
                *l = to[*l as usize];
            }
        }
        for b in self.partials.iter_mut().flatten() {
            turn(&mut b.lo);
            turn(&mut b.hi);
        }
    }
}

/// A call of a row kernel, with all of its results that are used.
/// Its loops run over partials (if any), then over rows, then along the row of an operand.
#[derive(Clone, Debug)]
pub(crate) struct RowKernelOp {
    /// The row kernel.
    pub(crate) kernel: Arc<dyn RowKernel>,
    /// The number of loops over partials and rows.
    pub(crate) num_row_loops: usize,
    /// The number of loops.
    pub(crate) num_loops: usize,
    /// The loop sizes.
    pub(crate) ext: LoopVec,
    /// The operands; each is one affine map of one value.
    pub(crate) reads: Vec<OperandAccess>,
    /// The operands before any was materialised. Calls of one kernel with equal operands here
    /// become one operation.
    pub(crate) requested: Vec<OperandAccess>,
    /// The results.
    pub(crate) outs: Vec<RowKernelOut>,
}

/// A result of a row kernel.
#[derive(Clone, Debug)]
pub(crate) struct RowKernelOut {
    /// The index among the results of the kernel.
    pub(crate) result: usize,
    /// The value that is computed.
    pub(crate) out: Slot,
    /// The dimensions of the value in the order of the kernel: those over rows come first.
    pub(crate) dims: SmallVec<[usize; 4]>,
}

/// A gather or a scatter, at indices that are known only at run time.
#[derive(Clone, Debug)]
pub(crate) struct GatherScatterOp {
    /// The value that it computes.
    pub(crate) out: Slot,
    /// The number of loops.
    pub(crate) num_loops: usize,
    /// The number of loops that are dimensions of the result; they come first.
    pub(crate) rank: usize,
    /// The loop sizes.
    pub(crate) ext: LoopVec,
    /// The operands; each is one affine map of one value.
    /// A scatter may also start from a constant.
    pub(crate) reads: Vec<OperandAccess>,
    /// The dynamic indices, each of which binds one loop.
    pub(crate) indices: Vec<DynamicIndex>,
    /// For each dynamic index, the offset that is added where the index is negative; 0 for none.
    pub(crate) negative_offsets: LoopVec,
    /// The reducer of a scatter, `Some(None)` to overwrite; `None` for a gather.
    pub(crate) scatter: Option<Option<Reducer>>,
    /// The partials of the result.
    pub(crate) partials: Vec<GatherScatterPartial>,
    /// The element that a gather writes where another partial has the source element.
    pub(crate) neutral: Scalar,
}

/// One partial of the result of a gather or a scatter.
#[derive(Clone, Debug)]
pub(crate) struct GatherScatterPartial {
    /// The boxes of loop indices that this partial covers.
    /// For a gather they restrict the bound loops (an empty list covers all); for a scatter they
    /// select the updates, which are applied box by box.
    pub(crate) boxes: Vec<ShardBox>,
    /// The offsets, in elements, of the partials of operands 0 and 1 that belong to this one.
    /// The offset is 0 for an operand that is not partial.
    pub(crate) operand_offsets: [i64; 2],
}

impl GatherScatterOp {
    /// Returns the value that a scatter starts from, if the result may overwrite it.
    /// That requires that no other operand is in the same buffer.
    pub(crate) fn scatter_init_value(&self, flow: &BufferProgram<'_>) -> Option<Slot> {
        self.scatter?;
        let root = |o: &OperandAccess| match &o.boxes[..] {
            [AccessBox { source: Source::Value(v), .. }] => Some(flow.alias_root(*v)),
            _ => None,
        };
        let was = root(&self.reads[0])?;
        self.reads[1..].iter().all(|o| root(o) != Some(was)).then_some(was)
    }
}

/// A loop with a known trip count; pairs of slots are (outside, inside) unless noted.
#[derive(Clone, Debug)]
pub(crate) struct LoopOp<'p> {
    /// The body.
    pub(crate) body: Box<BufferProgram<'p>>,
    /// The slot of the iteration number inside the body.
    pub(crate) iteration: Slot,
    /// The lowest iteration number, which is that of the last iteration if `reverse` is set.
    pub(crate) start: i64,
    /// The trip count.
    pub(crate) length: usize,
    /// True if the iterations run from last to first.
    pub(crate) reverse: bool,
    /// The loop-invariant inputs.
    pub(crate) fixed: Vec<(Slot, Slot)>,
    /// The loop-carried values.
    pub(crate) carry: Vec<Carry>,
    /// The inputs of which each iteration reads one slice.
    pub(crate) xs: Vec<(Slot, Slot)>,
    /// The results of which each iteration writes one slice, as pairs (inside, outside).
    pub(crate) ys: Vec<(Slot, Slot)>,
}

/// A loop-carried value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carry {
    /// The initial value, outside the loop.
    pub(crate) init: Slot,
    /// The value that an iteration reads.
    pub(crate) body_in: Slot,
    /// The value that an iteration computes.
    pub(crate) body_out: Slot,
    /// The final value, outside the loop.
    pub(crate) result: Slot,
}

/// A loop that runs while a condition holds; pairs of slots are (outside, inside).
#[derive(Clone, Debug)]
pub(crate) struct WhileOp<'p> {
    /// The condition.
    pub(crate) cond: Box<BufferProgram<'p>>,
    /// The body.
    pub(crate) body: Box<BufferProgram<'p>>,
    /// The loop-invariant inputs of the condition.
    pub(crate) cond_fixed: Vec<(Slot, Slot)>,
    /// The slots of the carries inside the condition.
    pub(crate) cond_carry: Vec<Slot>,
    /// The loop-invariant inputs of the body.
    pub(crate) body_fixed: Vec<(Slot, Slot)>,
    /// The loop-carried values, with the inner slots of the body.
    pub(crate) carry: Vec<Carry>,
}

/// A choice among several programs.
#[derive(Clone, Debug)]
pub(crate) struct BranchOp<'p> {
    /// The slot of the selector.
    pub(crate) selector: Slot,
    /// The programs.
    pub(crate) arms: Vec<BufferProgram<'p>>,
    /// The inputs of the programs, as slots of the surrounding program.
    pub(crate) ins: Vec<Slot>,
    /// The results of the program that runs, as slots of the surrounding program.
    pub(crate) outs: Vec<Slot>,
}

/// An operation over buffers.
#[derive(Clone, Debug)]
pub(crate) enum BufferOp<'p> {
    /// An elementwise operation.
    Elementwise(ElementwiseOp<'p>),
    /// A reduction of elementwise code.
    Reduction(ReductionOp<'p>),
    /// A contraction (matmul): the sum of operand 0 times operand 1.
    Contraction(ReductionLoops),
    /// A call of a row kernel.
    RowKernel(RowKernelOp),
    /// A gather or a scatter at run-time indices.
    GatherScatter(GatherScatterOp),
    /// A copy of strided boxes (`parts`) to a dense value `out`; elements in no box are `fill`.
    Pack { out: Slot, fill: Scalar, parts: Vec<CopyBox> },
    /// The steps of windows, found or used to place elements.
    Window(WindowOp),
    /// A loop with a known trip count.
    Loop(LoopOp<'p>),
    /// A loop that runs while a condition holds.
    While(WhileOp<'p>),
    /// A choice among several programs.
    Branch(BranchOp<'p>),
    /// A debug print.
    Print {
        /// The text, with `{}` for each value.
        template: &'p str,
        /// The slot of each value, and how it is printed.
        values: Vec<(Slot, &'p PrintOperand)>,
        /// The manual axes of the region that prints.
        manual: &'p Axes,
        /// The mesh of the program; `None` if the program has no mesh.
        mesh: Option<&'p Mesh>,
    },
}

impl<'p> BufferOp<'p> {
    /// Returns the programs that are nested in it.
    pub(crate) fn nested_programs(&self) -> Vec<&BufferProgram<'p>> {
        match self {
            BufferOp::Loop(l) => vec![&l.body],
            BufferOp::While(w) => vec![&w.cond, &w.body],
            BufferOp::Branch(b) => b.arms.iter().collect(),
            BufferOp::Elementwise(_)
            | BufferOp::Reduction(_)
            | BufferOp::Contraction(_)
            | BufferOp::RowKernel(_)
            | BufferOp::GatherScatter(_)
            | BufferOp::Pack { .. }
            | BufferOp::Window(_)
            | BufferOp::Print { .. } => Vec::new(),
        }
    }
    /// Returns the loops and the reducer of a reduction or a contraction, `None` for others.
    pub(crate) fn reduction_loops(&self) -> Option<(&ReductionLoops, Reducer)> {
        match self {
            BufferOp::Reduction(f) => Some((&f.loops, f.reducer)),
            BufferOp::Contraction(loops) => Some((loops, Reducer::Add)),
            _ => None,
        }
    }
    /// Returns the loops of a reduction or a contraction for changes, `None` for others.
    pub(crate) fn reduction_loops_mut(&mut self) -> Option<&mut ReductionLoops> {
        match self {
            BufferOp::Reduction(f) => Some(&mut f.loops),
            BufferOp::Contraction(loops) => Some(loops),
            _ => None,
        }
    }
    /// Returns the slots that it reads, each once.
    pub(crate) fn sources(&self) -> SmallVec<[Slot; 4]> {
        let mut v: SmallVec<[Slot; 4]> = SmallVec::new();
        let reads = |v: &mut SmallVec<[Slot; 4]>, reads: &[OperandAccess]| {
            // a set, because a concatenation may have a large number of pieces
            let mut seen = HashSet::new();
            let many = reads.iter().map(|r| r.boxes.len()).sum::<usize>() > 32;
            for p in reads.iter().flat_map(|r| &r.boxes) {
                if let Source::Value(s) = p.source
                    && (if many { seen.insert(s) } else { !v.contains(&s) })
                {
                    v.push(s);
                }
            }
        };
        match self {
            BufferOp::Elementwise(m) => reads(&mut v, &m.reads),
            BufferOp::Reduction(ReductionOp { loops, .. }) | BufferOp::Contraction(loops) => {
                reads(&mut v, &loops.reads);
            }
            BufferOp::RowKernel(l) => reads(&mut v, &l.reads),
            BufferOp::GatherScatter(s) => reads(&mut v, &s.reads),
            BufferOp::Pack { parts, .. } => {
                v.extend(
                    parts.iter().filter_map(|p| if let Source::Value(s) = p.from { Some(s) } else { None }),
                );
            }
            BufferOp::Window(w) => v.extend(w.reads),
            BufferOp::Loop(l) => {
                v.extend(l.fixed.iter().chain(&l.xs).map(|p| p.0).chain(l.carry.iter().map(|c| c.init)));
            }
            BufferOp::While(w) => {
                v.extend(w.cond_fixed.iter().chain(&w.body_fixed).map(|p| p.0));
                v.extend(w.carry.iter().map(|c| c.init));
            }
            BufferOp::Branch(b) => {
                v.push(b.selector);
                v.extend(b.ins.iter().copied());
            }
            BufferOp::Print { values, .. } => v.extend(values.iter().map(|v| v.0)),
        }
        let are_distinct = matches!(
            self,
            BufferOp::Elementwise(_)
                | BufferOp::Reduction(_)
                | BufferOp::Contraction(_)
                | BufferOp::GatherScatter(_)
        );
        if v.len() > 1 && !are_distinct {
            small_sort::sort(&mut v);
            v.dedup();
        }
        v
    }
    /// Returns the slots that it writes.
    pub(crate) fn results(&self) -> SmallVec<[Slot; 2]> {
        match self {
            BufferOp::Elementwise(ElementwiseOp { out, .. })
            | BufferOp::Reduction(ReductionOp { loops: ReductionLoops { out, .. }, .. })
            | BufferOp::Contraction(ReductionLoops { out, .. })
            | BufferOp::GatherScatter(GatherScatterOp { out, .. })
            | BufferOp::Window(WindowOp { out, .. })
            | BufferOp::Pack { out, .. } => SmallVec::from_slice(&[*out]),
            BufferOp::RowKernel(l) => l.outs.iter().map(|o| o.out).collect(),
            BufferOp::Loop(l) => l.carry.iter().map(|c| c.result).chain(l.ys.iter().map(|y| y.1)).collect(),
            BufferOp::While(w) => w.carry.iter().map(|c| c.result).collect(),
            BufferOp::Branch(b) => b.outs.iter().copied().collect(),
            BufferOp::Print { .. } => SmallVec::new(),
        }
    }
    /// Returns true if it prints, directly or in a nested program.
    pub(crate) fn has_print(&self) -> bool {
        let inside = |f: &BufferProgram| f.ops.iter().any(BufferOp::has_print);
        matches!(self, BufferOp::Print { .. }) || self.nested_programs().into_iter().any(inside)
    }
}

/// The form of matmuls of 16-bit floats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum HalfMatmuls {
    /// The operands are converted to float32 before, and the result after it, as on CPUs.
    #[default]
    Widened,
    /// One operation reads and writes 16-bit floats, as on accelerators.
    Native,
}

/// A per-device program as a list of operations over buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferProgram<'p> {
    /// All values: those of the partitioned program, then those that the compiler added.
    pub(crate) values: Vec<BufferValue<'p>>,
    /// The operations, in order.
    pub(crate) ops: Vec<BufferOp<'p>>,
    /// The inputs.
    pub(crate) ins: Vec<Slot>,
    /// The results.
    pub(crate) outs: Vec<Slot>,
    /// The form of matmuls of 16-bit floats.
    pub(crate) half_matmuls: HalfMatmuls,
    /// The uses of each value; the uses of an alias count for the value whose buffer it shares.
    pub(crate) uses: Vec<UseCount>,
}

impl BufferProgram<'_> {
    /// Returns the value whose buffer `s` shares, through all aliases.
    pub(crate) fn alias_root(&self, mut s: Slot) -> Slot {
        while let Some(a) = self.values[s].alias {
            s = a;
        }
        s
    }
    /// Returns the size of a value, in bytes.
    pub(crate) fn value_bytes(&self, s: Slot) -> usize {
        let v = &self.values[s];
        v.shape.num_elements().saturating_mul(v.dtype.size())
    }
    /// Returns true if the total size of all values is so small that no sum of sizes can overflow.
    pub(crate) fn is_countable(&self) -> bool {
        fn total_bytes(flow: &BufferProgram<'_>) -> u128 {
            let nested = flow.ops.iter().flat_map(BufferOp::nested_programs).map(total_bytes);
            // carries have two buffers
            nested.chain((0..flow.values.len()).map(|s| 2 * flow.value_bytes(s) as u128)).sum()
        }
        total_bytes(self) <= 1 << 62
    }
    /// Counts the uses of every value.
    pub(crate) fn count_uses(&mut self) {
        let mut uses = vec![UseCount::NONE; self.values.len()];
        for i in &self.ops {
            for s in i.sources() {
                uses[self.alias_root(s)].readers += 1;
            }
        }
        for o in &self.outs {
            uses[self.alias_root(*o)].result = true;
        }
        self.uses = uses;
    }
    /// Gives every result a separate value that an operation of this program writes.
    /// Control flow chooses where results are stored, so a result must not be an input, an alias or
    /// a duplicate.
    pub(crate) fn make_outs_distinct(&mut self) {
        let made: std::collections::HashSet<Slot> = self.ops.iter().flat_map(BufferOp::results).collect();
        for k in 0..self.outs.len() {
            let (o, root) = (self.outs[k], self.alias_root(self.outs[k]));
            if made.contains(&root) && !self.outs[..k].contains(&root) {
                self.outs[k] = root;
                continue;
            }
            let v = self.values[o].clone();
            let (n, ext) = (v.shape.rank(), extents(&v.shape));
            let mut p = AccessBox { strides: v.strides, ..AccessBox::broadcast(Source::Value(o), &ext, n) };
            for d in 0..n {
                p.dim_loops[d] = d as u8;
            }
            let new = self.values.len();
            let dtype = v.dtype;
            let strides = row_major_strides(&v.shape);
            self.values.push(BufferValue { alias: None, strides, ..v });
            let read = OperandAccess { dtype, fill: Scalar::zero(dtype), boxes: smallvec![p] };
            let code = Cow::Owned(ScalarCode::copy(dtype));
            self.ops.push(BufferOp::Elementwise(ElementwiseOp {
                out: new,
                num_loops: n,
                ext,
                reads: vec![read],
                code,
                code_loop_base: 0,
            }));
            self.outs[k] = new;
        }
        self.count_uses();
    }
}
