//! Windows at indices: gather.

use super::places::{Of, Places};
use super::{Scatter, read};
use crate::diagnostic::{Fault, Result};
use crate::mesh::AxisType;
use crate::ops::build::cotangent_type;
use crate::ops::view::{arity, list, print_out, view};
use crate::program::sentence::{Affine, Beyond, Body, Combine, Sentence};
use crate::program::{
    At, Back, Batch, Batched, Dim, Factors, Forward, Join, Linearity, Operand, Prim, Primitive, Priority,
    Tangents, inserted,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// Windows of an array where an array of numbers says: `gather(x, i)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// How the numbers say where.
    pub at: Places,
    /// The sizes of a window.
    pub sizes: Shape,
    /// What is gathered where a window does not fit, if it is not moved.
    pub fill: Scalar,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

/// What stands for elements that are not there: NaN, the least signed or the greatest unsigned integer, true.
pub fn nothing(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(true),
        d if d.is_inexact() => Scalar::Float(f64::NAN),
        d if d.is_signed() => Combine::Max.neutral(d),
        d => Combine::Min.neutral(d),
    }
}

impl Gather {
    /// The same on all examples.
    pub(super) fn on_examples(&self, batch: &Batch<'_>) -> Gather {
        let (x, i) = (batch.mapped[0], batch.mapped[1]);
        let sizes = match (x, i) {
            (true, true) => inserted(&self.sizes, 0, 1).into(),
            (true, false) => inserted(&self.sizes, 0, batch.examples.size).into(),
            (false, _) => self.sizes.clone(),
        };
        // of one array each example looks its own up, where the examples are: that is asked for
        let one = (!x && !batch.examples.axes.is_empty()).then(|| {
            let mesh = batch.examples.mesh.as_ref();
            let explicit = |a| mesh.is_none_or(|m| m.axis_type(a) == Some(AxisType::Explicit));
            batch.results[0].spec.only(explicit)
        });
        let (at, out) = (self.at.on_examples(batch, x, i), batch.out(self.out.or(one), 0));
        Gather { at, sizes, out, ..self.clone() }
    }
    fn loops(&self, x: &ArrayType, i: &ArrayType, y: &Shape) -> Factors {
        let mut f = Factors::over(y);
        let queries = self.at.queries(x.rank());
        let of_numbers = i.rank().saturating_sub(1);
        let mut result = Dim::each(0..y.rank());
        let mut array = Vec::new();
        for (d, role) in self.at.roles(x.rank()).into_iter().enumerate() {
            let n = x.shape[d];
            array.push(Dim::same(match role {
                Of::Batch(w) => w,
                Of::Window(w) if self.sizes[d] == n => w,
                Of::Window(w) if !self.at.of.contains(&d) => {
                    f.loops[w].size = n;
                    result[w] = Dim::at(w, At::Window);
                    w
                }
                Of::Window(_) | Of::One => f.add_joined(n, Join::Never),
            }));
        }
        for b in (0..of_numbers).filter(|b| self.at.batching.iter().all(|p| p.1 != *b)) {
            f.loops[queries[b]].join = Some(Join::Never);
        }
        let vector = f.add(self.at.of.len());
        f.loops[vector].whole = true;
        let numbers = queries[..of_numbers].iter().copied().chain([vector]);
        f.operands = vec![array, Dim::each(numbers)];
        f.results = vec![result];
        f
    }
}

impl Primitive for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }
    fn params(&self) -> String {
        let fill = match self.at.beyond {
            Beyond::Clip => String::new(),
            Beyond::Nothing => format!(", fill={}", self.fill),
        };
        format!("{}, sizes={}{fill}{}", self.at.text(), list(&self.sizes), print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 2)?[0];
        super::same_rank(self.name(), self.sizes.len(), x)?;
        self.at.check(self.name(), x, &operands[1], &self.sizes)?;
        let numbers = &operands[1].ty.shape;
        let mut shape = vec![0; numbers.len() - 1 + self.at.windows.len()];
        let queries = self.at.queries(x.rank());
        numbers[..numbers.len() - 1].iter().zip(queries).for_each(|(n, w)| shape[w] = *n);
        for (d, role) in self.at.roles(x.rank()).into_iter().enumerate() {
            if let Of::Window(w) = role {
                shape[w] = self.sizes[d];
            }
        }
        Ok(vec![(x.dtype, shape.into())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        self.loops(&operands[0], &operands[1], &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        let nothing = self.at.beyond == Beyond::Nothing;
        if nothing && !self.fill.adds_to_itself() { Linearity::Filled(1) } else { Linearity::Placed(1) }
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
        let prim = Gather { fill: Scalar::zero(t.ty.dtype), ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(prim), &[t.clone(), operands[1].clone()])?)])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let (Some(ct), Some(i)) = (&cotangents[0], &operands[1]) else { return Ok(vec![None, None]) };
        let want = cotangent_type(&types[0]);
        let zeros = b.zeros(&want)?;
        let put = Scatter { at: self.at.clone(), combine: Some(Combine::Add), out: None };
        let make = |out| Arc::new(Scatter { out, ..put.clone() }) as Prim;
        Ok(vec![Some(b.emit_as(make, &[zeros, ct.clone(), i.clone()], want.spec)?), None])
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.on_examples(batch)))
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (x, i, y) = (&operands[0], &operands[1], &results[0]);
        let mut extents = y.shape.to_vec();
        let (mut map, mut at, mut said) = (Vec::new(), Vec::new(), Vec::new());
        for (d, role) in self.at.roles(x.rank()).into_iter().enumerate() {
            let (n, size) = (x.shape[d], self.sizes[d]);
            let window = match role {
                Of::Batch(w) | Of::Window(w) => Some((w, size)),
                Of::One => None,
            };
            map.push(match (role, self.at.number(d, n, size)) {
                (Of::Batch(w), _) | (Of::Window(w), None) => Affine::of(0, w, 1),
                (Of::One, None) => Affine::constant(0),
                (Of::Window(_) | Of::One, Some(j)) => {
                    let index = extents.len();
                    extents.push(n);
                    at.push(self.at.bound(index, 1 + said.len(), n, window));
                    said.push(j);
                    Affine::of(0, index, 1)
                }
            });
        }
        let dtype = y.dtype.storage();
        let mut from = read(0, dtype, &extents, []);
        from.fill = self.fill;
        from.parts.iter_mut().for_each(|p| p.map.clone_from(&map));
        if at.is_empty() {
            return view(y, from.parts, from.fill);
        }
        let queries = &self.at.queries(x.rank())[..i.rank() - 1];
        let mut reads = vec![from];
        reads.extend(said.into_iter().map(|j| Places::read(1, j, i, &extents, queries)));
        vec![Sentence { rank: y.rank(), extents, dtype, reads, body: Body::Take { at } }]
    }
}
