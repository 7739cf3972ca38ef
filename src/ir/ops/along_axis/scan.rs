//! Cumulative sums, products, minima, maxima and logarithms of sums.
//!
//! Elements are combined in the order of the module `prefix_sum`, which depends only on the length
//! of the row.

use super::{check_axis, factors, row_loop_nest};
use crate::core::{ArrayType, DType, Fault, Result, Scalar, Shape, types::with_dtype};
use crate::ir::ops::elementwise::{Binary, DTypeClass};
use crate::ir::program::{
    BatchedOp, Builder, Factors, JvpArgs, Linearity, LoopNest, NamedOp, ParallelRowKernel, Primitive,
    Reducer, RowInput, RowKernel, RowOutput, RowOutputs, RowSharding, Tangents, TransposeArgs, TypedOperand,
    Value, VmapArgs, parallel_unless_wasm, typing::not_linear_error,
};
use crate::ir::{ops::dim_check::arity, ops::slicing::Pad};
pub use crate::kernels::row::prefix_sum::CumulativeOp;
use crate::kernels::row::prefix_sum::{self, ScanElement, ScanMode};
use ndarray::{Ix1, s};
use std::ops::Range;
use std::sync::Arc;

/// A scan, which combines each element with all elements before it: `cumsum{axis, reverse}` etc.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CumulativeScan {
    /// The kind of operation.
    pub kind: CumulativeOp,
    /// The dimension along which elements are combined.
    pub axis: usize,
    /// True if the scan runs from the end.
    pub reverse: bool,
}

impl CumulativeOp {
    /// Returns the name of the primitive, as programs print it.
    pub fn name(self) -> &'static str {
        match self {
            CumulativeOp::Sum => "cumsum",
            CumulativeOp::Prod => "cumprod",
            CumulativeOp::Max => "cummax",
            CumulativeOp::Min => "cummin",
            CumulativeOp::LogSumExp => "cumlogsumexp",
        }
    }
    /// Returns the reducer of two elements, if there is one.
    fn combine(self) -> Option<Reducer> {
        Some(match self {
            CumulativeOp::Sum => Reducer::Add,
            CumulativeOp::Prod => Reducer::Mul,
            CumulativeOp::Max => Reducer::Max,
            CumulativeOp::Min => Reducer::Min,
            CumulativeOp::LogSumExp => return None,
        })
    }
    fn accepted_types(self) -> DTypeClass {
        match self {
            CumulativeOp::Sum | CumulativeOp::Prod => DTypeClass::Number,
            CumulativeOp::Max | CumulativeOp::Min => DTypeClass::Ordered,
            CumulativeOp::LogSumExp => DTypeClass::Float,
        }
    }
    /// Returns the derivatives of the results `y` with respect to the preceding results and to `x`.
    ///
    /// Returns `None` for the sum, which is linear.
    fn derivatives(
        self,
        b: &mut Builder,
        x: &Value,
        y: &Value,
        scan: &CumulativeScan,
    ) -> Result<Option<(Value, Value)>> {
        let before = |b: &mut Builder, first| b.shifted(y, scan.axis, scan.reverse, first);
        Ok(match self {
            CumulativeOp::Sum => None,
            CumulativeOp::Prod => Some((x.clone(), before(b, 1.0)?)),
            // ties: the derivative goes to the first of the equal elements; elements are assumed
            // not to be NaN
            CumulativeOp::Max | CumulativeOp::Min => {
                let before = before(b, f64::NAN)?;
                let new = b.binary(Binary::Ne, y, &before)?;
                let new = b.convert(&new, x.ty.dtype)?;
                let one = b.constant_like(&x.ty, 1.0)?;
                Some((b.sub(&one, &new)?, new))
            }
            CumulativeOp::LogSumExp => {
                let before = before(b, f64::NEG_INFINITY)?;
                Some((b.exp_difference(&before, y)?, b.exp_difference(x, y)?))
            }
        })
    }
}

impl Primitive for CumulativeScan {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn params(&self) -> String {
        format!("axis={}, reverse={}", self.axis, self.reverse)
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        check_axis(self.axis, operands)?;
        self.kind.accepted_types().check(operands, 0)?;
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        factors(operands, self.axis, 1)
    }
    fn linearity(&self) -> Linearity {
        if self.kind == CumulativeOp::Sum { Linearity::Joint } else { Linearity::None }
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(match self.kind.derivatives(b, &operands[0], &outputs[0], self)? {
            Some((decay, weight)) => {
                let gain = b.mul(&weight, t)?;
                b.recurrence(&decay, &gain, self.axis, self.reverse)?
            }
            None => b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?,
        })])
    }
    fn transpose(&self, TransposeArgs { builder: b, cotangents, .. }: TransposeArgs<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        if self.kind != CumulativeOp::Sum {
            return Err(not_linear_error(self.name()));
        }
        let back = CumulativeScan { reverse: !self.reverse, ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(back), std::slice::from_ref(ct))?)])
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(CumulativeScan { axis: self.axis + 1, ..self.clone() }))
    }
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        Some(NamedOp::Cumulative { axis: self.axis, reverse: self.reverse, reducer: self.kind.combine() })
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let row_kernel =
            Arc::new(ScanKernel { kind: self.kind, reverse: self.reverse, stage: ScanStage::WholeRow });
        vec![row_loop_nest(row_kernel, 0, operands, self.axis, &results[0])]
    }
}

