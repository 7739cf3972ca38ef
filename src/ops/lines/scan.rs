//! Running sums, products and extremes.
//!
//! The order of addition is that of [`order`](super::order): fixed by the length of the line alone.

use super::order::{self, How, Lane};
use super::{check_axis, factors, sentence};
use crate::diagnostic::{Fault, Result};
use crate::ops::build::not_linear;
use crate::ops::elementwise::{Binary, Takes};
use crate::ops::slicing::Pad;
use crate::ops::view::arity;
use crate::program::factors::{Factors, Linearity, Priority};
use crate::program::sentence::{Combine, Sentence};
use crate::program::{
    Back, Batch, Batched, Builder, Cut, Familiar, Forward, In, Line, Operand, Out, Outs, Primitive, Stages,
    Tangents, Value, staged,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape, with_dtype};
use ndarray::{Ix1, s};
use std::ops::Range;
use std::sync::Arc;

/// What runs along a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Running {
    /// The sum so far.
    Sum,
    /// The product so far.
    Prod,
    /// The greatest so far; NaN from the first on.
    Max,
    /// The least so far; NaN from the first on.
    Min,
    /// The logarithm of the sum of the exponentials so far.
    LogSumExp,
}

/// `cumsum{axis, reverse}` and its kin: each element combined with all before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scan {
    /// What runs.
    pub kind: Running,
    /// Along which dimension.
    pub axis: usize,
    /// Whether from the end.
    pub reverse: bool,
}

impl Running {
    /// As programs print it.
    pub fn name(self) -> &'static str {
        match self {
            Running::Sum => "cumsum",
            Running::Prod => "cumprod",
            Running::Max => "cummax",
            Running::Min => "cummin",
            Running::LogSumExp => "cumlogsumexp",
        }
    }
    /// How two elements are combined, where a word says it.
    fn combine(self) -> Option<Combine> {
        Some(match self {
            Running::Sum => Combine::Add,
            Running::Prod => Combine::Mul,
            Running::Max => Combine::Max,
            Running::Min => Combine::Min,
            Running::LogSumExp => return None,
        })
    }
    fn takes(self) -> Takes {
        match self {
            Running::Sum | Running::Prod => Takes::Number,
            Running::Max | Running::Min => Takes::Ordered,
            Running::LogSumExp => Takes::Float,
        }
    }
    /// Where it is not linear: the slopes of the results y by those before them and by the elements x.
    fn slopes(self, b: &mut Builder, x: &Value, y: &Value, of: &Scan) -> Result<Option<(Value, Value)>> {
        let before = |b: &mut Builder, first| b.shifted(y, of.axis, of.reverse, first);
        Ok(match self {
            Running::Sum => None,
            Running::Prod => Some((x.clone(), before(b, 1.0)?)),
            // the first of those that are extreme; no element is NaN
            Running::Max | Running::Min => {
                let before = before(b, f64::NAN)?;
                let new = b.binary(Binary::Ne, y, &before)?;
                let new = b.convert(&new, x.ty.dtype)?;
                let one = b.number(&x.ty, 1.0)?;
                Some((b.sub(&one, &new)?, new))
            }
            Running::LogSumExp => {
                let before = before(b, f64::NEG_INFINITY)?;
                Some((b.share(&before, y)?, b.share(x, y)?))
            }
        })
    }
}

