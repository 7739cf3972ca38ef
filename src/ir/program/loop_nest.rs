//! Loop nests: kernels as data, made of accesses, elementwise code, reductions and contractions.
//!
//! A [`LoopNest`] defines one result element by element, over a box of loop indices: first the
//! dimensions of the result, then the loops that are reduced. Each operand is an [`Access`]:
//! disjoint pieces, each an affine map from loop indices to positions of a stored value. Structural
//! operations (slice, pad, concatenate, transpose, broadcast, update) only change accesses, so they
//! compose and need no kernel. `linalg.generic` has this role in MLIR. The `exec` module executes
//! loop nests; this module only describes them, without threads or memory buffers.

pub use crate::core::scalar_op::{
    Reducer, ResultDType, ScalarOp, ScalarOpInfo, StableHloForm, SubnormalResults,
};

use super::RowKernel;
pub use super::dynamic_index::{DynamicIndex, OutOfBounds};
use crate::core::{DType, Precision, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

/// The definition of one result of an equation, element by element.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopNest {
    /// The loop sizes: the dimensions of the result, then the reduced loops.
    pub extents: Vec<usize>,
    /// The number of leading loops that are dimensions of the result.
    /// The loops with index `rank` or higher are called the inner loops.
    pub rank: usize,
    /// The element type of the result.
    pub dtype: DType,
    /// The accesses of the operands, in order.
    pub accesses: Vec<Access>,
    /// The computation on the elements that the accesses read.
    pub compute: Compute,
}

/// An operand of a loop nest, read as a function of the loop indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The element type of the operand.
    pub dtype: DType,
    /// The disjoint pieces of the iteration space that read a value.
    pub pieces: Vec<AccessPiece>,
    /// The value at indices at which no piece applies.
    pub fill: Scalar,
}

/// One piece of an access: a box of loop indices, and the positions that it reads.
///
/// The piece applies at indices that its ranges cover and whose positions are inside the operand.
/// At all other indices the access has its fill value. This is how windows are padded: a position
/// that depends on two loops (over windows, and over offsets within a window) may be outside of the
/// operand. A position that depends on one loop must be inside for all indices that the ranges
/// cover.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessPiece {
    /// The value that is read.
    pub source: Source,
    /// The indices that the piece covers, one range for each loop.
    pub ranges: Vec<StridedRange>,
    /// The position in each dimension of the source, as a function of the loop indices.
    pub map: Vec<AffineExpr>,
}

/// The indices `lo, lo+step, …` below `hi` of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedRange {
    /// The first index.
    pub lo: i64,
    /// The end (exclusive).
    pub hi: i64,
    /// The distance between covered indices.
    /// It is 1 except after interior padding.
    pub step: i64,
}

/// The source of a piece: a value, or a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// The index of an operand of the equation, or of a slot in a per-device program.
    Value(usize),
    /// A constant, the same at every index.
    Const(Scalar),
}

/// The position `constant + Σ coefficient · k`, where k = (index − lo) / step in the piece's range.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AffineExpr {
    /// The position where every k is 0.
    pub constant: i64,
    /// Pairs of a loop and its coefficient, which may be negative.
    /// The source is broadcast along loops that occur in no map of the piece.
    pub terms: SmallVec<[(usize, i64); 2]>,
}

/// The computation of a loop nest.
#[derive(Clone, Debug, PartialEq)]
pub enum Compute {
    /// An elementwise computation: each element is `code` of the accesses at its index.
    Map(ScalarCode),
    /// A reduction of `code` over the inner loops.
    Reduce {
        /// The reduction operation.
        reducer: Reducer,
        /// The code whose values are reduced.
        code: ScalarCode,
    },
    /// A contraction: the sum of access 0 times access 1 over the inner loops.
    Contract {
        /// The element type of the accumulator.
        accum_dtype: DType,
        /// The precision of float32 products on XLA's accelerators.
        precision: Precision,
    },
    /// A row kernel: a function of complete rows.
    /// The inner loops run along the rows that the kernel reads.
    RowKernel(RowKernelCall),
    /// A gather: access 0 at one index of each inner loop, selected by index operands.
    /// An out-of-bounds index under [`OutOfBounds::Drop`] gives the fill value of access 0.
    Gather {
        /// The dynamic index of each inner loop; every inner loop occurs once.
        indices: Vec<DynamicIndex>,
    },
    /// A scatter: access 0 (the original) updated with access 1 at dynamic indices of the result.
    ///
    /// The inner loops enumerate the updates. If several updates have the same target element,
    /// they are applied in the row-major order of the inner loops.
    Scatter {
        /// The dynamic indices, over loops of the result.
        indices: Vec<DynamicIndex>,
        /// The operation that combines an update with the original element.
        /// `None` if updates overwrite the element; the last one then wins.
        reducer: Option<Reducer>,
    },
    /// A reshape: the source of access 0 with another shape, in the same row-major order.
    /// The access has one piece that covers all loops. Its maps are all zero: only their number is
    /// used, which is the rank of the source.
    Reshape,
}

