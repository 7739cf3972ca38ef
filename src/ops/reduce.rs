//! Reductions: dimensions summed (or multiplied, …) away.

use super::build::{cotangent_type, not_linear};
use super::elementwise::{Binary, Takes, Unary};
use super::view::arity;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Axes;
use crate::program::factors::{Dim, Factors, Linearity, Priority};
use crate::program::sentence::{Body, Code, Combine, Read, Sentence};
use crate::program::{Back, Forward};
use crate::program::{Batch, Batched, behind};
use crate::program::{Builder, Operand, Prim, Primitive, Tangents, Value};
use crate::sharding::Spec;
use crate::sorted;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// How a reduction combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each name says it")]
pub enum Reduction {
    Sum,
    Max,
    Min,
    Prod,
    And,
    Or,
}

/// `reduce_sum{axes, out}` and its kin: the dimensions in `axes` drop out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// How it combines.
    pub kind: Reduction,
    /// Which dimensions drop out, ascending.
    pub axes: Vec<usize>,
    /// The sharding asked for the result.
    pub out: Option<Spec>,
}

impl Reduce {
    /// A reduction over these dimensions, in any order.
    pub fn new(kind: Reduction, axes: &[usize], out: Option<Spec>) -> Reduce {
        let mut axes = axes.to_vec();
        sorted::sort(&mut axes);
        Reduce { kind, axes, out }
    }
    fn kept(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|d| !self.axes.contains(d)).collect()
    }
}

impl Reduction {
    pub(super) fn combine(self) -> Combine {
        match self {
            Reduction::Sum => Combine::Add,
            Reduction::Max => Combine::Max,
            Reduction::Min => Combine::Min,
            Reduction::Prod => Combine::Mul,
            Reduction::And => Combine::And,
            Reduction::Or => Combine::Or,
        }
    }
}

