//! Arrays joined: concatenate, and update_slice, which puts one in a place of another.

use super::same_length;
use crate::diagnostic::{ErrorKind, Fault, Result, Spot};
use crate::ops::build::cotangent_type;
use crate::ops::elementwise::one_dtype;
use crate::ops::view::{arity, list, part, shape_fault, view};
use crate::program::Back;
use crate::program::sentence::{Affine, Part, Sentence, Span};
use crate::program::{At, Batch, Batched, Builder, Dim, Factors, Join, Linearity, Operand, Primitive};
use crate::program::{Priority, Tangents, Value, inserted};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// The operands one after another along a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concatenate {
    /// Along which.
    pub dimension: usize,
}

/// The first operand with the second one in its place from `start` on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpdateSlice {
    /// Where the second operand begins, in each dimension.
    pub start: Vec<usize>,
}

/// What operations that join their operands have in common. Their tangent is themselves of the operands' tangents, with zeros for those
/// that don't move.
macro_rules! joins_operands {
    () => {
        fn linearity(&self) -> Linearity {
            Linearity::Joint
        }
        fn out(&self) -> Option<Spec> {
            None
        }
        fn jvp(
            &self,
            crate::program::Forward { b, operands, tangents, .. }: crate::program::Forward<'_>,
        ) -> Result<Tangents> {
            let mut parts = Vec::with_capacity(operands.len());
            for (x, t) in operands.iter().zip(tangents) {
                parts.push(match t {
                    Some(t) => t.clone(),
                    None => b.zeros(&x.ty)?,
                });
            }
            Ok(vec![Some(b.emit1(Arc::new(self.clone()), &parts)?)])
        }
    };
}

impl Concatenate {
    /// Where each operand begins.
    fn starts(&self, operands: &[ArrayType]) -> Vec<usize> {
        let sizes = operands.iter().map(|x| x.shape[self.dimension]);
        sizes.scan(0, |at, n| Some((*at, *at += n).0)).collect()
    }
}

impl Primitive for Concatenate {
    joins_operands!();
    fn name(&self) -> &'static str {
        "concatenate"
    }
    fn params(&self) -> String {
        format!("dim={}", self.dimension)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let Some(first) = operands.first().map(|o| &o.ty) else {
            return Err(shape_fault("there is nothing to concatenate").help("give at least one array"));
        };
        let d = self.dimension;
        if d >= first.rank() {
            return Err(shape_fault(format!(
                "dimension {d} is out of range for {} dimensions",
                first.rank()
            )));
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
                // the other dimension, where that is all they differ in
                let others = (0..first.rank()).filter(|i| *i != d && x.shape[*i] != first.shape[*i]);
                let fault = match (others.count(), differs) {
                    (1, Some(i)) if x.shape[d] == first.shape[d] => fault.help(format!(
                        "join them along dimension {i}, or make their sizes equal: `slice`, `pad`"
                    )),
                    _ => fault.help("make their sizes equal: `slice`, `pad`"),
                };
                return Err(differs.map_or(fault.clone(), |i| fault.dim(0, i).dim(k, i)));
            }
            shape.sizes_mut()[d] = shape[d].saturating_add(x.shape[d]);
        }
        Ok(vec![(one_dtype(operands, 0)?, shape)])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let shape = &results[0].1;
        let dims = |start: usize| {
            let placed = At::Affine { scale: 1, offset: -(start as i64) };
            let at = |d| if d == self.dimension { placed } else { At::Same };
            (0..shape.rank()).map(|d| Dim::at(d, at(d))).collect()
        };
        let operands = self.starts(operands).into_iter().map(dims).collect();
        let results = vec![Dim::each(0..shape.rank())];
        Factors { operands, results, ..Factors::over(shape) }.join_all(Join::Equal)
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None; types.len()]) };
        let mut parts = Vec::with_capacity(types.len());
        for ((x, operand), at) in types.iter().zip(operands).zip(self.starts(types)) {
            if operand.is_some() {
                parts.push(None);
                continue;
            }
            let mut start = vec![0; x.rank()];
            start[self.dimension] = at;
            parts.push(Some(b.box_of(ct, &start, x)?));
        }
        Ok(parts)
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let parts = operands.iter().zip(self.starts(operands)).enumerate().map(|(k, (x, start))| {
            let mut span = Span::whole(&x.shape);
            span[self.dimension].lo += start as i64;
            span[self.dimension].hi += start as i64;
            part(k, span, Affine::identity(x.rank()))
        });
        let parts = parts.filter(|p| !p.span.iter().any(Span::is_empty)).collect();
        view(&results[0], parts, Scalar::zero(results[0].dtype.storage()))
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::alike(Arc::new(Concatenate { dimension: self.dimension + 1 }), false)
    }
}

