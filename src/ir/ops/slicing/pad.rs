//! The primitive `pad`, which adds a constant around and between the elements of an array.

use super::{Slice, check_length, mapped_factors};
use crate::core::{ArrayType, DType, Fault, Result, Scalar, Shape, Spec};
use crate::ir::ops::dim_check::{access_piece, arity, format_list, format_out_sharding, shape_fault, view};
use crate::ir::ops::structural::out_sharding_rules;
use crate::ir::program::{
    AffineExpr, BatchedOp, Builder, DimMap, Factors, JvpArgs, Linearity, LoopNest, Primitive, StridedRange,
    Tangents, TransposeArgs, TypedOperand, Value, VmapArgs, typing::cotangent_type, with_inserted,
};
use std::sync::Arc;

/// The operand with a constant added around and between elements.
///
/// Negative `low` and `high` remove elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pad {
    /// The number of elements to add before the first element, for each dimension.
    pub low: Vec<i64>,
    /// The number of elements to add after the last element, for each dimension.
    pub high: Vec<i64>,
    /// The number of elements to add between neighbours, for each dimension.
    pub interior: Vec<usize>,
    /// The value of the added elements.
    pub value: Scalar,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

impl Pad {
    /// Returns the padded size of a dimension of `n` elements.
    ///
    /// The size is negative if more elements are removed than there are.
    fn size(&self, d: usize, n: usize) -> i64 {
        let n = n as i128;
        let size = i128::from(self.low[d])
            + n
            + (n - 1).max(0) * self.interior[d] as i128
            + i128::from(self.high[d]);
        size.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
    /// Returns the range `(first, end)` of elements that remain, in a dimension of `n` elements.
    fn kept_range(&self, d: usize, n: usize) -> (i64, i64) {
        let (step, size) = (self.interior[d] as i64 + 1, self.size(d, n));
        // Element k is at position low + k·step, which must be in 0..size.
        let first = ceil_div((-self.low[d]).max(0), step);
        let end = ceil_div((size - self.low[d]).max(0), step).min(n as i64);
        (first.min(end), end)
    }
}

/// Returns `n / d`, rounded up, for numbers that are not negative.
fn ceil_div(n: i64, d: i64) -> i64 {
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
            format!(", interior={}", format_list(&self.interior))
        };
        let (low, high) = (format_list(&self.low), format_list(&self.high));
        format!(
            "low={low}, high={high}{interior}, value={}{}",
            self.value,
            format_out_sharding(self.out_sharding)
        )
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        for (what, n) in
            [("low", self.low.len()), ("high", self.high.len()), ("interior", self.interior.len())]
        {
            check_length(what, n, x.rank())?;
        }
        let mut shape = Vec::with_capacity(x.rank());
        for (d, &n) in x.shape.iter().enumerate() {
            let most = 1u64 << 62;
            if self.low[d].unsigned_abs().max(self.high[d].unsigned_abs()).max(self.interior[d] as u64) > most
            {
                return Err(shape_fault(format!("dimension {d} is padded by more than can be counted"))
                    .highlight_dim(0, d));
            }
            let size = self.size(d, n);
            let Ok(size) = usize::try_from(size) else {
                return Err(shape_fault(format!(
                    "low {} and high {} cut more than dimension {d} of size {n} has",
                    self.low[d], self.high[d]
                ))
                .help(format!("cut {n} elements at most"))
                .highlight_dim(0, d));
            };
            shape.push(size);
        }
        Ok(vec![(x.dtype, shape.into())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let from = &operands[0].shape;
        mapped_factors(from, &results[0].1, |d| {
            let still = self.low[d] == 0 && self.high[d] == 0 && self.interior[d] == 0;
            let (scale, offset) = (self.interior[d] as i64 + 1, self.low[d]);
            (DimMap::Identity, if still { DimMap::Identity } else { DimMap::Affine { scale, offset } })
        })
    }
    fn linearity(&self) -> Linearity {
        if self.value.to_f64() == 0.0 { Linearity::Joint } else { Linearity::None }
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let zero = Pad { value: Scalar::zero(operands[0].ty.dtype), ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(zero), std::slice::from_ref(t))?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, types, cotangents, .. } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        let x = &types[0];
        let mut slice = Slice { start: vec![], limit: vec![], strides: vec![], out_sharding: None };
        let mut back = Pad { low: vec![], high: vec![], interior: vec![0; x.rank()], ..self.clone() };
        let mut cut = false;
        for (d, &n) in x.shape.iter().enumerate() {
            let (step, (first, end)) = (self.interior[d] as i64 + 1, self.kept_range(d, n));
            let start = if end > first { self.low[d] + first * step } else { 0 };
            slice.start.push(start as usize);
            slice.limit.push(if end > first { (start + (end - first - 1) * step + 1) as usize } else { 0 });
            slice.strides.push(step as usize);
            back.low.push(first);
            back.high.push(n as i64 - end);
            cut |= end - first != n as i64;
        }
        let expected = cotangent_type(x);
        if !cut {
            let make = |out| Arc::new(Slice { out_sharding: out, ..slice.clone() }) as _;
            return Ok(vec![Some(b.emit_with_sharding(&make, std::slice::from_ref(ct), expected.spec)?)]);
        }
        // elements that the pad removed have no cotangent
        let unsharded = Spec::replicated(x.rank())
            .unreduced(expected.spec.unreduced_axes())
            .reduced(expected.spec.reduced_axes());
        let make = |out: Option<Spec>| {
            Arc::new(Slice { out_sharding: out.map(|_| unsharded), ..slice.clone() }) as _
        };
        let kept = b.emit_with_sharding(&make, std::slice::from_ref(ct), expected.spec)?;
        let make =
            |out| Arc::new(Pad { out_sharding: out, value: Scalar::zero(x.dtype), ..back.clone() }) as _;
        Ok(vec![Some(b.emit_with_sharding(&make, &[kept], expected.spec)?)])
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (mut span, mut map) = (Vec::new(), Vec::new());
        for (d, &n) in operands[0].shape.iter().enumerate() {
            let (step, (first, end)) = (self.interior[d] as i64 + 1, self.kept_range(d, n));
            let lo = self.low[d] + first * step;
            let hi = if end > first { self.low[d] + (end - 1) * step + 1 } else { lo };
            span.push(StridedRange { lo, hi, step });
            map.push(AffineExpr::linear(first, d, 1));
        }
        let empty = span.iter().any(StridedRange::is_empty);
        let pieces = if empty { Vec::new() } else { vec![access_piece(0, span, map)] };
        view(&results[0], pieces, self.value)
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(Pad {
            low: with_inserted(&self.low, 0, 0),
            high: with_inserted(&self.high, 0, 0),
            interior: with_inserted(&self.interior, 0, 0),
            value: self.value,
            out_sharding: batch.out_sharding(self.out_sharding, 0),
        }))
    }
}

impl Builder {
    /// Pads `x` with zeros; returns `x` unchanged if no padding is needed.
    pub fn pad(&mut self, x: &Value, low: &[i64], high: &[i64]) -> Result<Value> {
        if low.iter().chain(high).all(|n| *n == 0) {
            return Ok(x.clone());
        }
        let (low, high, interior) = (low.to_vec(), high.to_vec(), vec![0; x.ty.rank()]);
        let prim = Pad { low, high, interior, value: Scalar::zero(x.ty.dtype), out_sharding: None };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        pad_with_zeros_between: Pad { low: vec![1], high: vec![-1], interior: vec![1], value: Scalar::Float(0.0), out_sharding: None }, ["float32[3]"] => "
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
        pad_of_too_little_is_rejected: Pad { low: vec![-3], high: vec![-3], interior: vec![0], value: Scalar::Float(0.0), out_sharding: None }, ["float32[4]"] => "
            error: low -3 and high -3 cut more than dimension 0 of size 4 has
            cut 4 elements at most
        ";
    }
}
