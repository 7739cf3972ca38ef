//! Reductions: dimensions summed (or multiplied, …) away.

use super::build::{cotangent_type, not_linear};
use super::elementwise::{Binary, Takes};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::program::factors::{Dim, Factors, Linearity, Rank};
use crate::program::sentence::{Body, Code, Combine, Read, Sentence};
use crate::program::{Builder, Operand, Prim, Primitive, Tangents, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
        axes.sort_unstable();
        Reduce { kind, axes, out }
    }
    fn kept(&self, rank: usize) -> Vec<usize> {
        (0..rank).filter(|d| !self.axes.contains(d)).collect()
    }
}

impl Reduction {
    fn combine(self) -> Combine {
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
        let ty = &operands[0].ty;
        for (i, a) in self.axes.iter().enumerate() {
            if *a >= ty.rank() {
                return Err(Fault::new(
                    ErrorKind::Shape,
                    format!("there is no dimension {a}: the operand has {}", ty.rank()),
                ));
            }
            if self.axes[..i].contains(a) {
                return Err(Fault::new(ErrorKind::Shape, format!("dimension {a} is named twice")));
            }
        }
        let takes = match self.kind {
            Reduction::Sum | Reduction::Prod => Takes::Number,
            Reduction::Max | Reduction::Min => Takes::Ordered,
            Reduction::And | Reduction::Or => Takes::Bits,
        };
        takes.check(self.name(), 0, ty.dtype)?;
        Ok(vec![(ty.dtype, self.kept(ty.rank()).into_iter().map(|d| ty.shape[d]).collect())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let mut f = Factors::default();
        for n in operands[0].shape.iter() {
            f.add(*n);
        }
        let rank = operands[0].rank();
        f.operands = vec![(0..rank).map(Dim::same).collect()];
        f.results = vec![self.kept(rank).into_iter().map(Dim::same).collect()];
        f
    }
    fn linearity(&self) -> Linearity {
        if self.kind == Reduction::Sum { Linearity::Joint } else { Linearity::None }
    }
    fn rank(&self) -> Rank {
        Rank::Plain
    }
    fn out(&self) -> Option<Spec> {
        self.out
    }
    fn jvp(
        &self,
        b: &mut Builder,
        operands: &[Value],
        tangents: &[Option<Value>],
        outputs: &[Value],
    ) -> Result<Tangents> {
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
            // t times the product of the others. Without zeros that is z/x; with one only its own counts; with more none does
            Reduction::Prod => {
                let (zero, one) = (b.number(&x.ty, 0.0)?, b.number(&x.ty, 1.0)?);
                let is = b.eq(x, &zero)?;
                let safe = b.select(&is, &one, x)?;
                let product = b.emit1(Arc::new(self.clone()), std::slice::from_ref(&safe))?;
                let is = b.convert(&is, x.ty.dtype)?;
                let zeros = b.reduce_sum(&is, &self.axes, self.out)?;
                let over = b.div(t, &safe)?;
                let at_zero = b.mul(&over, &is)?;
                let (all, lone) = (
                    b.reduce_sum(&over, &self.axes, self.out)?,
                    b.reduce_sum(&at_zero, &self.axes, self.out)?,
                );
                let (zero, one) = (b.number(&zeros.ty, 0.0)?, b.number(&zeros.ty, 1.0)?);
                let (none, single) = (b.eq(&zeros, &zero)?, b.eq(&zeros, &one)?);
                let rest = b.zero_beside(&lone.ty)?;
                let few = b.select(&single, &lone, &rest)?;
                let sum = b.select(&none, &all, &few)?;
                Some(b.mul(&sum, &product)?)
            }
            Reduction::And | Reduction::Or => None,
        }])
    }
    fn transpose(
        &self,
        b: &mut Builder,
        _: &[Option<Value>],
        types: &[ArrayType],
        cotangents: &[Option<Value>],
    ) -> Result<Tangents> {
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
    fn cost(&self) -> f64 {
        1.0
    }
}

impl Builder {
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
        let Some(&n) = x.ty.shape.get(axis) else {
            let fault = Fault::new(
                ErrorKind::Shape,
                format!("there is no dimension {axis}: the operand has {}", x.ty.rank()),
            );
            return Err(self.refuse(fault, "argmax", std::slice::from_ref(x)));
        };
        if n == 0 {
            let fault =
                Fault::new(ErrorKind::Shape, format!("dimension {axis} is empty: no element is extreme"));
            return Err(self.refuse(fault, "argmax", std::slice::from_ref(x)));
        }
        let best = self.reduce(kind, x, &[axis])?;
        let best = self.expand_dims(&best, &[axis])?;
        let mut found = self.eq(x, &best)?;
        if x.ty.dtype.is_float() {
            let nan = self.binary(Binary::Ne, x, x)?;
            found = self.binary(Binary::Or, &found, &nan)?;
        }
        let ty = ArrayType { dtype: DType::I32, ..x.ty.clone() };
        let index = self.iota(&ty, axis)?;
        let end = self.number(&ty, n as f64)?;
        let candidates = self.select(&found, &index, &end)?;
        self.reduce(Reduction::Min, &candidates, &[axis])
    }
}
