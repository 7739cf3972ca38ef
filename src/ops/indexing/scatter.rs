//! Windows put at indices, or combined with what is there: scatter.

use super::places::{Of, Places};
use super::{Gather, one_type, read};
use crate::diagnostic::{Fault, Result};
use crate::ops::build::cotangent_type;
use crate::ops::creation::Iota;
use crate::ops::elementwise::Takes;
use crate::ops::view::{arity, print_out, shape_fault};
use crate::program::sentence::{Body, Combine, Read, Sentence};
use crate::program::{
    Align, Back, Batch, Batched, Builder, Dim, Factors, Forward, Join, Linearity, Operand, Prim, Primitive,
    Priority, Tangents, Value,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// An array with windows put, or combined, where an array of numbers says: `scatter(x, u, i)`. Windows that meet one element do so in the
/// row-major order of the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scatter {
    /// How the numbers say where.
    pub at: Places,
    /// How a window is combined with what is there; nothing: it takes its place.
    pub combine: Option<Combine>,
    /// The sharding asked for; where it is, the operands may be sharded in any way.
    pub out: Option<Spec>,
}

impl Scatter {
    /// The size of a window in each dimension of the array.
    fn sizes(&self, x: &ArrayType, u: &ArrayType) -> Shape {
        let size = |role| if let Of::Window(w) = role { u.shape[w] } else { 1 };
        self.at.roles(x.rank()).into_iter().map(size).collect()
    }
    /// The gather of what this puts.
    fn gather(&self, b: &mut Builder, from: &Value, like: &ArrayType, i: &Value) -> Result<Value> {
        let fill = Scalar::zero(from.ty.dtype);
        let take = Gather { at: self.at.clone(), sizes: self.sizes(&from.ty, like), fill, out: None };
        let make = |out| Arc::new(Gather { out, ..take.clone() }) as Prim;
        b.emit_as(make, &[from.clone(), i.clone()], like.spec)
    }
    /// The same windows combined so.
    fn put(
        &self,
        b: &mut Builder,
        onto: &Value,
        u: &Value,
        i: &Value,
        combine: Option<Combine>,
    ) -> Result<Value> {
        let put = Scatter { combine, out: None, ..self.clone() };
        let make = |out| Arc::new(Scatter { out, ..put.clone() }) as Prim;
        b.emit_as(make, &[onto.clone(), u.clone(), i.clone()], onto.ty.spec)
    }
    /// Where each element of the windows is the last one put at its place; none where no two windows meet.
    fn stayed(&self, b: &mut Builder, x: &ArrayType, u: &ArrayType, i: &Value) -> Result<Option<Value>> {
        let queries: Vec<usize> = (0..u.rank()).filter(|d| !self.at.windows.contains(d)).collect();
        if queries.iter().map(|d| u.shape[*d]).product::<usize>() <= 1 {
            return Ok(None);
        }
        let of = |ty: &ArrayType| ArrayType {
            dtype: DType::I32,
            spec: Spec::of(ty.spec.dims().to_vec()),
            ..ty.clone()
        };
        let (mut number, mut stride): (Option<Value>, usize) = (None, 1);
        for d in queries.into_iter().rev() {
            let along = b.emit1(Arc::new(Iota { ty: of(u), dimension: d }), &[])?;
            let along = b.times(&along, stride as f64)?;
            number = b.sum_of(number, Some(along))?;
            stride *= u.shape[d];
        }
        let Some(number) = number else { return Ok(None) };
        let none = b.full(&of(x), Scalar::Int(-1))?;
        let last = self.put(b, &none, &number, i, None)?;
        let last = self.gather(b, &last, &of(u), i)?;
        b.eq(&last, &number).map(Some)
    }
}

