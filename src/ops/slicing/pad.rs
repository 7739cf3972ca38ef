//! An array with a number around and between its elements: pad.

use super::{Slice, moved, same_length};
use crate::diagnostic::{Fault, Result};
use crate::ops::build::cotangent_type;
use crate::ops::view::{arity, list, part, print_out, shape_fault, view};
use crate::program::sentence::{Affine, Sentence, Span};
use crate::program::{At, Batch, Batched, Builder, Factors, Linearity, Operand, Prim, Primitive, Priority};
use crate::program::{Back, Forward};
use crate::program::{Tangents, Value, inserted};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// The operand with a number around and between its elements. Negative `low` and `high` cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pad {
    /// How many before, in each dimension.
    pub low: Vec<i64>,
    /// How many after.
    pub high: Vec<i64>,
    /// How many between neighbours.
    pub interior: Vec<usize>,
    /// The number.
    pub value: Scalar,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

impl Pad {
    /// The size of a dimension of `n` elements; negative where more is cut than there is.
    fn size(&self, d: usize, n: usize) -> i64 {
        let n = n as i128;
        let size = i128::from(self.low[d])
            + n
            + (n - 1).max(0) * self.interior[d] as i128
            + i128::from(self.high[d]);
        size.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
    /// Which elements of a dimension of `n` stay: `first..end`.
    fn kept(&self, d: usize, n: usize) -> (i64, i64) {
        let (step, size) = (self.interior[d] as i64 + 1, self.size(d, n));
        // element k is at low + k·step, which must be in 0..size
        let first = ceil((-self.low[d]).max(0), step);
        let end = ceil((size - self.low[d]).max(0), step).min(n as i64);
        (first.min(end), end)
    }
}

/// `n / d`, rounded up; both are not negative.
fn ceil(n: i64, d: i64) -> i64 {
    (n + d - 1) / d
}

impl Primitive for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }
    fn params(&self) -> String {
        let interior = if self.interior.iter().all(|i| *i == 0) {
            String::new()
        } else {
            format!(", interior={}", list(&self.interior))
        };
        let (low, high) = (list(&self.low), list(&self.high));
        format!("low={low}, high={high}{interior}, value={}{}", self.value, print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        for (what, n) in
            [("low", self.low.len()), ("high", self.high.len()), ("interior", self.interior.len())]
        {
            same_length(what, n, x.rank())?;
        }
        let mut shape = Vec::with_capacity(x.rank());
        for (d, &n) in x.shape.iter().enumerate() {
            let most = 1u64 << 62;
            if self.low[d].unsigned_abs().max(self.high[d].unsigned_abs()).max(self.interior[d] as u64) > most
            {
                return Err(
                    shape_fault(format!("dimension {d} is padded by more than can be counted")).dim(0, d)
                );
            }
            let size = self.size(d, n);
            let Ok(size) = usize::try_from(size) else {
                return Err(shape_fault(format!(
                    "low {} and high {} cut more than dimension {d} of size {n} has",
                    self.low[d], self.high[d]
                ))
                .help(format!("cut {n} elements at most"))
                .dim(0, d));
            };
            shape.push(size);
        }
        Ok(vec![(x.dtype, shape.into())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let from = &operands[0].shape;
        moved(from, &results[0].1, |d| {
            let still = self.low[d] == 0 && self.high[d] == 0 && self.interior[d] == 0;
            let (scale, offset) = (self.interior[d] as i64 + 1, self.low[d]);
            (At::Same, if still { At::Same } else { At::Affine { scale, offset } })
        })
    }
    fn linearity(&self) -> Linearity {
        if self.value.to_f64() == 0.0 { Linearity::Joint } else { Linearity::None }
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        self.out
    }
    fn with_out(&self, out: Spec) -> Option<Prim> {
        Some(Arc::new(Self { out: Some(out), ..self.clone() }))
    }
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let zero = Pad { value: Scalar::zero(operands[0].ty.dtype), ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(zero), std::slice::from_ref(t))?)])
    }
    fn transpose(&self, Back { b, types, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        let x = &types[0];
        let mut slice = Slice { start: vec![], limit: vec![], strides: vec![], out: None };
        let mut back = Pad { low: vec![], high: vec![], interior: vec![0; x.rank()], ..self.clone() };
        let mut cut = false;
        for (d, &n) in x.shape.iter().enumerate() {
            let (step, (first, end)) = (self.interior[d] as i64 + 1, self.kept(d, n));
            let start = if end > first { self.low[d] + first * step } else { 0 };
            slice.start.push(start as usize);
            slice.limit.push(if end > first { (start + (end - first - 1) * step + 1) as usize } else { 0 });
            slice.strides.push(step as usize);
            back.low.push(first);
            back.high.push(n as i64 - end);
            cut |= end - first != n as i64;
        }
        let want = cotangent_type(x);
        if !cut {
            let make = |out| Arc::new(Slice { out, ..slice.clone() }) as _;
            return Ok(vec![Some(b.emit_as(make, std::slice::from_ref(ct), want.spec)?)]);
        }
        // what the pad cut away has no cotangent
        let whole =
            Spec::whole(x.rank()).unreduced(want.spec.unreduced_axes()).reduced(want.spec.reduced_axes());
        let make = |out: Option<Spec>| Arc::new(Slice { out: out.map(|_| whole), ..slice.clone() }) as _;
        let kept = b.emit_as(make, std::slice::from_ref(ct), want.spec)?;
        let make = |out| Arc::new(Pad { out, value: Scalar::zero(x.dtype), ..back.clone() }) as _;
        Ok(vec![Some(b.emit_as(make, &[kept], want.spec)?)])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (mut span, mut map) = (Vec::new(), Vec::new());
        for (d, &n) in operands[0].shape.iter().enumerate() {
            let (step, (first, end)) = (self.interior[d] as i64 + 1, self.kept(d, n));
            let lo = self.low[d] + first * step;
            let hi = if end > first { self.low[d] + (end - 1) * step + 1 } else { lo };
            span.push(Span { lo, hi, step });
            map.push(Affine::of(first, d, 1));
        }
        let empty = span.iter().any(Span::is_empty);
        let parts = if empty { Vec::new() } else { vec![part(0, span, map)] };
        view(&results[0], parts, self.value)
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(Pad {
            low: inserted(&self.low, 0, 0),
            high: inserted(&self.high, 0, 0),
            interior: inserted(&self.interior, 0, 0),
            value: self.value,
            out: batch.out(self.out, 0),
        }))
    }
}