impl Primitive for Scan {
    fn name(&self) -> &'static str {
        self.kind.name()
    }
    fn params(&self) -> String {
        format!("axis={}, reverse={}", self.axis, self.reverse)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        check_axis(self.axis, operands)?;
        self.kind.takes().check(operands, 0)?;
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        factors(operands, self.axis, 1)
    }
    fn linearity(&self) -> Linearity {
        if self.kind == Running::Sum { Linearity::Joint } else { Linearity::None }
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        Ok(vec![Some(match self.kind.slopes(b, &operands[0], &outputs[0], self)? {
            Some((decay, weight)) => {
                let gain = b.mul(&weight, t)?;
                b.recurrence(&decay, &gain, self.axis, self.reverse)?
            }
            None => b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?,
        })])
    }
    fn transpose(&self, Back { b, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        if self.kind != Running::Sum {
            return Err(not_linear(self.name()));
        }
        let back = Scan { reverse: !self.reverse, ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(back), std::slice::from_ref(ct))?)])
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(Scan { axis: self.axis + 1, ..self.clone() }))
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        Some(Familiar::Running { axis: self.axis, reverse: self.reverse, combine: self.kind.combine() })
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let line = Arc::new(Along { kind: self.kind, reverse: self.reverse, of: Of::Line });
        vec![sentence(line, 0, operands, self.axis, &results[0])]
    }
}

impl Builder {
    /// e^(x − y), and 1 where both are the same infinity.
    fn share(&mut self, x: &Value, y: &Value) -> Result<Value> {
        let (same, off) = (self.eq(x, y)?, self.sub(x, y)?);
        let zero = self.zero_beside(&off.ty)?;
        let off = self.select(&same, &zero, &off)?;
        self.exp(&off)
    }
    /// Each element replaced by its neighbour before (with `reverse`: behind) along a dimension; the first one is this number.
    pub(super) fn shifted(&mut self, x: &Value, axis: usize, reverse: bool, first: f64) -> Result<Value> {
        let rank = x.ty.rank();
        let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
        (low[axis], high[axis]) = if reverse { (-1, 1) } else { (1, -1) };
        let (interior, value) = (vec![0; rank], Scalar::Float(first));
        self.emit1(Arc::new(Pad { low, high, interior, value, out: None }), std::slice::from_ref(x))
    }
}

/// An expression for each element type `$T`, with how its elements are combined.
macro_rules! running {
    ($kind:expr, $dtype:expr, $T:ident, $with:ident => $e:expr) => {
        with_dtype!($dtype, {
            Bool => {
                type $T = bool;
                let $with = &<$T as Lane>::with($kind);
                $e
            },
            Int $T => { let $with = &<$T as Lane>::with($kind); $e },
            Half $T => { let $with = &<$T as Lane>::with($kind); $e },
            Float $T => { let $with = &<$T as Lane>::with($kind); $e },
            Complex $T => { let $with = &<$T as Lane>::with($kind); $e },
        })
    };
}

/// What runs: the whole line, or what devices do that hold blocks of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    Line,
    Total,
    Before,
    Block,
}

/// The function of lines.
#[derive(Clone, Debug)]
pub(super) struct Along {
    pub(super) kind: Running,
    pub(super) reverse: bool,
    pub(super) of: Of,
}

impl Along {
    fn how(&self) -> How {
        How { reverse: self.reverse, sum: self.kind == Running::Sum }
    }
}

