//! Reductions over dimensions: sums, products, minima, maxima, and logical reductions.
//!
//! This module also emits operations that are built from reductions, such as `argmax`.

use super::dim_check::arity;
use super::elementwise::{Binary, DTypeClass, Unary};
use crate::core::{ArrayType, Axes, DType, Error, Fault, Result, Scalar, Shape, Spec, util::small_sort};
use crate::ir::ops::structural::out_sharding_rules;
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{
    Access, BatchedOp, Builder, Dim, Factors, JvpArgs, Linearity, LoopNest, Prim, Primitive, Reducer,
    ScalarCode, Tangents, TransposeArgs, TypedOperand, Value, VmapArgs, shifted_dims,
};
use std::sync::Arc;

/// The function that combines elements in a reduction.
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

/// Reduces an array over the dimensions `axes`, which are removed: `reduce_sum{axes}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// The function that combines elements.
    pub kind: Reduction,
    /// The dimensions to reduce over, in ascending order.
    pub axes: Vec<usize>,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

impl Reduce {
    /// Returns a reduction over these dimensions, which may be in any order.
    pub fn new(kind: Reduction, axes: &[usize], out_sharding: Option<Spec>) -> Reduce {
        let mut axes = axes.to_vec();
        small_sort::sort(&mut axes);
        Reduce { kind, axes, out_sharding }
    }
    /// Returns the dimensions that remain, in order.
    fn kept_dims(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|d| !self.axes.contains(d)).collect()
    }
}

impl Reduction {
    /// Returns the reducer of loop nests for this reduction.
    pub(super) fn reducer(self) -> Reducer {
        match self {
            Reduction::Sum => Reducer::Add,
            Reduction::Max => Reducer::Max,
            Reduction::Min => Reducer::Min,
            Reduction::Prod => Reducer::Mul,
            Reduction::And => Reducer::And,
            Reduction::Or => Reducer::Or,
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
        let out = self.out_sharding.map(|o| format!(", out={o}")).unwrap_or_default();
        format!("axes={:?}{out}", self.axes)
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let ty = arity(self.name(), operands, 1)?[0];
        for (i, a) in self.axes.iter().enumerate() {
            if *a >= ty.rank() {
                return Err(fault!(Shape, "there is no dimension {a} in an array of rank {}", ty.rank())
                    .help("dimensions are counted from 0"));
            }
            if self.axes[..i].contains(a) {
                return Err(fault!(Shape, "dimension {a} is named twice")
                    .help("name each dimension once")
                    .highlight_dim(0, *a));
            }
        }
        let takes = match self.kind {
            Reduction::Sum | Reduction::Prod => DTypeClass::Number,
            Reduction::Max | Reduction::Min => DTypeClass::Ordered,
            Reduction::And | Reduction::Or => DTypeClass::Bits,
        };
        takes.check(operands, 0)?;
        Ok(vec![(ty.dtype, self.kept_dims(ty.rank()).into_iter().map(|d| ty.shape[d]).collect())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let x = &operands[0];
        let results = vec![Dim::each(self.kept_dims(x.rank()))];
        Factors { operands: vec![Dim::each(0..x.rank())], results, ..Factors::from_sizes(&x.shape) }
    }
    fn linearity(&self) -> Linearity {
        if self.kind == Reduction::Sum { Linearity::Joint } else { Linearity::None }
    }
    out_sharding_rules!();
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let (Some(t), x, z) = (&tangents[0], &operands[0], &outputs[0]) else { return Ok(vec![None]) };
        let kept = self.kept_dims(x.ty.rank());
        Ok(vec![match self.kind {
            Reduction::Sum => Some(b.reduce_sum(t, &self.axes, self.out_sharding)?),
            // the elements that are equal to the extreme share the derivative
            Reduction::Max | Reduction::Min => {
                let sizes = (0..x.ty.rank()).map(|d| if kept.contains(&d) { x.ty.shape[d] } else { 1 });
                let z = b.broadcast_in_dim(z, sizes.collect::<Shape>(), &kept, None)?;
                let is = b.eq(x, &z)?;
                let is = b.convert(&is, x.ty.dtype)?;
                let part = b.mul(t, &is)?;
                let (sum, count) = (
                    b.reduce_sum(&part, &self.axes, self.out_sharding)?,
                    b.reduce_sum(&is, &self.axes, self.out_sharding)?,
                );
                Some(b.div(&sum, &count)?)
            }
            Reduction::Prod => {
                let (_, t) = b.product_with_tangent(x, t, &self.axes)?;
                Some(b.broadcast_like(&t, &z.ty)?)
            }
            Reduction::And | Reduction::Or => None,
        }])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, types, cotangents, .. } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        if self.kind != Reduction::Sum {
            return Err(not_linear_error(self.name()));
        }
        let expected = cotangent_type(&types[0]);
        Ok(vec![Some(b.broadcast_in_dim_to(
            ct,
            &expected.shape,
            &self.kept_dims(expected.rank()),
            expected.spec,
        )?)])
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, dtype) = (&operands[0], results[0].dtype.storage());
        let kept = self.kept_dims(x.rank());
        let order: Vec<usize> = kept.iter().chain(&self.axes).copied().collect();
        let extents: Vec<usize> = order.iter().map(|d| x.shape[*d]).collect();
        let loops: Vec<_> = (0..x.rank()).map(|d| order.iter().position(|o| *o == d)).collect();
        let reads = vec![Access::from_loops(0, dtype, &extents, &loops)];
        let (reducer, code) = (self.kind.reducer(), ScalarCode::copy(dtype));
        vec![LoopNest::reduce(extents, kept.len(), dtype, reads, reducer, code)]
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        let (kind, axes) = (self.kind, shifted_dims(&self.axes));
        BatchedOp::new(Arc::new(Reduce {
            kind,
            axes,
            out_sharding: batch.out_sharding(self.out_sharding, 0),
        }))
    }
}

