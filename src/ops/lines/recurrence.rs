//! Recurrences: what becomes of a state that decays and gains along a line.

use super::{check_axis, factors, one_shape, sentence};
use crate::diagnostic::{ErrorKind, Fault, Result, Spot};
use crate::mesh::Axes;
use crate::ops::build::not_linear;
use crate::ops::elementwise::{Takes, one_dtype};
use crate::ops::view::arity;
use crate::program::factors::{Factors, Linearity, Priority};
use crate::program::sentence::Sentence;
use crate::program::{
    Back, Batch, Batched, Builder, Familiar, Forward, In, Line, Operand, Out, Outs, Primitive, Tangents,
    Value, typing,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Element, Shape, with_dtype};
use ndarray::Axis;
use std::sync::Arc;

/// `recurrence{axis, reverse}` of a and b: hᵢ = aᵢ·hᵢ₋₁ + bᵢ along a dimension, where h before the first is 0. Of 16-bit floats the state
/// is float32. It is linear in b; derivatives of running products, extremes and logarithms of sums are recurrences.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recurrence {
    /// Along which dimension.
    pub axis: usize,
    /// Whether from the end.
    pub reverse: bool,
}

impl Primitive for Recurrence {
    fn name(&self) -> &'static str {
        "recurrence"
    }
    fn params(&self) -> String {
        format!("axis={}, reverse={}", self.axis, self.reverse)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity("recurrence", operands, 2)?[0];
        one_dtype(operands, 0)?;
        one_shape(operands)?;
        check_axis(self.axis, operands)?;
        Takes::Number.check(operands, 0)?;
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        factors(operands, self.axis, 1)
    }
    fn linearity(&self) -> Linearity {
        Linearity::Product
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    /// From the factors; but it is linear in what is gained only.
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let types = typing::by_factors(self, operands)?;
        let (k, decay) = (operands[0].number(0), operands[0].told());
        let parts = decay.spec.unreduced_axes();
        if !parts.is_empty() {
            let message =
                format!("operand {k}, {decay}, is unreduced over {parts}: a state does not decay by parts");
            let whole = decay.spec.unreduced(Axes::none());
            return Err(Fault::new(ErrorKind::Sharding, message)
                .help(format!("reduce it first: `.reshard({whole})`, of operand {k}"))
                .mark(0, Spot::Sets));
        }
        Ok(types)
    }
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let by_decay = match &tangents[0] {
            Some(t) => {
                let before = b.shifted(&outputs[0], self.axis, self.reverse, 0.0)?;
                Some(b.mul(t, &before)?)
            }
            None => None,
        };
        let Some(gain) = b.sum_of(by_decay, tangents[1].clone())? else { return Ok(vec![None]) };
        Ok(vec![Some(b.recurrence(&operands[0], &gain, self.axis, self.reverse)?)])
    }
    fn transpose(&self, Back { b, operands, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(decay) = &operands[0] else { return Err(not_linear("recurrence")) };
        // from the other end, where each decays as its successor does
        let decay = b.shifted(decay, self.axis, !self.reverse, 0.0)?;
        Ok(vec![None, Some(b.recurrence(&decay, ct, self.axis, !self.reverse)?)])
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::alike(Arc::new(Recurrence { axis: self.axis + 1, ..self.clone() }), false)
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        Some(Familiar::Recurrence { axis: self.axis, reverse: self.reverse })
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let line = Arc::new(Along { reverse: self.reverse });
        vec![sentence(line, 0, operands, self.axis, &results[0])]
    }
}

impl Builder {
    /// hᵢ = aᵢ·hᵢ₋₁ + bᵢ along a dimension, from the end with `reverse`.
    pub fn recurrence(&mut self, a: &Value, b: &Value, axis: usize, reverse: bool) -> Result<Value> {
        self.emit1(Arc::new(Recurrence { axis, reverse }), &[a.clone(), b.clone()])
    }
}

/// The function of lines.
#[derive(Debug)]
struct Along {
    reverse: bool,
}

impl Line for Along {
    fn key(&self) -> String {
        format!("recurrence{}", if self.reverse { " from the end" } else { "" })
    }
    fn cost(&self, elements: usize) -> f64 {
        2.0 * elements as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [a, b] if a == b && a.0.is_number() && a.1.len() == 1 => Ok(vec![a.clone()]),
            _ => Err("a recurrence is of two lines of numbers that are alike".into()),
        }
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let Some(h) = outs.take(0) else { return };
        with_dtype!(h.dtype(), {
            Bool => unreachable!("decays are numbers"),
            Int T => self.along::<T, T>(ins, h, |x| x, |x| x, |a, h, b| a.wrapping_mul(h).wrapping_add(b)),
            Half T => self.along::<T, f32>(ins, h, |x| x.to_f32(), T::from_f32, |a, h, b| a * h + b),
            Float T => self.along::<T, T>(ins, h, |x| x, |x| x, |a, h, b| a * h + b),
            Complex T => self.along::<T, T>(ins, h, |x| x, |x| x, |a, h, b| a * h + b),
        })
    }
}

impl Along {
    fn along<T: Element, W: Copy + Default>(
        &self,
        ins: &[In<'_>],
        mut h: Out<'_>,
        wide: impl Fn(T) -> W,
        narrow: impl Fn(W) -> T,
        step: impl Fn(W, W, W) -> W,
    ) {
        let (a, b) = (ins[0].view::<T>(), ins[1].view::<T>());
        let mut h = h.fresh::<T>();
        let last = Axis(a.ndim() - 1);
        for ((a, b), mut h) in a.lanes(last).into_iter().zip(b.lanes(last)).zip(h.lanes_mut(last)) {
            let mut state = W::default();
            let mut one = |i: usize| {
                state = step(wide(a[i]), state, wide(b[i]));
                h[i].write(narrow(state));
            };
            match self.reverse {
                false => (0..a.len()).for_each(&mut one),
                true => (0..a.len()).rev().for_each(&mut one),
            }
        }
    }
}
