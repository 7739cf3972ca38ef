//! Recurrences: what becomes of a state that decays and gains along a line.

use super::scan::totals_in;
use super::{check_axis, factors, lanes, lanes_mut, one_shape, sentence};
use crate::diagnostic::{ErrorKind, Fault, Result, Spot};
use crate::mesh::Axes;
use crate::ops::build::not_linear;
use crate::ops::elementwise::{Takes, one_dtype};
use crate::ops::view::arity;
use crate::program::factors::{Factors, Linearity, Priority};
use crate::program::sentence::Sentence;
use crate::program::{
    Back, Batch, Batched, Builder, Cut, Familiar, Forward, In, Line, Operand, Outs, Primitive, Tangents,
    Value, typing,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Element, Scalar, Shape, with_dtype};
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
        let line = Arc::new(Along { reverse: self.reverse, of: Of::Line });
        vec![sentence(line, 0, operands, self.axis, &results[0])]
    }
}

impl Builder {
    /// hᵢ = aᵢ·hᵢ₋₁ + bᵢ along a dimension, from the end with `reverse`.
    pub fn recurrence(&mut self, a: &Value, b: &Value, axis: usize, reverse: bool) -> Result<Value> {
        self.emit1(Arc::new(Recurrence { axis, reverse }), &[a.clone(), b.clone()])
    }
}

/// What runs: the whole line, or what devices do that hold blocks of it.
#[derive(Clone, Copy, Debug)]
enum Of {
    Line,
    /// Of decays and gains: what all decays make, and the state behind the last one.
    Totals,
    /// Of lines of these: the state before each.
    Before,
    /// Of decays, gains and the state before them.
    Block,
}

/// The function of lines.
#[derive(Debug)]
struct Along {
    reverse: bool,
    of: Of,
}

impl Line for Along {
    fn key(&self) -> String {
        let of = match self.of {
            Of::Line => "",
            Of::Totals => " of a block",
            Of::Before => " before it",
            Of::Block => " on",
        };
        format!("recurrence{of}{}", if self.reverse { " from the end" } else { "" })
    }
    fn cost(&self, elements: usize) -> f64 {
        2.0 * elements as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match (self.of, operands) {
            (_, [a, b, ..]) if a != b || !a.0.is_number() || a.1.len() != 1 => {}
            (Of::Line | Of::Before, [a, _]) => return Ok(vec![a.clone()]),
            (Of::Totals, [a, _]) => return Ok(vec![(totals_in(a.0), Shape::scalar()); 2]),
            (Of::Block, [a, _, state]) if *state == (totals_in(a.0), a.1.clone()) => {
                return Ok(vec![a.clone()]);
            }
            _ => {}
        }
        Err("a recurrence is of two lines of numbers that are alike".into())
    }
    fn cut(&self, operands: &[DType]) -> Cut {
        let of = |of| Arc::new(Along { of, ..*self });
        let state = totals_in(operands[0]);
        match self.of {
            Of::Line => Cut::Scan {
                totals: of(Of::Totals),
                told: vec![state; 2],
                before: of(Of::Before),
                state,
                block: of(Of::Block),
                neutral: vec![Scalar::one(operands[0]), Scalar::zero(operands[1])],
            },
            Of::Totals | Of::Before | Of::Block => Cut::Whole,
        }
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        with_dtype!(ins[0].dtype(), {
            Bool => unreachable!("decays are numbers"),
            Int T => self.along::<T, T>(ins, outs, |x| x, |x| x, T::wrapping_mul, T::wrapping_add),
            Half T => self.along::<T, f32>(ins, outs, |x| x.to_f32(), T::from_f32, |a, b| a * b, |a, b| a + b),
            Float T => self.along::<T, T>(ins, outs, |x| x, |x| x, |a, b| a * b, |a, b| a + b),
            Complex T => self.along::<T, T>(ins, outs, |x| x, |x| x, |a, b| a * b, |a, b| a + b),
        })
    }
}

impl Along {
    fn along<T: Element, W: Element + Default>(
        &self,
        ins: &[In<'_>],
        outs: &mut Outs<'_>,
        wide: impl Fn(T) -> W,
        narrow: impl Fn(W) -> T,
        times: impl Fn(W, W) -> W,
        plus: impl Fn(W, W) -> W,
    ) {
        let step = |a: W, state: W, b: W| plus(times(a, state), b);
        let (a, b) = (lanes(ins[0].view::<T>()), lanes(ins[1].view::<T>()));
        let places = |n: usize| (0..n).map(move |i| if self.reverse { n - 1 - i } else { i });
        match self.of {
            Of::Line | Of::Block => {
                let Some(mut h) = outs.take(0) else { return };
                let first = ins.get(2).map(|s| lanes(s.view::<W>()));
                for (k, mut h) in lanes_mut(h.fresh::<T>()).into_iter().enumerate() {
                    let mut state = first.as_ref().and_then(|s| s[k].first().copied()).unwrap_or_default();
                    for i in places(a[k].len()) {
                        state = step(wide(a[k][i]), state, wide(b[k][i]));
                        h[i].write(narrow(state));
                    }
                }
            }
            Of::Totals => {
                let (mut decays, mut states) = (outs.take(0), outs.take(1));
                let mut decays = decays.as_mut().map(|y| y.fresh::<W>().into_iter());
                let mut states = states.as_mut().map(|y| y.fresh::<W>().into_iter());
                for (a, b) in a.iter().zip(&b) {
                    let each = || places(a.len()).map(|i| (wide(a[i]), wide(b[i])));
                    if let Some(y) = decays.as_mut().and_then(Iterator::next) {
                        let product = each().map(|x| x.0).reduce(&times);
                        y.write(product.unwrap_or_default());
                    }
                    if let Some(y) = states.as_mut().and_then(Iterator::next) {
                        y.write(each().fold(W::default(), |state, (a, b)| step(a, state, b)));
                    }
                }
            }
            Of::Before => {
                let Some(mut h) = outs.take(0) else { return };
                let (a, b) = (lanes(ins[0].view::<W>()), lanes(ins[1].view::<W>()));
                for (k, mut h) in lanes_mut(h.fresh::<W>()).into_iter().enumerate() {
                    let mut state = W::default();
                    for i in places(a[k].len()) {
                        h[i].write(state);
                        state = step(a[k][i], state, b[k][i]);
                    }
                }
            }
        }
    }
}