/// A primal value and its tangent.
pub(in crate::ir::ops) type PrimalAndTangent = (Value, Value);

/// Returns the error for the minimum or maximum along an empty dimension.
pub(crate) fn empty_dim_fault(d: usize) -> Fault {
    fault!(Shape, "dimension {d} is empty: the maximum or minimum of no elements is undefined")
        .help("remove empty dimensions before this, or give them an element: `pad`")
        .highlight_dim(0, d)
}

impl Builder {
    /// Emits the product over dimensions and its tangent, by repeated multiplication of halves.
    ///
    /// Only products of pairs are computed, so zeros and higher derivatives need no special case.
    fn product_with_tangent(&mut self, x: &Value, t: &Value, axes: &[usize]) -> Result<PrimalAndTangent> {
        let mut pair = (x.clone(), t.clone());
        for &axis in axes.iter().rev() {
            let split = Axes::from(x.ty.spec.dim(axis));
            let num_shards: usize =
                x.ty.mesh.iter().flat_map(|m| split.iter().map(|a| m.extent(a))).product();
            let mut rest = axis;
            if num_shards > 1 {
                // each device multiplies its own elements first
                let each = |b: &mut Builder, v: &Value| {
                    let (before, after) = (&v.ty.shape[..axis], &v.ty.shape[axis + 1..]);
                    let sizes = [before, &[num_shards, v.ty.shape[axis] / num_shards], after].concat();
                    b.reshape(v, sizes, None)
                };
                pair = (each(self, &pair.0)?, each(self, &pair.1)?);
                rest += 1;
            }
            pair = self.pairwise_product(pair, rest)?;
            if num_shards > 1 {
                let unsharded = |b: &mut Builder, v: &Value| {
                    let mut dims = v.ty.spec.dims().to_vec();
                    dims[axis] = Axes::none();
                    b.reshard_to(v, &ArrayType { spec: v.ty.spec.with_dims(dims), ..v.ty.clone() })
                };
                pair = (unsharded(self, &pair.0)?, unsharded(self, &pair.1)?);
                pair = self.pairwise_product(pair, axis)?;
            }
        }
        Ok(pair)
    }
    /// Emits the product of two values and its tangent.
    pub(in crate::ir::ops) fn mul_with_tangent(
        &mut self,
        (x, s): &PrimalAndTangent,
        (y, t): &PrimalAndTangent,
    ) -> Result<PrimalAndTangent> {
        let (one, two) = (self.mul(s, y)?, self.mul(x, t)?);
        Ok((self.mul(x, y)?, self.add(&one, &two)?))
    }
    /// Emits the product along a dimension, which is removed, and its tangent.
    fn pairwise_product(&mut self, pair: PrimalAndTangent, axis: usize) -> Result<PrimalAndTangent> {
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
            let mut take = |from, to| {
                Ok::<PrimalAndTangent, Error>((cut(self, &pair.0, from, to)?, cut(self, &pair.1, from, to)?))
            };
            let (low, high) = (take(0, n / 2)?, take(n / 2, n / 2 * 2)?);
            if n % 2 == 1 {
                let last = take(n - 1, n)?;
                odd = Some(match odd {
                    Some(odd) => self.mul_with_tangent(&odd, &last)?,
                    None => last,
                });
            }
            pair = self.mul_with_tangent(&low, &high)?;
        }
        if let Some(odd) = odd {
            pair = self.mul_with_tangent(&pair, &odd)?;
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
    /// Emits a reduction over dimensions.
    pub fn reduce(&mut self, kind: Reduction, x: &Value, axes: &[usize]) -> Result<Value> {
        self.emit1(Arc::new(Reduce::new(kind, axes, None)), std::slice::from_ref(x))
    }
    /// Emits the sum over dimensions, with an optional requested sharding.
    pub fn reduce_sum(&mut self, x: &Value, axes: &[usize], out: Option<Spec>) -> Result<Value> {
        self.emit1(Arc::new(Reduce::new(Reduction::Sum, axes, out)), std::slice::from_ref(x))
    }
    /// Emits the sum over dimensions with exactly the sharding `want`.
    ///
    /// The sharding is requested explicitly only if type inference would give another one.
    pub fn reduce_sum_to(&mut self, x: &Value, axes: &[usize], want: Option<Spec>) -> Result<Value> {
        let Some(want) = want else { return self.reduce_sum(x, axes, None) };
        let make = |out| Arc::new(Reduce::new(Reduction::Sum, axes, out)) as Prim;
        self.emit_with_sharding(&make, std::slice::from_ref(x), want)
    }
    /// Emits the int32 index of the first minimum or maximum along a dimension.
    ///
    /// If there is a NaN, it is the index of the first NaN.
    pub fn arg_extreme(&mut self, kind: Reduction, x: &Value, axis: usize) -> Result<Value> {
        let none = match x.ty.shape.get(axis) {
            None => Some(fault!(Shape, "there is no dimension {axis}: the operand has {}", x.ty.rank())),
            Some(0) => Some(empty_dim_fault(axis)),
            Some(_) => None,
        };
        if let Some(fault) = none {
            let name = if kind == Reduction::Min { "argmin" } else { "argmax" };
            return Err(self.error(fault, name, std::slice::from_ref(x)));
        }
        if x.ty.dtype == DType::Bool {
            let x = self.convert(x, DType::I32)?;
            return self.arg_extreme(kind, &x, axis);
        }
        let found = self.extreme_mask(kind, x, axis)?;
        // new values do not vary over any axis
        let spec = Spec::from_dims(x.ty.spec.dims().to_vec());
        let ty = ArrayType { dtype: DType::I32, spec, varying: Axes::none(), ..x.ty.clone() };
        let index = self.iota(&ty, axis)?;
        let end = self.constant_like(&ty, x.ty.shape[axis] as f64)?;
        let candidates = self.select(&found, &index, &end)?;
        self.reduce(Reduction::Min, &candidates, &[axis])
    }
    /// Emits a mask of the minima or maxima along a dimension, or of the NaNs if there are any.
    ///
    /// Complex numbers are ordered by their real parts, then by their imaginary parts.
    fn extreme_mask(&mut self, kind: Reduction, x: &Value, axis: usize) -> Result<Value> {
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
        let beyond = self.constant_like(&im.ty, beyond)?;
        let im = self.select(&first, &im, &beyond)?;
        let second = best(self, &im)?;
        let found = self.binary(Binary::And, &first, &second)?;
        // if any element is a NaN, even in one part only, then only NaNs count as extreme
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
    use crate::ir::ops::test_util::check_prim;

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
        max_of_unreduced_is_rejected: Reduce::new(Reduction::Max, &[0], None), ["float32[4]{U:X}"] => "
            error: operand 0, float32[4]{U:X}, is unreduced over X: max of a sum is not the sum of max of its partial values
            sum it first: `.reshard(p![_])`
        ";
    }
}
