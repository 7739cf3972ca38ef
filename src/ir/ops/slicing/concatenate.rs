//! The primitives `concatenate` and `update_slice`, whose results combine several operands.

use super::check_length;
use crate::core::{ArrayType, DType, Fault, Result, Scalar, Shape, TypePart};
use crate::ir::ops::dim_check::{access_piece, arity, format_list, shape_fault, view};
use crate::ir::ops::elementwise::common_dtype;
use crate::ir::program::{
    AccessPiece, AffineExpr, BatchedOp, Builder, Dim, DimMap, ExplicitRule, Factors, Linearity, LoopNest,
    Primitive, Priority, StridedRange, Tangents, TransposeArgs, TypedOperand, Value, VmapArgs,
    typing::cotangent_type, with_inserted,
};
use std::sync::Arc;

/// The concatenation of operands along a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concatenate {
    /// The dimension to concatenate along.
    pub dimension: usize,
}

/// The first operand with a box, which starts at `start`, replaced by the second operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpdateSlice {
    /// The start of the box in each dimension.
    pub start: Vec<usize>,
}

/// Defines the rules that `concatenate` and `update_slice` share.
///
/// Their tangent is the same primitive applied to the operands' tangents, with zeros for operands
/// that have no tangent.
macro_rules! joins_operands {
    () => {
        fn jvp(
            &self,
            crate::ir::program::JvpArgs { builder, operands, tangents, .. }: crate::ir::program::JvpArgs<'_>,
        ) -> Result<Tangents> {
            let mut parts = Vec::with_capacity(operands.len());
            for (x, t) in operands.iter().zip(tangents) {
                parts.push(match t {
                    Some(t) => t.clone(),
                    None => builder.zeros(&x.ty)?,
                });
            }
            Ok(vec![Some(builder.emit1(Arc::new(self.clone()), &parts)?)])
        }
    };
}

impl Concatenate {
    /// Returns the start of each operand along the dimension.
    fn starts(&self, operands: &[ArrayType]) -> Vec<usize> {
        let sizes = operands.iter().map(|x| x.shape[self.dimension]);
        sizes.scan(0, |at, n| Some((*at, *at += n).0)).collect()
    }
}

impl Primitive for Concatenate {
    joins_operands!();
    described!(self, "concatenate", Linearity::Joint, format!("dim={}", self.dimension));
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let Some(first) = operands.first().map(|o| &o.ty) else {
            return Err(fault!(Shape, "there is nothing to concatenate").help("give at least one array"));
        };
        let d = self.dimension;
        if d >= first.rank() {
            return Err(fault!(Shape, "dimension {d} is out of range for {} dimensions", first.rank()));
        }
        let mut shape = first.shape.clone();
        for (k, o) in operands.iter().enumerate().skip(1) {
            let x = &o.ty;
            let differs = (0..first.rank()).find(|i| *i != d && x.shape.get(*i) != first.shape.get(*i));
            if x.rank() != first.rank() || differs.is_some() {
                let fault = shape_fault(format!(
                    "operand {k} has shape {}, but operand 0 {}: they may differ in dimension {d} only",
                    x.shape, first.shape
                ));
                if x.rank() != first.rank() {
                    return Err(fault.help("give them one rank: `.expand_dims(…)`, `.reshape(…)`"));
                }
                // if the operands differ in only one other dimension, the help suggests that
                // dimension
                let others = (0..first.rank()).filter(|i| *i != d && x.shape[*i] != first.shape[*i]);
                let fault = match (others.count(), differs) {
                    (1, Some(i)) if x.shape[d] == first.shape[d] => fault.help(format!(
                        "join them along dimension {i}, or make their sizes equal: `slice`, `pad`"
                    )),
                    _ => fault.help("make their sizes equal: `slice`, `pad`"),
                };
                return Err(differs.map_or(fault.clone(), |i| fault.highlight_dim(0, i).highlight_dim(k, i)));
            }
            shape.sizes_mut()[d] = shape[d].saturating_add(x.shape[d]);
        }
        Ok(vec![(common_dtype(operands, 0)?, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let shape = &results[0].1;
        let dims = |start: usize| {
            let placed = DimMap::Affine { scale: 1, offset: -(start as i64) };
            let at = |d| if d == self.dimension { placed } else { DimMap::Identity };
            (0..shape.rank()).map(|d| Dim::mapped(d, at(d))).collect()
        };
        let operands = self.starts(operands).into_iter().map(dims).collect();
        let results = vec![Dim::each(0..shape.rank())];
        Factors { operands, results, ..Factors::from_sizes(shape) }.with_rule_for_all(ExplicitRule::MustMatch)
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None; types.len()]) };
        let mut cotangents_of_operands = Vec::with_capacity(types.len());
        for ((x, operand), at) in types.iter().zip(operands).zip(self.starts(types)) {
            if operand.is_some() {
                cotangents_of_operands.push(None);
                continue;
            }
            let mut start = vec![0; x.rank()];
            start[self.dimension] = at;
            cotangents_of_operands.push(Some(b.slice_cotangent(ct, &start, x)?));
        }
        Ok(cotangents_of_operands)
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let pieces = operands.iter().zip(self.starts(operands)).enumerate().map(|(k, (x, start))| {
            let mut span = StridedRange::full_box(&x.shape);
            span[self.dimension].lo += start as i64;
            span[self.dimension].hi += start as i64;
            access_piece(k, span, AffineExpr::identity(x.rank()))
        });
        let pieces = pieces.filter(|p| !p.ranges.iter().any(StridedRange::is_empty)).collect();
        view(&results[0], pieces, Scalar::zero(results[0].dtype.storage()))
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(Concatenate { dimension: self.dimension + 1 }), false)
    }
}