impl Builder {
    /// Returns e^(x − y), which is 1 where both are the same infinity.
    fn exp_difference(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let (same, off) = (self.eq(x, y)?, self.sub(x, y)?);
        let zero = self.zero_like(&off.ty)?;
        let off = self.select(&same, &zero, &off)?;
        self.exp(&off)
    }
    /// Shifts the elements along a dimension by one position, and fills the gap with `first`.
    ///
    /// With `reverse`, they are shifted towards the start.
    pub(super) fn shifted(&mut self, x: &Value, axis: usize, reverse: bool, first: f64) -> Result<Value> {
        let rank = x.ty.rank();
        let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
        (low[axis], high[axis]) = if reverse { (-1, 1) } else { (1, -1) };
        let (interior, value) = (vec![0; rank], Scalar::Float(first));
        self.emit1(Arc::new(Pad { low, high, interior, value, out_sharding: None }), std::slice::from_ref(x))
    }
}

/// Evaluates an expression for the element type `$T`, with the functions that combine its elements.
macro_rules! running {
    ($kind:expr, $dtype:expr, $T:ident, $with:ident => $e:expr) => {
        with_dtype!($dtype, {
            Bool => {
                type $T = bool;
                let $with = &<$T as ScanElement>::ops_for($kind);
                $e
            },
            Int $T => { let $with = &<$T as ScanElement>::ops_for($kind); $e },
            Half $T => { let $with = &<$T as ScanElement>::ops_for($kind); $e },
            Float $T => { let $with = &<$T as ScanElement>::ops_for($kind); $e },
            Complex $T => { let $with = &<$T as ScanElement>::ops_for($kind); $e },
        })
    };
}

/// The computation of a scan kernel.
/// It is the scan of a complete row, or a step for devices that hold blocks of a row.
#[derive(Clone, Copy, Debug)]
pub(super) enum ScanStage {
    /// The scan of a complete row.
    WholeRow,
    /// The total of a block.
    Total,
    /// The exclusive scan of the totals of all blocks.
    ExclusiveScan,
    /// The scan of a block, continued from the result of `Before`.
    Block,
}

/// The row kernel of a scan.
#[derive(Clone, Debug)]
pub(super) struct ScanKernel {
    /// The kind of scan.
    pub(super) kind: CumulativeOp,
    /// True if the scan runs from the end.
    pub(super) reverse: bool,
    /// The computation.
    pub(super) stage: ScanStage,
}

impl ScanKernel {
    fn options(&self) -> ScanMode {
        ScanMode { reverse: self.reverse, sum: self.kind == CumulativeOp::Sum }
    }
}

impl RowKernel for ScanKernel {
    fn key(&self) -> String {
        let of = match self.stage {
            ScanStage::WholeRow => "",
            ScanStage::Total => " of a block",
            ScanStage::ExclusiveScan => " before it",
            ScanStage::Block => " on",
        };
        format!("{}{of}{}", self.kind.name(), if self.reverse { " from the end" } else { "" })
    }
    fn cost(&self, elements: usize) -> f64 {
        0.4 * elements as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let wrong = || Err(format!("{} does not take such rows", self.key()));
        match (self.stage, operands) {
            (_, [(dtype, n), ..]) if !self.kind.accepted_types().contains(*dtype) || n.len() != 1 => wrong(),
            (ScanStage::WholeRow | ScanStage::ExclusiveScan, [x]) => Ok(vec![x.clone()]),
            (ScanStage::Total, [(dtype, _)]) => Ok(vec![(accumulator_dtype(*dtype), Shape::scalar())]),
            (ScanStage::Block, [x, before]) if *before == (accumulator_dtype(x.0), x.1.clone()) => {
                Ok(vec![x.clone()])
            }
            _ => wrong(),
        }
    }
    fn sharding(&self, operands: &[DType]) -> RowSharding {
        let of = |of| Arc::new(ScanKernel { stage: of, ..self.clone() });
        let state = accumulator_dtype(operands[0]);
        match self.stage {
            ScanStage::WholeRow => RowSharding::Scan {
                totals: of(ScanStage::Total),
                total_dtypes: vec![state],
                exclusive_scan: of(ScanStage::ExclusiveScan),
                carry_dtype: state,
                block: of(ScanStage::Block),
                neutral: vec![self.kind.combine().unwrap_or(Reducer::Max).neutral(operands[0])],
            },
            ScanStage::Total | ScanStage::ExclusiveScan | ScanStage::Block => RowSharding::NotSharded,
        }
    }
    fn parallel(&self, operands: &[DType], _: usize, _: &[bool]) -> Option<Arc<dyn ParallelRowKernel>> {
        let full_row = matches!(self.stage, ScanStage::WholeRow);
        full_row
            .then(|| ScanStages { kernel: self.clone(), dtype: operands[0] })
            .and_then(parallel_unless_wasm)
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let Some(mut y) = outs.take(0) else { return };
        let (of, how) = (self.stage, self.options());
        running!(self.kind, ins[0].dtype(), T, with => {
            let (x, before) = (&ins[0], ins.get(1));
            match of {
                ScanStage::WholeRow => prefix_sum::scan(x.view::<T>(), y.uninit_view::<T>(), how, with),
                ScanStage::Total => prefix_sum::totals(x.view::<T>(), y.uninit_view::<ScanAccumulator<T>>(), how, with),
                ScanStage::ExclusiveScan => prefix_sum::exclusive_scan(x.view::<ScanAccumulator<T>>(), y.uninit_view::<ScanAccumulator<T>>(), how.reverse, with),
                ScanStage::Block => {
                    let Some(before) = before else { return };
                    prefix_sum::scan_after(x.view::<T>(), before.view::<ScanAccumulator<T>>(), y.uninit_view::<T>(), how, with);
                }
            }
        })
    }
}