impl Line for Along {
    fn key(&self) -> String {
        let of = match self.of {
            Of::Line => "",
            Of::Total => " of a block",
            Of::Before => " before it",
            Of::Block => " on",
        };
        format!("{}{of}{}", self.kind.name(), if self.reverse { " from the end" } else { "" })
    }
    fn cost(&self, elements: usize) -> f64 {
        0.4 * elements as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        let wrong = || Err(format!("{} does not take such lines", self.key()));
        match (self.of, operands) {
            (_, [(dtype, n), ..]) if !self.kind.takes().holds(*dtype) || n.len() != 1 => wrong(),
            (Of::Line | Of::Before, [x]) => Ok(vec![x.clone()]),
            (Of::Total, [(dtype, _)]) => Ok(vec![(totals_in(*dtype), Shape::scalar())]),
            (Of::Block, [x, before]) if *before == (totals_in(x.0), x.1.clone()) => Ok(vec![x.clone()]),
            _ => wrong(),
        }
    }
    fn cut(&self, operands: &[DType]) -> Cut {
        let of = |of| Arc::new(Along { of, ..self.clone() });
        let state = totals_in(operands[0]);
        match self.of {
            Of::Line => Cut::Scan {
                totals: of(Of::Total),
                told: vec![state],
                before: of(Of::Before),
                state,
                block: of(Of::Block),
                neutral: vec![self.kind.combine().unwrap_or(Combine::Max).neutral(operands[0])],
            },
            Of::Total | Of::Before | Of::Block => Cut::Whole,
        }
    }
    fn stages(&self, operands: &[DType], _: usize, _: &[bool]) -> Option<Arc<dyn Stages>> {
        let whole = matches!(self.of, Of::Line);
        whole.then(|| Blocks { of: self.clone(), dtype: operands[0] }).and_then(staged)
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let Some(mut y) = outs.take(0) else { return };
        let (of, how) = (self.of, self.how());
        running!(self.kind, ins[0].dtype(), T, with => {
            let (x, before) = (&ins[0], ins.get(1));
            match of {
                Of::Line => order::scan(x.view::<T>(), y.fresh::<T>(), how, with),
                Of::Total => order::totals(x.view::<T>(), y.fresh::<Wide<T>>(), how, with),
                Of::Before => order::before(x.view::<Wide<T>>(), y.fresh::<Wide<T>>(), how.reverse, with),
                Of::Block => {
                    let Some(before) = before else { return };
                    order::on(x.view::<T>(), before.view::<Wide<T>>(), y.fresh::<T>(), how, with);
                }
            }
        })
    }
}

/// What elements of a type are combined in.
type Wide<T> = <T as Lane>::Wide;

/// A long line by blocks: what each adds up to, then each behind those before it.
#[derive(Debug)]
struct Blocks {
    of: Along,
    dtype: DType,
}

impl Stages for Blocks {
    fn step(&self) -> usize {
        order::BLOCK
    }
    fn reverse(&self) -> bool {
        self.of.reverse
    }
    fn room(&self, places: usize) -> (DType, usize) {
        (totals_in(self.dtype), places.div_ceil(order::BLOCK))
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        running!(self.of.kind, self.dtype, T, with => {
            let (x, room) = (ins[0].view::<T>(), room.fresh::<Wide<T>>());
            let (Ok(x), Ok(room)) = (x.into_dimensionality::<Ix1>(), room.into_dimensionality::<Ix1>()) else { return };
            order::blocks_of(x.slice(s![places]), room, self.of.how(), with);
        });
    }
    fn then(&self, run: usize, places: Range<usize>, ins: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>) {
        let Some(mut y) = outs.take(0) else { return };
        running!(self.of.kind, self.dtype, T, with => {
            let before = rooms[..run].iter().flat_map(|r| r.view::<Wide<T>>()).copied().reduce(with.two);
            let (x, y) = (ins[0].view::<T>(), y.fresh::<T>());
            let (Ok(x), Ok(y)) = (x.into_dimensionality::<Ix1>(), y.into_dimensionality::<Ix1>()) else { return };
            order::line(x.slice(s![places]), y, before, self.of.how(), with);
        });
    }
}

/// The element type in which elements of this one are combined.
pub(super) fn totals_in(dtype: DType) -> DType {
    if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        cumsum_along_a_whole_dimension: Scan { kind: Running::Sum, axis: 1, reverse: false }, ["float32[2@X,3]"] => "
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
        cumsum_along_a_split_dimension_is_refused: Scan { kind: Running::Sum, axis: 0, reverse: false }, ["float32[2@X,3]"] => "
            refused: dimension 0 of the operand, 2@X, must be unsharded here
            reshard it first: `.reshard(p![_, _])`
        ";
        cumprod_of_bools_is_refused: Scan { kind: Running::Prod, axis: 0, reverse: false }, ["bool[3]"] => "
            refused: operand 0 is bool, but numbers are expected
            convert it first: `.astype(I32)`
        ";
    }
}