/// A row kernel applied in a loop nest, and the loops that run along its result rows.
///
/// A row kernel with several results is written as several loop nests with the same accesses and
/// different `result_index`.
#[derive(Clone, Debug)]
pub struct RowKernelCall {
    /// The row kernel.
    pub kernel: Arc<dyn RowKernel>,
    /// The index of the kernel's result that this loop nest defines.
    pub result_index: usize,
    /// The loops of the result that run along a result row, in the kernel's order.
    /// The other loops of the result run over rows. No access depends on `row_loops`.
    pub row_loops: SmallVec<[usize; 2]>,
}

/// Row kernels are equal if their keys are equal.
impl PartialEq for RowKernelCall {
    fn eq(&self, other: &RowKernelCall) -> bool {
        self.result_index == other.result_index
            && self.row_loops == other.row_loops
            && self.kernel.key() == other.kernel.key()
    }
}

/// Straight-line elementwise code.
/// Each instruction computes one value; the last one is the result.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarCode {
    /// The instructions, in execution order.
    pub insts: Vec<ScalarInst>,
}

/// One instruction of elementwise code.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalarInst {
    /// The operation.
    pub op: ScalarOp,
    /// The element type of the operands; for [`ScalarOp::Select`], that of the two values.
    pub operand_dtype: DType,
    /// The element type of the result.
    pub dtype: DType,
    /// The operands.
    pub args: SmallVec<[ScalarArg; 3]>,
}

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarArg {
    /// The element that an access of the loop nest reads.
    Access(usize),
    /// The result of an earlier instruction.
    Inst(usize),
    /// A constant.
    Const(Scalar),
    /// The global index of a loop, as an int64.
    /// The instruction's `operand_dtype` must be int64.
    Index(usize),
}

impl LoopNest {
    /// Creates an elementwise loop nest, whose loops are the dimensions of the result.
    pub(crate) fn map(
        extents: Vec<usize>,
        dtype: DType,
        accesses: Vec<Access>,
        code: ScalarCode,
    ) -> LoopNest {
        LoopNest { rank: extents.len(), extents, dtype, accesses, compute: Compute::Map(code) }
    }
    /// Creates a loop nest that reduces the loops from `rank` on.
    /// It is elementwise if there are none.
    pub(crate) fn reduce(
        extents: Vec<usize>,
        rank: usize,
        dtype: DType,
        accesses: Vec<Access>,
        reducer: Reducer,
        code: ScalarCode,
    ) -> LoopNest {
        match extents.len() == rank {
            true => LoopNest::map(extents, dtype, accesses, code),
            false => LoopNest { extents, rank, dtype, accesses, compute: Compute::Reduce { reducer, code } },
        }
    }
}

impl StridedRange {
    /// Returns the range of all indices of a loop of this size.
    pub fn full(size: usize) -> StridedRange {
        StridedRange { lo: 0, hi: size as i64, step: 1 }
    }
    /// Returns the ranges of all indices of loops of these sizes.
    pub fn full_box(extents: &[usize]) -> Vec<StridedRange> {
        extents.iter().map(|n| StridedRange::full(*n)).collect()
    }
    /// Returns the number of indices covered.
    pub fn len(&self) -> i64 {
        ((self.hi - self.lo + self.step - 1) / self.step).max(0)
    }
    /// Returns true if no index is covered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl AffineExpr {
    /// Returns the position `constant`, which is the same at every index.
    pub fn constant(constant: i64) -> AffineExpr {
        AffineExpr { constant, terms: SmallVec::new() }
    }
    /// Returns the position `constant + coefficient · k`, where k is that of loop `index`.
    pub fn linear(constant: i64, index: usize, coefficient: i64) -> AffineExpr {
        AffineExpr { constant, terms: SmallVec::from_slice(&[(index, coefficient)]) }
    }
    /// Returns the identity map: the position in dimension d is the index of loop d.
    pub fn identity(rank: usize) -> Vec<AffineExpr> {
        (0..rank).map(|d| AffineExpr::linear(0, d, 1)).collect()
    }
}

impl AffineExpr {
    /// Returns the minimum and maximum position over these ranges, none of which may be empty.
    pub(crate) fn bounds(&self, ranges: &[StridedRange]) -> (i64, i64) {
        self.terms.iter().fold((self.constant, self.constant), |(lo, hi), (l, c)| {
            let last = c * (ranges[*l].len() - 1);
            (lo + last.min(0), hi + last.max(0))
        })
    }
}