/// The type in which elements of type `T` are combined.
type ScanAccumulator<T> = <T as ScanElement>::Wide;

/// The parallel kernel of a long row.
/// The first pass computes the total of each block, and the second pass the results.
#[derive(Debug)]
struct ScanStages {
    /// The row kernel.
    kernel: ScanKernel,
    /// The element type of the row.
    dtype: DType,
}

impl ParallelRowKernel for ScanStages {
    fn alignment(&self) -> usize {
        prefix_sum::BLOCK_ELEMENTS
    }
    fn reverse(&self) -> bool {
        self.kernel.reverse
    }
    fn scratch(&self, num_positions: usize) -> (DType, usize) {
        (accumulator_dtype(self.dtype), num_positions.div_ceil(prefix_sum::BLOCK_ELEMENTS))
    }
    fn run_first_pass(&self, positions: Range<usize>, ins: &[RowInput<'_>], scratch: &mut RowOutput<'_>) {
        running!(self.kernel.kind, self.dtype, T, with => {
            let (x, room) = (ins[0].view::<T>(), scratch.uninit_view::<ScanAccumulator<T>>());
            let (Ok(x), Ok(room)) = (x.into_dimensionality::<Ix1>(), room.into_dimensionality::<Ix1>()) else { return };
            prefix_sum::block_totals(x.slice(s![positions]), room, self.kernel.options(), with);
        });
    }
    fn run_second_pass(
        &self,
        run: usize,
        positions: Range<usize>,
        ins: &[RowInput<'_>],
        scratch: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) {
        let Some(mut y) = outs.take(0) else { return };
        running!(self.kernel.kind, self.dtype, T, with => {
            let before = scratch[..run].iter().flat_map(|r| r.view::<ScanAccumulator<T>>()).copied().reduce(with.combine);
            let (x, y) = (ins[0].view::<T>(), y.uninit_view::<T>());
            let (Ok(x), Ok(y)) = (x.into_dimensionality::<Ix1>(), y.into_dimensionality::<Ix1>()) else { return };
            prefix_sum::scan_row(x.slice(s![positions]), y, before, self.kernel.options(), with);
        });
    }
}

/// Returns the element type in which elements of type `dtype` are combined.
pub(super) fn accumulator_dtype(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        cumsum_along_a_whole_dimension: CumulativeScan { kind: CumulativeOp::Sum, axis: 1, reverse: false }, ["float32[2@X,3]"] => "
            (a: float32[2@X,3]) {
              b: float32[2@X,3] = cumsum[axis=1, reverse=false] a
              return b
            }
            tangents: (a: float32[2@X,3], b: float32[2@X,3]) {
              c: float32[2@X,3] = cumsum[axis=1, reverse=false] a
              d: float32[2@X,3] = cumsum[axis=1, reverse=false] b
              return c, d
            }
            cotangents: (a: float32[2@X,3]) {
              b: float32[2@X,3] = cumsum[axis=1, reverse=true] a
              return b
            }
        ";
        cumsum_along_a_split_dimension_is_rejected: CumulativeScan { kind: CumulativeOp::Sum, axis: 0, reverse: false }, ["float32[2@X,3]"] => "
            error: dimension 0 of the operand, 2@X, must be unsharded here
            reshard it first: `.reshard(p![_, _])`
        ";
        cumprod_of_bools_is_rejected: CumulativeScan { kind: CumulativeOp::Prod, axis: 0, reverse: false }, ["bool[3]"] => "
            error: operand 0 is bool, but numbers are expected
            convert it first: `.astype(I32)`
        ";
    }
}