/// Returns the region of the box `outer` outside of `inner`, as at most two boxes per dimension.
fn box_difference(outer: &[StridedRange], inner: &[StridedRange]) -> Vec<Vec<StridedRange>> {
    let (mut rest, mut boxes) = (outer.to_vec(), Vec::new());
    for d in 0..outer.len() {
        for side in
            [StridedRange { hi: inner[d].lo, ..outer[d] }, StridedRange { lo: inner[d].hi, ..outer[d] }]
        {
            let mut slab = rest.clone();
            slab[d] = side;
            if !slab.iter().any(StridedRange::is_empty) {
                boxes.push(slab);
            }
        }
        rest[d] = inner[d];
    }
    boxes
}

impl Primitive for UpdateSlice {
    joins_operands!();
    described!(self, "update_slice", Linearity::Joint, format!("start={}", format_list(&self.start)));
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let types = arity(self.name(), operands, 2)?;
        let (x, u) = (types[0], types[1]);
        check_length("start", self.start.len(), x.rank())?;
        if u.rank() != x.rank() {
            return Err(shape_fault(format!(
                "the update has {} dimensions, but the array has {}",
                u.rank(),
                x.rank()
            )));
        }
        if u.dtype != x.dtype {
            return Err(fault!(Dtype, "the update is {}, but the array {}", u.dtype, x.dtype)
                .help(format!("convert the update: `.astype({:?})`", x.dtype))
                .highlight(0, TypePart::Dtype)
                .highlight(1, TypePart::Dtype));
        }
        for (d, (&n, &m)) in x.shape.iter().zip(&*u.shape).enumerate() {
            let at = self.start[d];
            if at + m > n {
                let message =
                    format!("the update's {at}..{} is not within dimension {d} of size {n}", at + m);
                return Err(shape_fault(message).highlight_dim(0, d).highlight_dim(1, d));
            }
        }
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let (x, u) = (&operands[0].shape, &operands[1].shape);
        let dims = (0..x.rank()).map(|d| {
            let placed = DimMap::Affine { scale: 1, offset: -(self.start[d] as i64) };
            Dim::mapped(d, if u[d] == x[d] { DimMap::Identity } else { placed })
        });
        let operands = vec![Dim::each(0..x.rank()), dims.collect()];
        Factors { operands, results: vec![Dim::each(0..x.rank())], ..Factors::from_sizes(x) }
            .with_rule_for_all(ExplicitRule::MustMatch)
    }
    fn priority(&self) -> Priority {
        Priority::DynamicSlice
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let x = match &operands[0] {
            Some(_) => None,
            None => {
                let hole = b.zeros_next_to(ct, &cotangent_type(&types[1]))?;
                Some(b.update_slice(ct, &hole, &self.start)?)
            }
        };
        let u = match &operands[1] {
            Some(_) => None,
            None => Some(b.slice_cotangent(ct, &self.start, &types[1])?),
        };
        Ok(vec![x, u])
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let outer = StridedRange::full_box(&operands[0].shape);
        let at = self.start.iter().zip(&*operands[1].shape);
        let inner: Vec<StridedRange> =
            at.map(|(s, n)| StridedRange { lo: *s as i64, hi: (*s + *n) as i64, step: 1 }).collect();
        let (rank, mut pieces): (usize, Vec<AccessPiece>) = (outer.len(), Vec::new());
        if inner.iter().any(StridedRange::is_empty) {
            pieces.push(access_piece(0, outer, AffineExpr::identity(rank)));
        } else {
            for span in box_difference(&outer, &inner) {
                let map = span.iter().enumerate().map(|(d, s)| AffineExpr::linear(s.lo, d, 1)).collect();
                pieces.push(access_piece(0, span, map));
            }
            pieces.push(access_piece(1, inner, AffineExpr::identity(rank)));
        }
        view(&results[0], pieces, Scalar::zero(results[0].dtype.storage()))
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::all_batched(Arc::new(UpdateSlice { start: with_inserted(&self.start, 0, 0) }), false)
    }
}