impl Builder {
    /// `x` with zeros around it.
    pub fn pad(&mut self, x: &Value, low: &[i64], high: &[i64]) -> Result<Value> {
        if low.iter().chain(high).all(|n| *n == 0) {
            return Ok(x.clone());
        }
        let (low, high, interior) = (low.to_vec(), high.to_vec(), vec![0; x.ty.rank()]);
        let prim = Pad { low, high, interior, value: Scalar::zero(x.ty.dtype), out: None };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        pad_with_zeros_between: Pad { low: vec![1], high: vec![-1], interior: vec![1], value: Scalar::Float(0.0), out: None }, ["float32[3]"] => "
            (a: float32[3]) {
              b: float32[5] = pad[low=[1], high=[-1], interior=[1], value=0.0] a
              return b
            }
            tangents: (a: float32[3], b: float32[3]) {
              c: float32[5] = pad[low=[1], high=[-1], interior=[1], value=0.0] a
              d: float32[5] = pad[low=[1], high=[-1], interior=[1], value=0.0] b
              return c, d
            }
            cotangents: (a: float32[5]) {
              b: float32[2] = slice[start=[1], limit=[4], strides=[2]] a
              c: float32[3] = pad[low=[0], high=[1], value=0.0] b
              return c
            }
        ";
        pad_of_too_little_is_refused: Pad { low: vec![-3], high: vec![-3], interior: vec![0], value: Scalar::Float(0.0), out: None }, ["float32[4]"] => "
            refused: low -3 and high -3 cut more than dimension 0 of size 4 has
            cut 4 elements at most
        ";
    }
}