impl Primitive for Reduce {
    fn name(&self) -> &'static str {
        match self.kind {
            Reduction::Sum => "reduce_sum",
            Reduction::Max => "reduce_max",
            Reduction::Min => "reduce_min",
            Reduction::Prod => "reduce_prod",
            Reduction::And => "reduce_and",
            Reduction::Or => "reduce_or",
        }
    }
    fn params(&self) -> String {
        let out = self.out.map(|o| format!(", out={o}")).unwrap_or_default();
        format!("axes={:?}{out}", self.axes)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        for (i, a) in self.axes.iter().enumerate() {
            if *a >= ty.rank() {
                return Err(Fault::new(
                    ErrorKind::Shape,
                    format!("there is no dimension {a} in an array of rank {}", ty.rank()),
                )
                .help("dimensions are counted from 0"));
            }
            if self.axes[..i].contains(a) {
                return Err(Fault::new(ErrorKind::Shape, format!("dimension {a} is named twice"))
                    .help("name each dimension once")
                    .dim(0, *a));
            }
        }
        let takes = match self.kind {
            Reduction::Sum | Reduction::Prod => Takes::Number,
            Reduction::Max | Reduction::Min => Takes::Ordered,
            Reduction::And | Reduction::Or => Takes::Bits,
        };
        takes.check(operands, 0)?;
        Ok(vec![(ty.dtype, self.kept(ty.rank()).into_iter().map(|d| ty.shape[d]).collect())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let x = &operands[0];
        let results = vec![Dim::each(self.kept(x.rank()))];
        Factors { operands: vec![Dim::each(0..x.rank())], results, ..Factors::over(&x.shape) }
    }
    fn linearity(&self) -> Linearity {
        if self.kind == Reduction::Sum { Linearity::Joint } else { Linearity::None }
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
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let (Some(t), x, z) = (&tangents[0], &operands[0], &outputs[0]) else { return Ok(vec![None]) };
        let kept = self.kept(x.ty.rank());
        Ok(vec![match self.kind {
            Reduction::Sum => Some(b.reduce_sum(t, &self.axes, self.out)?),
            // shared among all that are extreme
            Reduction::Max | Reduction::Min => {
                let sizes = (0..x.ty.rank()).map(|d| if kept.contains(&d) { x.ty.shape[d] } else { 1 });
                let z = b.broadcast_in_dim(z, sizes.collect::<Shape>(), &kept, None)?;
                let is = b.eq(x, &z)?;
                let is = b.convert(&is, x.ty.dtype)?;
                let part = b.mul(t, &is)?;
                let (sum, count) =
                    (b.reduce_sum(&part, &self.axes, self.out)?, b.reduce_sum(&is, &self.axes, self.out)?);
                Some(b.div(&sum, &count)?)
            }
            Reduction::Prod => {
                let (_, t) = b.product_tree(x, t, &self.axes)?;
                Some(b.broadcast_like(&t, &z.ty)?)
            }
            Reduction::And | Reduction::Or => None,
        }])
    }
    fn transpose(&self, Back { b, types, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        if self.kind != Reduction::Sum {
            return Err(not_linear(self.name()));
        }
        let want = cotangent_type(&types[0]);
        Ok(vec![Some(b.broadcast_in_dim_as(ct, &want.shape, &self.kept(want.rank()), want.spec)?)])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (x, dtype) = (&operands[0], results[0].dtype.storage());
        let kept = self.kept(x.rank());
        let order: Vec<usize> = kept.iter().chain(&self.axes).copied().collect();
        let extents: Vec<usize> = order.iter().map(|d| x.shape[*d]).collect();
        let loops: Vec<_> = (0..x.rank()).map(|d| order.iter().position(|o| *o == d)).collect();
        let reads = vec![Read::plain(0, dtype, &extents, &loops)];
        let body = match &self.axes[..] {
            [] => Body::Map(Code::copy(dtype)),
            _ => Body::Fold { combine: self.kind.combine(), code: Code::copy(dtype) },
        };
        vec![Sentence { extents, rank: kept.len(), dtype, reads, body }]
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        let (kind, axes) = (self.kind, behind(&self.axes));
        Batched::of(Arc::new(Reduce { kind, axes, out: batch.out(self.out, 0) }))
    }
}

/// A value and its tangent.
pub(in crate::ops) type Pair = (Value, Value);

/// The refusal of an extreme element along an empty dimension.
pub(crate) fn none_extreme(d: usize) -> Fault {
    Fault::new(ErrorKind::Shape, format!("dimension {d} is empty: no element is extreme"))
        .help("leave out what is empty before this, or give it an element: `pad`")
        .dim(0, d)
}

impl Builder {
    /// The product over these dimensions and its tangent, halves by halves: products of pairs, so that zeros are nothing special,
    /// and their derivatives neither.
    fn product_tree(&mut self, x: &Value, t: &Value, axes: &[usize]) -> Result<Pair> {
        let mut pair = (x.clone(), t.clone());
        for &axis in axes.iter().rev() {
            let split = Axes::from(x.ty.spec.dim(axis));
            let ways: usize = x.ty.mesh.iter().flat_map(|m| split.iter().map(|a| m.extent(a))).product();
            let mut rest = axis;
            if ways > 1 {
                // each device's own part first
                let each = |b: &mut Builder, v: &Value| {
                    let (before, after) = (&v.ty.shape[..axis], &v.ty.shape[axis + 1..]);
                    let sizes = [before, &[ways, v.ty.shape[axis] / ways], after].concat();
                    b.reshape(v, sizes, None)
                };
                pair = (each(self, &pair.0)?, each(self, &pair.1)?);
                rest += 1;
            }
            pair = self.halves(pair, rest)?;
            if ways > 1 {
                let whole = |b: &mut Builder, v: &Value| {
                    let mut dims = v.ty.spec.dims().to_vec();
                    dims[axis] = Axes::none();
                    b.reshard_to(v, &ArrayType { spec: v.ty.spec.with_dims(dims), ..v.ty.clone() })
                };
                pair = (whole(self, &pair.0)?, whole(self, &pair.1)?);
                pair = self.halves(pair, axis)?;
            }
        }
        Ok(pair)
    }
    /// The product of two values and its tangent.
    pub(in crate::ops) fn pair_product(&mut self, (x, s): &Pair, (y, t): &Pair) -> Result<Pair> {
        let (one, two) = (self.mul(s, y)?, self.mul(x, t)?);
        Ok((self.mul(x, y)?, self.add(&one, &two)?))
    }
    /// The product along a dimension, which goes, and its tangent.
    fn halves(&mut self, pair: Pair, axis: usize) -> Result<Pair> {
        let cut = |b: &mut Builder, v: &Value, from: usize, to: usize| {
            let (mut start, mut limit) = (vec![0; v.ty.rank()], v.ty.shape.to_vec());
            (start[axis], limit[axis]) = (from, to);
            b.slice(v, &start, &limit)
        };
        let (mut pair, mut odd) = (pair, None);
        loop {
            let n = pair.0.ty.shape[axis];
            if n <= 1 {
                break;
            }
            let mut take =
                |from, to| Ok::<Pair, Error>((cut(self, &pair.0, from, to)?, cut(self, &pair.1, from, to)?));
            let (low, high) = (take(0, n / 2)?, take(n / 2, n / 2 * 2)?);
            if n % 2 == 1 {
                let last = take(n - 1, n)?;
                odd = Some(match odd {
                    Some(odd) => self.pair_product(&odd, &last)?,
                    None => last,
                });
            }
            pair = self.pair_product(&low, &high)?;
        }
        if let Some(odd) = odd {
            pair = self.pair_product(&pair, &odd)?;
        }
        if pair.0.ty.shape[axis] == 0 {
            let kept = |v: &Value| -> ArrayType {
                let mut dims = v.ty.spec.dims().to_vec();
                dims.remove(axis);
                let mut shape = v.ty.shape.clone();
                shape.sizes_mut().remove(axis);
                ArrayType { spec: v.ty.spec.with_dims(dims), shape, ..v.ty.clone() }
            };
            let (x, t) = (kept(&pair.0), kept(&pair.1));
            return Ok((self.full(&x, Scalar::one(x.dtype))?, self.zeros(&t)?));
        }
        Ok((self.squeeze(&pair.0, &[axis])?, self.squeeze(&pair.1, &[axis])?))
    }
    /// Combined over these dimensions.
    pub fn reduce(&mut self, kind: Reduction, x: &Value, axes: &[usize]) -> Result<Value> {
        self.emit1(Arc::new(Reduce::new(kind, axes, None)), std::slice::from_ref(x))
    }
    /// The sum over these dimensions, sharded as asked.
    pub fn reduce_sum(&mut self, x: &Value, axes: &[usize], out: Option<Spec>) -> Result<Value> {
        self.emit1(Arc::new(Reduce::new(Reduction::Sum, axes, out)), std::slice::from_ref(x))
    }
    /// The sum with exactly this sharding, which is asked for only where it would come out otherwise.
    pub fn reduce_sum_as(&mut self, x: &Value, axes: &[usize], want: Option<Spec>) -> Result<Value> {
        match want {
            Some(want) => {
                let make = |out| Arc::new(Reduce::new(Reduction::Sum, axes, out)) as Prim;
                self.emit_as(make, std::slice::from_ref(x), want)
            }
            None => self.reduce_sum(x, axes, None),
        }
    }
    /// The index, int32, of the first greatest (or least) element along a dimension; a NaN is both.
    pub fn arg_extreme(&mut self, kind: Reduction, x: &Value, axis: usize) -> Result<Value> {
        let none = match x.ty.shape.get(axis) {
            None => Some(Fault::new(
                ErrorKind::Shape,
                format!("there is no dimension {axis}: the operand has {}", x.ty.rank()),
            )),
            Some(0) => Some(none_extreme(axis)),
            Some(_) => None,
        };
        if let Some(fault) = none {
            let name = if kind == Reduction::Min { "argmin" } else { "argmax" };
            return Err(self.refuse(fault, name, std::slice::from_ref(x)));
        }
        if x.ty.dtype == DType::Bool {
            let x = self.convert(x, DType::I32)?;
            return self.arg_extreme(kind, &x, axis);
        }
        let found = self.extremes(kind, x, axis)?;
        // new values vary over nothing
        let spec = Spec::of(x.ty.spec.dims().to_vec());
        let ty = ArrayType { dtype: DType::I32, spec, varying: Axes::none(), ..x.ty.clone() };
        let index = self.iota(&ty, axis)?;
        let end = self.number(&ty, x.ty.shape[axis] as f64)?;
        let candidates = self.select(&found, &index, &end)?;
        self.reduce(Reduction::Min, &candidates, &[axis])
    }
    /// Which elements are the greatest (or least) along a dimension; those that are NaN, where any is. Complex numbers go by their real parts,
    /// then by their imaginary ones.
    fn extremes(&mut self, kind: Reduction, x: &Value, axis: usize) -> Result<Value> {
        let best = |b: &mut Builder, x: &Value| {
            let best = b.reduce(kind, x, &[axis])?;
            let best = b.expand_dims(&best, &[axis])?;
            b.eq(x, &best)
        };
        if !x.ty.dtype.is_complex() {
            let found = best(self, x)?;
            if !x.ty.dtype.is_float() {
                return Ok(found);
            }
            let nan = self.binary(Binary::Ne, x, x)?;
            return self.binary(Binary::Or, &found, &nan);
        }
        let (re, im) = (self.unary(Unary::Real, x)?, self.unary(Unary::Imag, x)?);
        let first = best(self, &re)?;
        let beyond = if kind == Reduction::Min { f64::INFINITY } else { f64::NEG_INFINITY };
        let beyond = self.number(&im.ty, beyond)?;
        let im = self.select(&first, &im, &beyond)?;
        let second = best(self, &im)?;
        let found = self.binary(Binary::And, &first, &second)?;
        // a NaN in one part only is no extreme of the other
        let nan = self.binary(Binary::Ne, x, x)?;
        let any = self.reduce(Reduction::Or, &nan, &[axis])?;
        let none = self.unary(Unary::Not, &any)?;
        let none = self.expand_dims(&none, &[axis])?;
        let found = self.binary(Binary::And, &found, &none)?;
        self.binary(Binary::Or, &found, &nan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        sums_over_a_sharded_dimension: Reduce::new(Reduction::Sum, &[0], None), ["float32[4@X,2@Y]"] => r#"
            (a: float32[4@X,2@Y]) {
              b: float32[2@Y] = reduce_sum[axes=[0]] a
              return b
            }
            tangents: (a: float32[4@X,2@Y], b: float32[4@X,2@Y]) {
              c: float32[2@Y] = reduce_sum[axes=[0]] a
              d: float32[2@Y] = reduce_sum[axes=[0]] b
              return c, d
            }
            cotangents: (a: float32[2@Y]) {
              b: float32[4@X,2@Y] = broadcast_in_dim[shape=[4,2], dims=[1], out=p!["X", "Y"]] a
              return b
            }
        "#;
        the_largest_have_the_slope: Reduce::new(Reduction::Max, &[1], None), ["float32[2@X,3]"] => "
            (a: float32[2@X,3]) {
              b: float32[2@X] = reduce_max[axes=[1]] a
              return b
            }
            tangents: (a: float32[2@X,3], b: float32[2@X,3]) {
              c: float32[2@X] = reduce_max[axes=[1]] a
              d: float32[2@X,1] = broadcast_in_dim[shape=[2,1], dims=[0]] c
              e: bool[2@X,3] = eq a d
              f: float32[2@X,3] = convert_element_type[dtype=float32] e
              g: float32[2@X,3] = mul b f
              h: float32[2@X] = reduce_sum[axes=[1]] g
              i: float32[2@X] = reduce_sum[axes=[1]] f
              j: float32[2@X] = div h i
              return c, j
            }
            cotangents: (a: float32[2@X,3], b: float32[2@X], c: float32[2@X]) {
              d: float32[2@X] = div c b
              e: float32[2@X,3] = broadcast_in_dim[shape=[2,3], dims=[0]] d
              f: float32[2@X,3] = mul e a
              return f
            }
        ";
        max_of_unreduced_is_refused: Reduce::new(Reduction::Max, &[0], None), ["float32[4]{U:X}"] => "
            refused: operand 0, float32[4]{U:X}, is unreduced over X: max of a sum is not the sum of max of its parts
            sum it first: `.reshard(p![_])`
        ";
    }
}
