//! Linear recurrences along a dimension: hᵢ = aᵢ·hᵢ₋₁ + bᵢ.

use super::{check_axis, check_one_shape, factors, row_loop_nest, scan::accumulator_dtype};
use crate::core::{
    ArrayType, Axes, DType, Element, ErrorKind, Fault, Result, Scalar, Shape, TypePart, types::with_dtype,
};
use crate::ir::ops::dim_check::arity;
use crate::ir::ops::elementwise::{DTypeClass, common_dtype};
use crate::ir::program::{
    BatchedOp, Builder, Factors, JvpArgs, Linearity, LoopNest, NamedOp, Primitive, RowInput, RowKernel,
    RowOutputs, RowSharding, Tangents, TransposeArgs, TypedOperand, Value, VmapArgs, typing,
    typing::not_linear_error,
};
use crate::kernels::row::{lanes, lanes_mut};
use std::sync::Arc;

/// The linear recurrence hᵢ = aᵢ·hᵢ₋₁ + bᵢ along a dimension: `recurrence{axis, reverse}`.
///
/// The operands are a and b, and the initial state is 0. For 16-bit floats, the state is float32.
/// The primitive is linear in b. It computes derivatives of cumulative products, minima, maxima and
/// logarithms of sums.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recurrence {
    /// The dimension along which the state evolves.
    pub axis: usize,
    /// True if the recurrence runs from the end.
    pub reverse: bool,
}

impl Primitive for Recurrence {
    described!(
        self,
        "recurrence",
        Linearity::Product,
        format!("axis={}, reverse={}", self.axis, self.reverse)
    );
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity("recurrence", operands, 2)?[0];
        common_dtype(operands, 0)?;
        check_one_shape(operands)?;
        check_axis(self.axis, operands)?;
        DTypeClass::Number.check(operands, 0)?;
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        factors(operands, self.axis, 1)
    }
    /// Infers the types from the factors, and rejects unreduced decays.
    /// The primitive is linear in the gains only.
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let types = typing::by_factors(self, operands)?;
        let (k, decay) = (operands[0].user_index(0), operands[0].user_type());
        let parts = decay.spec.unreduced_axes();
        if !parts.is_empty() {
            let message = format!(
                "operand {k}, {decay}, is unreduced over {parts}: the decay of a state must be fully reduced"
            );
            let summed = decay.spec.unreduced(Axes::none());
            return Err(Fault::new(ErrorKind::Sharding, message)
                .help(format!("reduce it first: `.reshard({summed})`, of operand {k}"))
                .highlight(0, TypePart::Sets));
        }
        Ok(types)
    }
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let by_decay = match &tangents[0] {
            Some(t) => {
                let before = b.shifted(&outputs[0], self.axis, self.reverse, 0.0)?;
                Some(b.mul(t, &before)?)
            }
            None => None,
        };
        let Some(gain) = b.add_optional(by_decay, tangents[1].clone())? else { return Ok(vec![None]) };
        Ok(vec![Some(b.recurrence(&operands[0], &gain, self.axis, self.reverse)?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, cotangents, .. } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(decay) = &operands[0] else { return Err(not_linear_error("recurrence")) };
        // the transposed recurrence runs from the other end, and each element decays by the factor
        // of its successor
        let decay = b.shifted(decay, self.axis, !self.reverse, 0.0)?;
        Ok(vec![None, Some(b.recurrence(&decay, ct, self.axis, !self.reverse)?)])
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(Recurrence { axis: self.axis + 1, ..self.clone() }), false)
    }
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        Some(NamedOp::Recurrence { axis: self.axis, reverse: self.reverse })
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let row_kernel =
            Arc::new(RecurrenceKernel { reverse: self.reverse, stage: RecurrenceStage::WholeRow });
        vec![row_loop_nest(row_kernel, 0, operands, self.axis, &results[0])]
    }
}

impl Builder {
    /// Emits hᵢ = aᵢ·hᵢ₋₁ + bᵢ along a dimension, from the end with `reverse`.
    pub fn recurrence(&mut self, a: &Value, b: &Value, axis: usize, reverse: bool) -> Result<Value> {
        self.emit1(Arc::new(Recurrence { axis, reverse }), &[a.clone(), b.clone()])
    }
}

/// The computation of a recurrence kernel.
/// It is the recurrence of a complete row, or a step for devices that hold blocks of a row.
#[derive(Clone, Copy, Debug)]
enum RecurrenceStage {
    /// The recurrence of a complete row.
    WholeRow,
    /// The totals of a block, from decays and gains: the product of all decays, and the last state.
    Totals,
    /// The state before each block, from the totals of all blocks.
    ExclusiveScan,
    /// The states of a block, from its decays and gains and the state before it.
    Block,
}

/// The row kernel of a recurrence.
#[derive(Debug)]
struct RecurrenceKernel {
    /// True if the recurrence runs from the end.
    reverse: bool,
    /// The computation.
    stage: RecurrenceStage,
}