impl Builder {
    /// Concatenates values along a dimension.
    pub fn concatenate(&mut self, parts: &[Value], dimension: usize) -> Result<Value> {
        match parts {
            [one] => Ok(one.clone()),
            _ => self.emit1(Arc::new(Concatenate { dimension }), parts),
        }
    }
    /// Replaces a box of `x`, which starts at `start`, with `u`.
    pub fn update_slice(&mut self, x: &Value, u: &Value, start: &[usize]) -> Result<Value> {
        self.emit1(Arc::new(UpdateSlice { start: start.to_vec() }), &[x.clone(), u.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        concatenate_along_rows: Concatenate { dimension: 0 }, ["float32[2,2@X]", "float32[4,2@X]"] => "
            (a: float32[2,2@X], b: float32[4,2@X]) {
              c: float32[6,2@X] = concatenate[dim=0] a b
              return c
            }
            tangents: (a: float32[2,2@X], b: float32[4,2@X], c: float32[2,2@X], d: float32[4,2@X]) {
              e: float32[6,2@X] = concatenate[dim=0] a b
              f: float32[6,2@X] = concatenate[dim=0] c d
              return e, f
            }
            cotangents: (a: float32[6,2@X]) {
              b: float32[2,2@X] = slice[start=[0,0], limit=[2,2]] a
              c: float32[4,2@X] = slice[start=[2,0], limit=[6,2]] a
              return b, c
            }
        ";
        update_slice_in_place: UpdateSlice { start: vec![1, 0] }, ["float32[4,2@X]", "float32[2,2@X]"] => "
            (a: float32[4,2@X], b: float32[2,2@X]) {
              c: float32[4,2@X] = update_slice[start=[1,0]] a b
              return c
            }
            tangents: (a: float32[4,2@X], b: float32[2,2@X], c: float32[4,2@X], d: float32[2,2@X]) {
              e: float32[4,2@X] = update_slice[start=[1,0]] a b
              f: float32[4,2@X] = update_slice[start=[1,0]] c d
              return e, f
            }
            cotangents: (a: float32[4,2@X]) {
              b: float32[2,2@X] = full[value=0.0, ty=f32[2,2@X], mesh=Mesh(X: 2, Y: 2)]
              c: float32[4,2@X] = update_slice[start=[1,0]] a b
              d: float32[2,2@X] = slice[start=[1,0], limit=[3,2]] a
              return c, d
            }
        ";
        concatenate_of_other_sizes_is_rejected: Concatenate { dimension: 0 }, ["float32[2,2]", "float32[4,3]"] => "
            error: operand 1 has shape [4,3], but operand 0 [2,2]: they may differ in dimension 0 only
            make their sizes equal: `slice`, `pad`
        ";
    }
}
