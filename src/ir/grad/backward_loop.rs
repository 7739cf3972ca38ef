//! Transposes loops: the backward loop of a linear loop.
//!
//! It runs in the opposite order. Its carries are the cotangents of the carries, and the sums of
//! the cotangents of loop-invariant operands.

use super::call::spread_tangents;
use super::transpose::{CotangentExit, TransposedOp, TransposedProgram, body_builder, transpose};
use super::util::{cotangent_types, count_set, input_types};
use crate::core::{ArrayType, Result};
use crate::ir::program::dce::{dce, select};
use crate::ir::program::{Builder, Control, Loop, Program, Tangents, Value, typing::cotangent_type};
use std::sync::Arc;

/// Transposes a linear loop, in which all carries are tangents.
pub(super) fn transpose_loop(b: &mut Builder, l: &Loop, turned: &TransposedOp<'_>) -> Result<Tangents> {
    let back = BackwardLoop::new(l, turned)?;
    let types = back.types_by_kind();
    let control = Control::Loop(back.backward(&types)?);
    let operands = back.operands(b, turned, &types)?;
    let xs_types = &turned.types[l.fixed + l.carry..];
    let xs_types = select(&select(xs_types, back.xs_linear()), back.xs_reached());
    let LoopTypes { carries, sums, .. } = types;
    let (n_carry, n_sums) = (carries.len(), sums.len());
    let mut outs = b.control(control, &operands, [carries, sums, cotangent_types(&xs_types)].concat());
    let of_xs = outs.split_off(n_carry + n_sums);
    let of_fixed = outs.split_off(n_carry);
    Ok(back.of_operands(of_fixed, outs, of_xs))
}

/// The transpose of a linear loop.
struct BackwardLoop<'a> {
    /// The loop.
    l: &'a Loop,
    /// A flag for each operand that is true if it is linear.
    /// All carries are.
    is_linear: Vec<bool>,
    /// A flag for each result that is true if it has a cotangent.
    given: Vec<bool>,
    /// A flag for each carry that is true if it has a cotangent in some iteration.
    carries: Vec<bool>,
    /// The transposed body.
    body: Program,
    /// A flag for each linear operand that is true if a cotangent reaches it.
    reached: Vec<bool>,
}

/// The types of the inputs of a backward loop's body, in their order after the iteration number.
struct LoopTypes {
    /// The loop-invariant operands without a tangent.
    fixed: Vec<ArrayType>,
    /// The cotangents of the carries.
    carries: Vec<ArrayType>,
    /// The sums for loop-invariant operands.
    sums: Vec<ArrayType>,
    /// The slices without a tangent.
    xs: Vec<ArrayType>,
    /// The slices of the stacked results' cotangents.
    ys: Vec<ArrayType>,
}