impl RowKernel for RecurrenceKernel {
    fn key(&self) -> String {
        let of = match self.stage {
            RecurrenceStage::WholeRow => "",
            RecurrenceStage::Totals => " of a block",
            RecurrenceStage::ExclusiveScan => " before it",
            RecurrenceStage::Block => " on",
        };
        format!("recurrence{of}{}", if self.reverse { " from the end" } else { "" })
    }
    fn cost(&self, elements: usize) -> f64 {
        2.0 * elements as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match (self.stage, operands) {
            (_, [a, b, ..]) if a != b || !a.0.is_number() || a.1.len() != 1 => {}
            (RecurrenceStage::WholeRow | RecurrenceStage::ExclusiveScan, [a, _]) => {
                return Ok(vec![a.clone()]);
            }
            (RecurrenceStage::Totals, [a, _]) => {
                return Ok(vec![(accumulator_dtype(a.0), Shape::scalar()); 2]);
            }
            (RecurrenceStage::Block, [a, _, state]) if *state == (accumulator_dtype(a.0), a.1.clone()) => {
                return Ok(vec![a.clone()]);
            }
            _ => {}
        }
        Err("a recurrence needs two rows of numbers of equal type and length".into())
    }
    fn sharding(&self, operands: &[DType]) -> RowSharding {
        let of = |of| Arc::new(RecurrenceKernel { stage: of, ..*self });
        let state = accumulator_dtype(operands[0]);
        match self.stage {
            RecurrenceStage::WholeRow => RowSharding::Scan {
                totals: of(RecurrenceStage::Totals),
                total_dtypes: vec![state; 2],
                exclusive_scan: of(RecurrenceStage::ExclusiveScan),
                carry_dtype: state,
                block: of(RecurrenceStage::Block),
                neutral: vec![Scalar::one(operands[0]), Scalar::zero(operands[1])],
            },
            RecurrenceStage::Totals | RecurrenceStage::ExclusiveScan | RecurrenceStage::Block => {
                RowSharding::NotSharded
            }
        }
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        with_dtype!(ins[0].dtype(), {
            Bool => unreachable!("decays are numbers"),
            Int T => self.run_rows::<T, T>(ins, outs, |x| x, |x| x, T::wrapping_mul, T::wrapping_add),
            Half T => self.run_rows::<T, f32>(ins, outs, |x| x.to_f32(), T::from_f32, |a, b| a * b, |a, b| a + b),
            Float T => self.run_rows::<T, T>(ins, outs, |x| x, |x| x, |a, b| a * b, |a, b| a + b),
            Complex T => self.run_rows::<T, T>(ins, outs, |x| x, |x| x, |a, b| a * b, |a, b| a + b),
        })
    }
}

impl RecurrenceKernel {
    // not inlined: `run` would have the code of all element types
    #[inline(never)]
    fn run_rows<T: Element, W: Element + Default>(
        &self,
        ins: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
        wide: impl Fn(T) -> W,
        narrow: impl Fn(W) -> T,
        times: impl Fn(W, W) -> W,
        plus: impl Fn(W, W) -> W,
    ) {
        let step = |a: W, state: W, b: W| plus(times(a, state), b);
        let (a, b) = (lanes(ins[0].view::<T>()), lanes(ins[1].view::<T>()));
        let positions = |n: usize| (0..n).map(move |i| if self.reverse { n - 1 - i } else { i });
        match self.stage {
            RecurrenceStage::WholeRow | RecurrenceStage::Block => {
                let Some(mut h) = outs.take(0) else { return };
                let first = ins.get(2).map(|s| lanes(s.view::<W>()));
                for (k, mut h) in lanes_mut(h.uninit_view::<T>()).into_iter().enumerate() {
                    let mut state = first.as_ref().and_then(|s| s[k].first().copied()).unwrap_or_default();
                    for i in positions(a[k].len()) {
                        state = step(wide(a[k][i]), state, wide(b[k][i]));
                        h[i].write(narrow(state));
                    }
                }
            }
            RecurrenceStage::Totals => {
                let (mut decays, mut states) = (outs.take(0), outs.take(1));
                let mut decays = decays.as_mut().map(|y| y.uninit_view::<W>().into_iter());
                let mut states = states.as_mut().map(|y| y.uninit_view::<W>().into_iter());
                for (a, b) in a.iter().zip(&b) {
                    let each = || positions(a.len()).map(|i| (wide(a[i]), wide(b[i])));
                    if let Some(y) = decays.as_mut().and_then(Iterator::next) {
                        let product = each().map(|x| x.0).reduce(&times);
                        y.write(product.unwrap_or_default());
                    }
                    if let Some(y) = states.as_mut().and_then(Iterator::next) {
                        y.write(each().fold(W::default(), |state, (a, b)| step(a, state, b)));
                    }
                }
            }
            RecurrenceStage::ExclusiveScan => {
                let Some(mut h) = outs.take(0) else { return };
                let (a, b) = (lanes(ins[0].view::<W>()), lanes(ins[1].view::<W>()));
                for (k, mut h) in lanes_mut(h.uninit_view::<W>()).into_iter().enumerate() {
                    let mut state = W::default();
                    for i in positions(a[k].len()) {
                        h[i].write(state);
                        state = step(a[k][i], state, b[k][i]);
                    }
                }
            }
        }
    }
}