/// What is left of the box `outer` without `inner`, as at most two boxes a dimension.
fn around(outer: &[Span], inner: &[Span]) -> Vec<Vec<Span>> {
    let (mut rest, mut boxes) = (outer.to_vec(), Vec::new());
    for d in 0..outer.len() {
        for side in [Span { hi: inner[d].lo, ..outer[d] }, Span { lo: inner[d].hi, ..outer[d] }] {
            let mut slab = rest.clone();
            slab[d] = side;
            if !slab.iter().any(Span::is_empty) {
                boxes.push(slab);
            }
        }
        rest[d] = inner[d];
    }
    boxes
}

impl Primitive for UpdateSlice {
    joins_operands!();
    fn name(&self) -> &'static str {
        "update_slice"
    }
    fn params(&self) -> String {
        format!("start={}", list(&self.start))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let types = arity(self.name(), operands, 2)?;
        let (x, u) = (types[0], types[1]);
        same_length("start", self.start.len(), x.rank())?;
        if u.rank() != x.rank() {
            return Err(shape_fault(format!(
                "the update has {} dimensions, but the array has {}",
                u.rank(),
                x.rank()
            )));
        }
        if u.dtype != x.dtype {
            let message = format!("the update is {}, but the array {}", u.dtype, x.dtype);
            return Err(Fault::new(ErrorKind::Dtype, message)
                .help(format!("convert the update: `.astype({:?})`", x.dtype))
                .mark(0, Spot::Dtype)
                .mark(1, Spot::Dtype));
        }
        for (d, (&n, &m)) in x.shape.iter().zip(&*u.shape).enumerate() {
            let at = self.start[d];
            if at + m > n {
                let message =
                    format!("the update's {at}..{} is not within dimension {d} of size {n}", at + m);
                return Err(shape_fault(message).dim(0, d).dim(1, d));
            }
        }
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let (x, u) = (&operands[0].shape, &operands[1].shape);
        let dims = (0..x.rank()).map(|d| {
            let placed = At::Affine { scale: 1, offset: -(self.start[d] as i64) };
            Dim::at(d, if u[d] == x[d] { At::Same } else { placed })
        });
        let operands = vec![Dim::each(0..x.rank()), dims.collect()];
        Factors { operands, results: vec![Dim::each(0..x.rank())], ..Factors::over(x) }.join_all(Join::Equal)
    }
    fn priority(&self) -> Priority {
        Priority::DynamicSlice
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let x = match &operands[0] {
            Some(_) => None,
            None => {
                let hole = b.zeros(&cotangent_type(&types[1]))?;
                Some(b.update_slice(ct, &hole, &self.start)?)
            }
        };
        let u = match &operands[1] {
            Some(_) => None,
            None => Some(b.box_of(ct, &self.start, &types[1])?),
        };
        Ok(vec![x, u])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let outer = Span::whole(&operands[0].shape);
        let at = self.start.iter().zip(&*operands[1].shape);
        let inner: Vec<Span> =
            at.map(|(s, n)| Span { lo: *s as i64, hi: (*s + *n) as i64, step: 1 }).collect();
        let (rank, mut parts): (usize, Vec<Part>) = (outer.len(), Vec::new());
        if inner.iter().any(Span::is_empty) {
            parts.push(part(0, outer, Affine::identity(rank)));
        } else {
            for span in around(&outer, &inner) {
                let map = span.iter().enumerate().map(|(d, s)| Affine::of(s.lo, d, 1)).collect();
                parts.push(part(0, span, map));
            }
            parts.push(part(1, inner, Affine::identity(rank)));
        }
        view(&results[0], parts, Scalar::zero(results[0].dtype.storage()))
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::alike(Arc::new(UpdateSlice { start: inserted(&self.start, 0, 0) }), false)
    }
}

impl Builder {
    /// The values one after another along a dimension.
    pub fn concatenate(&mut self, parts: &[Value], dimension: usize) -> Result<Value> {
        match parts {
            [one] => Ok(one.clone()),
            _ => self.emit1(Arc::new(Concatenate { dimension }), parts),
        }
    }
    /// `x` with `u` in its place from `start` on.
    pub fn update_slice(&mut self, x: &Value, u: &Value, start: &[usize]) -> Result<Value> {
        self.emit1(Arc::new(UpdateSlice { start: start.to_vec() }), &[x.clone(), u.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

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
        concatenate_of_other_sizes_is_refused: Concatenate { dimension: 0 }, ["float32[2,2]", "float32[4,3]"] => "
            refused: operand 1 has shape [4,3], but operand 0 [2,2]: they may differ in dimension 0 only
            make their sizes equal: `slice`, `pad`
        ";
    }
}