impl AffineExpr {
    /// Returns how far all loops except the widest one move the position.
    /// A window that overlaps its dimension extends at most this far outside of it.
    pub(crate) fn window_reach(&self, ranges: &[StridedRange]) -> i128 {
        let ranges = self
            .terms
            .iter()
            .map(|(l, c)| i128::from(*c).abs().saturating_mul(i128::from((ranges[*l].len() - 1).max(0))));
        let (sum, widest) =
            ranges.fold((0i128, 0), |(sum, widest), r| (sum.saturating_add(r), r.max(widest)));
        sum - widest
    }
}

impl AccessPiece {
    /// Returns this piece without the indices at which all positions are outside of these sizes.
    pub(crate) fn clipped_to(&self, sizes: &[usize]) -> AccessPiece {
        let mut p = self.clone();
        // shrinking the range of one loop can make indices of another one unnecessary; ranges only
        // shrink, so that a few rounds suffice
        for _ in 0..3 {
            for (d, n) in sizes.iter().enumerate() {
                for k in 0..p.map[d].terms.len() {
                    if p.ranges.iter().any(StridedRange::is_empty) {
                        return p;
                    }
                    let (l, c) = p.map[d].terms[k];
                    if c == 0 {
                        continue;
                    }
                    let (lo, hi) = p.map[d].bounds(&p.ranges);
                    let own = c * (p.ranges[l].len() - 1);
                    // the minimum and maximum contribution of the other loops
                    let (least, most) = (lo - own.min(0), hi - own.max(0));
                    let (first, last) = (-most, *n as i64 - 1 - least);
                    // the indices i with first ≤ c·i ≤ last
                    let (first, last) = if c > 0 { (first, last) } else { (-last, -first) };
                    let c = c.abs();
                    let steps = p.ranges[l].len();
                    let from = (first + c - 1).div_euclid(c).clamp(0, steps);
                    let to = (last.div_euclid(c) + 1).clamp(from, steps);
                    let s = &mut p.ranges[l];
                    let end = s.lo + (to - 1) * s.step + 1;
                    let lo = s.lo + from * s.step;
                    (s.hi, s.lo) =
                        if from == to { (lo.min(s.hi), lo.min(s.hi)) } else { (end.min(s.hi), lo) };
                    for m in &mut p.map {
                        m.constant += m.terms.iter().filter(|t| t.0 == l).map(|t| t.1 * from).sum::<i64>();
                    }
                }
            }
        }
        p
    }
    /// Returns true if a position in dimension `d`, which has size `n`, may be out of bounds.
    /// The piece does not apply there.
    pub(crate) fn may_leave_bounds(&self, d: usize, n: usize) -> bool {
        if self.ranges.iter().any(StridedRange::is_empty) {
            return false;
        }
        let (lo, hi) = self.map[d].bounds(&self.ranges);
        lo < 0 || hi >= n as i64
    }
}

impl Access {
    /// Returns an access with one piece that covers all loops.
    /// The position in dimension d is the index of loop `loops[d]`, or 0 (broadcast) if that is
    /// `None`.
    pub fn from_loops(operand: usize, dtype: DType, extents: &[usize], loops: &[Option<usize>]) -> Access {
        let map = loops
            .iter()
            .map(|l| l.map_or(AffineExpr::constant(0), |l| AffineExpr::linear(0, l, 1)))
            .collect();
        let span = StridedRange::full_box(extents);
        Access {
            dtype,
            pieces: vec![AccessPiece { source: Source::Value(operand), ranges: span, map }],
            fill: Scalar::zero(dtype),
        }
    }
}

impl ScalarCode {
    /// Returns code that copies access 0.
    pub fn copy(dtype: DType) -> ScalarCode {
        ScalarCode::single(ScalarOp::Copy, dtype, dtype, &[ScalarArg::Access(0)])
    }
    /// Returns code of a single instruction.
    pub fn single(op: ScalarOp, operand_dtype: DType, dtype: DType, args: &[ScalarArg]) -> ScalarCode {
        ScalarCode { insts: vec![ScalarInst { op, operand_dtype, dtype, args: SmallVec::from_slice(args) }] }
    }
    /// Returns the constant that the code computes, regardless of its accesses.
    /// Returns `None` if the code is not a single constant.
    pub(crate) fn as_constant(&self) -> Option<Scalar> {
        match &self.insts[..] {
            [ScalarInst { op: ScalarOp::Copy, args, .. }] => match args[..] {
                [ScalarArg::Const(x)] => Some(x),
                _ => None,
            },
            _ => None,
        }
    }
    /// Appends an instruction and returns its result as an operand.
    pub fn push(
        &mut self,
        op: ScalarOp,
        operand_dtype: DType,
        dtype: DType,
        args: &[ScalarArg],
    ) -> ScalarArg {
        self.insts.push(ScalarInst { op, operand_dtype, dtype, args: SmallVec::from_slice(args) });
        ScalarArg::Inst(self.insts.len() - 1)
    }
}