impl Primitive for Scatter {
    fn name(&self) -> &'static str {
        match self.combine {
            None => "scatter",
            Some(Combine::Add) => "scatter_add",
            Some(Combine::Mul) => "scatter_mul",
            Some(Combine::Max) => "scatter_max",
            Some(Combine::Min) => "scatter_min",
            Some(Combine::And) => "scatter_and",
            Some(Combine::Or) => "scatter_or",
            Some(Combine::Same) => "scatter_same",
        }
    }
    fn params(&self) -> String {
        format!("{}{}", self.at.text(), print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let types = arity(self.name(), operands, 3)?;
        let (x, u, i) = (types[0], types[1], types[2]);
        one_type(x, u)?;
        if matches!(self.combine, Some(Combine::Max | Combine::Min)) && x.dtype.is_complex() {
            Takes::Ordered.check(operands, 0)?;
        }
        let rest = i.rank().saturating_sub(1);
        super::same_rank(
            self.name(),
            self.at.windows.len() + self.at.collapsed.len() + self.at.batching.len(),
            x,
        )?;
        if u.rank() != rest + self.at.windows.len() || self.at.windows.iter().any(|w| *w >= u.rank()) {
            return Err(shape_fault(format!(
                "the update has {} dimensions: {rest} of the numbers and {} of windows make it",
                u.rank(),
                self.at.windows.len()
            )));
        }
        self.at.check(self.name(), x, &operands[2], &self.sizes(x, u))?;
        let queries = self.at.queries(x.rank());
        if let Some((b, w)) = (0..rest).zip(queries).find(|(b, w)| i.shape[*b] != u.shape[*w]) {
            let message = format!(
                "the update has {} of its dimension {w}, where there are {} numbers",
                u.shape[w], i.shape[b]
            );
            return Err(shape_fault(message).dim(1, w));
        }
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let (x, u, i) = (&operands[0], &operands[1], &operands[2]);
        let mut f = Factors::over(&x.shape);
        let mut update: Vec<Option<usize>> = vec![None; u.rank()];
        for (d, role) in self.at.roles(x.rank()).into_iter().enumerate() {
            match role {
                Of::Batch(w) => update[w] = Some(d),
                Of::Window(w) if u.shape[w] == x.shape[d] => {
                    f.loops[d].join = Some(Join::Equal);
                    update[w] = Some(d);
                }
                Of::Window(w) => {
                    f.loops[d].join = Some(Join::Never);
                    let l = f.add_joined(u.shape[w], Join::Never);
                    f.loops[l].whole = true;
                    update[w] = Some(l);
                }
                Of::One => f.loops[d].join = Some(Join::Never),
            }
        }
        if self.out.is_some() {
            f.loops.iter_mut().filter(|l| l.join == Some(Join::Equal)).for_each(|l| l.join = None);
        }
        let whole = self.combine != Some(Combine::Add);
        let dims: Vec<usize> = (0..u.rank())
            .map(|w| {
                update[w].unwrap_or_else(|| {
                    let l = f.add_joined(u.shape[w], Join::Never);
                    f.loops[l].whole = whole;
                    l
                })
            })
            .collect();
        let vector = f.add(self.at.of.len());
        f.loops[vector].whole = true;
        let queries = &self.at.queries(x.rank())[..i.rank() - 1];
        let numbers = queries.iter().map(|w| dims[*w]).chain([vector]).collect::<Vec<_>>();
        f.operands = vec![Dim::each(0..x.rank()), Dim::each(dims), Dim::each(numbers)];
        f.results = vec![Dim::each(0..x.rank())];
        f
    }
    fn linearity(&self) -> Linearity {
        match self.combine {
            None | Some(Combine::Add) => Linearity::Placed(2),
            Some(_) => Linearity::None,
        }
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
        let (x, u, i, y) = (&operands[0], &operands[1], &operands[2], &outputs[0]);
        let mut t = Vec::with_capacity(2);
        for k in 0..2 {
            t.push(match &tangents[k] {
                Some(t) => t.clone(),
                None => b.zeros(&operands[k].ty)?,
            });
        }
        let add = Some(Combine::Add);
        let zero = Value::literal(u.ty.dtype, Scalar::zero(u.ty.dtype));
        let tangent = match self.combine {
            None | Some(Combine::Add) => {
                b.emit1(Arc::new(self.clone()), &[t[0].clone(), t[1].clone(), i.clone()])?
            }
            Some(Combine::Mul) => {
                let by_x = self.put(b, &t[0], u, i, self.combine)?;
                // of each factor: the product of the others, which is 0 where two are
                let one = Value::literal(u.ty.dtype, Scalar::one(u.ty.dtype));
                let none = b.zeros(&y.ty)?;
                let is = b.eq(u, &zero)?;
                let count = b.select(&is, &one, &zero)?;
                let count = self.put(b, &none, &count, i, add)?;
                let count = self.gather(b, &count, &u.ty, i)?;
                let others = b.select(&is, &one, u)?;
                let product = self.put(b, x, &others, i, self.combine)?;
                let product = self.gather(b, &product, &u.ty, i)?;
                let without = b.div(&product, &others)?;
                let least = b.select(&is, &one, &zero)?;
                let alone = b.eq(&count, &least)?;
                let slope = b.select(&alone, &without, &zero)?;
                let part = b.mul(&t[1], &slope)?;
                self.put(b, &by_x, &part, i, add)?
            }
            Some(Combine::Max | Combine::Min) => {
                // what attains the extreme shares it, where the result is
                let dims: Vec<usize> = (0..y.ty.rank()).collect();
                let x = &b.broadcast_in_dim_as(x, &y.ty.shape, &dims, y.ty.spec)?;
                t[0] = b.broadcast_in_dim_as(&t[0], &y.ty.shape, &dims, y.ty.spec)?;
                let at = self.gather(b, y, &u.ty, i)?;
                let (mine, theirs) = (b.eq(x, y)?, b.eq(u, &at)?);
                let one = Value::literal(u.ty.dtype, Scalar::one(u.ty.dtype));
                let own = b.select(&mine, &one, &zero)?;
                let each = b.select(&theirs, &one, &zero)?;
                let count = self.put(b, &own, &each, i, add)?;
                let count = b.max(&count, &one)?;
                let kept = b.select(&mine, &t[0], &zero)?;
                let part = b.select(&theirs, &t[1], &zero)?;
                let sum = self.put(b, &kept, &part, i, add)?;
                b.div(&sum, &count)?
            }
            Some(Combine::And | Combine::Or | Combine::Same) => return Ok(vec![None]),
        };
        Ok(vec![Some(tangent)])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let mut cts = vec![None; 3];
        let (Some(ct), Some(i)) = (&cotangents[0], &operands[2]) else { return Ok(cts) };
        let [x, u] = [0, 1].map(|k| cotangent_type(&types[k]));
        if let (Some(Combine::Mul), Some(u)) = (self.combine, &operands[1]) {
            // the factors by themselves, which an unreduced cotangent is multiplied by
            let ones = b.full(&types[0], Scalar::one(types[0].dtype))?;
            let by = self.put(b, &ones, u, i, self.combine)?;
            cts[0] = Some(b.mul_by(ct, &by)?);
            return Ok(cts);
        }
        let add = match self.combine {
            None => false,
            Some(Combine::Add) => true,
            Some(_) => return Err(crate::ops::build::not_linear(self.name())),
        };
        if operands[0].is_none() {
            let ct = match add {
                true => ct.clone(),
                false => {
                    let hole = b.zeros(&u)?;
                    self.put(b, ct, &hole, i, None)?
                }
            };
            cts[0] =
                Some(b.broadcast_in_dim_as(&ct, &x.shape, &(0..x.rank()).collect::<Vec<_>>(), x.spec)?);
        }
        if operands[1].is_none() {
            let part = self.gather(b, ct, &u, i)?;
            let stayed = if add { None } else { self.stayed(b, &types[0], &types[1], i)? };
            cts[1] = Some(match stayed {
                None => part,
                Some(stayed) => {
                    let zero = b.zero_beside(&part.ty)?;
                    b.select(&stayed, &part, &zero)?
                }
            });
        }
        Ok(cts)
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        let at = self.at.on_examples(batch, true, batch.mapped[2]);
        let prim = Scatter { at, out: batch.out(self.out, 0), ..self.clone() };
        Batched { align: Align::Placed(2), ..Batched::of(Arc::new(prim)) }
    }
    fn sentences(&self, operands: &[ArrayType], _: &[ArrayType]) -> Vec<Sentence> {
        let (x, u, i) = (&operands[0], &operands[1], &operands[2]);
        let mut extents = x.shape.to_vec();
        // the loop of each dimension of the update
        let mut loops: Vec<Option<usize>> = vec![None; u.rank()];
        let roles = self.at.roles(x.rank());
        for (d, role) in roles.iter().enumerate() {
            if let Of::Batch(w) = role {
                loops[*w] = Some(d);
            }
        }
        let queries = &self.at.queries(x.rank())[..i.rank() - 1];
        for w in queries {
            loops[*w].get_or_insert_with(|| (extents.push(u.shape[*w]), extents.len() - 1).1);
        }
        let (mut at, mut said) = (Vec::new(), Vec::new());
        for (d, role) in roles.into_iter().enumerate() {
            let (n, size) = (x.shape[d], if let Of::Window(w) = role { u.shape[w] } else { 1 });
            let number = self.at.number(d, n, size);
            let still = number.is_none() && size == n;
            let window = match role {
                Of::Batch(_) => continue,
                Of::One if still => continue,
                Of::One => None,
                Of::Window(w) if still => {
                    loops[w] = Some(d);
                    continue;
                }
                Of::Window(w) => {
                    loops[w] = Some(extents.len());
                    extents.push(size);
                    Some((extents.len() - 1, size))
                }
            };
            at.push(self.at.bound(d, 2 + said.len(), n, window));
            said.push(number);
        }
        let dtype = x.dtype.storage();
        let over: Vec<usize> = loops.iter().flatten().copied().collect();
        let numbers: Vec<usize> = queries.iter().map(|w| loops[*w].unwrap_or(0)).collect();
        let mut reads = vec![read(0, dtype, &extents, 0..x.rank()), read(1, dtype, &extents, over)];
        reads.extend(said.into_iter().map(|j| match j {
            Some(j) => Places::read(2, j, i, &extents, &numbers),
            // a window that no number moves begins at 0
            None => Read { dtype: DType::I32, parts: Vec::new(), fill: Scalar::Int(0) },
        }));
        vec![Sentence {
            rank: x.rank(),
            extents,
            dtype,
            reads,
            body: Body::Put { at, combine: self.combine },
        }]
    }
}