impl<'a> BackwardLoop<'a> {
    /// Transposes the body of a loop.
    ///
    /// The set of carries that have a cotangent grows to a fixed point.
    fn new(l: &'a Loop, turned: &TransposedOp<'_>) -> Result<BackwardLoop<'a>> {
        let mut is_linear = turned.is_linear();
        is_linear[l.fixed..l.fixed + l.carry].fill(true);
        let of_body = [&[false][..], &is_linear].concat();
        let given = turned.has_cotangent();
        let mut carries = given[..l.carry].to_vec();
        let n_fixed = count_set(&is_linear[..l.fixed]);
        loop {
            // in the loop, sums of cotangents of loop-invariant operands keep their type; they are
            // converted once, after the loop
            let leave = |i| if i <= l.fixed { CotangentExit::Unreduced } else { CotangentExit::Fitted };
            let back = transpose(&l.body, &of_body, &[&carries, &given[l.carry..]].concat(), &leave)?;
            let TransposedProgram { program: body, reached } = back;
            let of_carries = &reached[n_fixed..n_fixed + l.carry];
            if of_carries.iter().zip(&carries).all(|(r, c)| *c || !*r) {
                return Ok(BackwardLoop { l, is_linear, given, carries, body, reached });
            }
            carries.iter_mut().zip(of_carries).for_each(|(c, r)| *c |= r);
        }
    }
    /// Returns the flags of the loop-invariant operands that are linear.
    fn fixed_linear(&self) -> &[bool] {
        &self.is_linear[..self.l.fixed]
    }
    /// Returns the flags of the sliced operands that are linear.
    fn xs_linear(&self) -> &[bool] {
        &self.is_linear[self.l.fixed + self.l.carry..]
    }
    /// Returns the flags of the linear loop-invariant operands that a cotangent reaches.
    fn fixed_reached(&self) -> &[bool] {
        &self.reached[..count_set(self.fixed_linear())]
    }
    /// Returns the flags of the carries that a cotangent reaches.
    fn carry_reached(&self) -> &[bool] {
        let first = count_set(self.fixed_linear());
        &self.reached[first..first + self.l.carry]
    }
    /// Returns the flags of the linear sliced operands that a cotangent reaches.
    fn xs_reached(&self) -> &[bool] {
        &self.reached[count_set(self.fixed_linear()) + self.l.carry..]
    }
    /// Returns the types of the body's inputs.
    fn types_by_kind(&self) -> LoopTypes {
        let l = self.l;
        let (_, types) = l.split_body_inputs(&input_types(&l.body));
        let known = |flags: &[bool]| flags.iter().map(|f| !f).collect::<Vec<_>>();
        LoopTypes {
            fixed: select(&types.fixed, &known(self.fixed_linear())),
            carries: cotangent_types(&select(&types.carry, &self.carries)),
            sums: self.body.output_types()[..count_set(self.fixed_reached())].to_vec(),
            xs: select(&types.xs, &known(self.xs_linear())),
            ys: cotangent_types(&select(&l.body.output_types()[l.carry..], &self.given[l.carry..])),
        }
    }
    /// Returns the backward loop.
    fn backward(&self, types: &LoopTypes) -> Result<Loop> {
        let LoopTypes { fixed, carries, sums, xs, ys } = types;
        let step = [self.l.body.ty(self.l.body.inputs[0]).clone()];
        let (mut inner, ins) = body_builder(&[&step, &fixed[..], carries, sums, xs, ys].concat());
        let mut rest = ins.into_iter();
        let mut take = |n: usize| rest.by_ref().take(n).collect::<Vec<Value>>();
        let (step, fixed_in, carry_in) = (take(1), take(fixed.len()), take(carries.len()));
        let (sums_in, xs_in, ys_in) = (take(sums.len()), take(xs.len()), take(ys.len()));
        // the transposed program takes its nonlinear inputs in the order of the body, then the
        // cotangents
        let outs = inner.inline(&self.body, &[step, fixed_in, xs_in, carry_in, ys_in].concat());
        let mut outs = outs.into_iter();
        let fixed_cts: Vec<Value> = outs.by_ref().take(sums.len()).collect();
        let carry_cts = outs.by_ref().take(count_set(self.carry_reached()));
        let carry_cts = spread_tangents(self.carry_reached(), carry_cts);
        let mut results = self.carry_cotangents(&mut inner, &carry_cts)?;
        for (sum, ct) in sums_in.iter().zip(&fixed_cts) {
            results.push(inner.accumulate_cotangent(sum, ct)?);
        }
        results.extend(outs);
        Ok(Loop {
            body: Arc::new(dce(&inner.finish(&results))),
            reverse: !self.l.reverse,
            fixed: fixed.len(),
            carry: carries.len() + sums.len(),
            ..self.l.clone()
        })
    }
    /// Returns the operands of the backward loop, in the order of its inputs.
    fn operands(&self, b: &mut Builder, turned: &TransposedOp<'_>, types: &LoopTypes) -> Result<Vec<Value>> {
        let l = self.l;
        let of = |range: std::ops::Range<usize>| turned.operands[range].iter().flatten().cloned();
        let mut operands: Vec<Value> = of(0..l.fixed).collect();
        operands.extend(self.carry_cotangents(b, &turned.cts[..l.carry])?);
        for ty in &types.sums {
            operands.push(b.zeros(ty)?);
        }
        operands.extend(of(l.fixed + l.carry..turned.operands.len()));
        operands.extend(turned.cts[l.carry..].iter().flatten().cloned());
        Ok(operands)
    }
    /// Returns the cotangents of the carries that have one in some iteration.
    /// Those that are `None` are zeros.
    fn carry_cotangents(&self, b: &mut Builder, cts: &[Option<Value>]) -> Result<Vec<Value>> {
        let (_, types) = self.l.split_body_inputs(&input_types(&self.l.body));
        let all = self.carries.iter().zip(cts).zip(&types.carry).filter(|((has, _), _)| **has);
        all.map(|((_, ct), ty)| ct.clone().map_or_else(|| b.zeros(&cotangent_type(ty)), Ok)).collect()
    }
    /// Assigns the results of the backward loop to the operands.
    fn of_operands(&self, fixed: Vec<Value>, carry: Vec<Value>, xs: Vec<Value>) -> Tangents {
        let of_linear = |linear: &[bool], reached: &[bool], cts: Vec<Value>| {
            let mut cts = spread_tangents(reached, cts).into_iter();
            let next = |linear: &bool| if *linear { cts.next().flatten() } else { None };
            linear.iter().map(next).collect::<Vec<_>>()
        };
        let fixed = of_linear(self.fixed_linear(), self.fixed_reached(), fixed);
        let xs = of_linear(self.xs_linear(), self.xs_reached(), xs);
        [fixed, spread_tangents(&self.carries, carry), xs].concat()
    }
}
