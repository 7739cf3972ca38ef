//! Boxes that begin at numbers known at run time: dynamic_slice, and dynamic_update_slice, which puts one there.

use super::{Gather, Places, integers, one_type, read};
use crate::diagnostic::{Fault, Result};
use crate::ops::build::{cotangent_type, not_linear};
use crate::ops::elementwise::{Binary, Takes};
use crate::ops::view::{arity, list, print_out, shape_fault, view};
use crate::program::sentence::{Beyond, Body, Bound, Combine, Read, Sentence};
use crate::program::{
    Align, At, Back, Batch, Batched, Builder, Dim, Factors, Forward, Join, Linearity, Operand, Prim,
    Primitive, Priority, Tangents, Value, behind, inserted,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// The box of these sizes that begins at numbers in some dimensions, and at 0 in the others. The operands are the array and a number for
/// each of `dims`; numbers are cut so that the box fits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicSlice {
    /// The sizes of the box.
    pub sizes: Shape,
    /// The dimension of each number.
    pub dims: Vec<usize>,
    /// The dimensions that run over examples which have numbers of their own: those of each number that is no scalar.
    pub lead: Vec<usize>,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

/// The first operand with the second one in its place from the numbers on, or combined with what is there. The numbers are cut so that it fits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DynamicUpdateSlice {
    /// The dimension of each number.
    pub dims: Vec<usize>,
    /// The dimensions that run over examples which have numbers of their own.
    pub lead: Vec<usize>,
    /// How it is combined with what is there; nothing: it takes its place.
    pub combine: Option<Combine>,
    /// The sharding asked for; where it is, the operands may be sharded in any way.
    pub out: Option<Spec>,
}

/// Refuses boxes that do not fit, and numbers that are not one for each dimension.
fn check(
    name: &str,
    x: &ArrayType,
    sizes: &[usize],
    numbers: &[Operand],
    dims: &[usize],
    lead: &[usize],
) -> Result<(), Fault> {
    if sizes.len() != x.rank() {
        return Err(shape_fault(format!(
            "{name} has {} sizes, but the array has {} dimensions",
            sizes.len(),
            x.rank()
        )));
    }
    if let Some(d) = dims.iter().chain(lead).find(|d| **d >= x.rank()) {
        return Err(shape_fault(format!("there is no dimension {d} among {}", x.rank())));
    }
    if let Some(d) = (0..x.rank()).find(|d| sizes[*d] > x.shape[*d]) {
        let message = format!("{name} takes {} of dimension {d}, which has size {}", sizes[d], x.shape[d]);
        return Err(shape_fault(message).help(format!("take at most {}", x.shape[d])).dim(0, d));
    }
    // a dimension of which less is taken than there is begins where its number says
    let still = |d: &usize| sizes[*d] != x.shape[*d] && !dims.contains(d);
    if let Some(d) = (0..x.rank()).find(still) {
        return Err(shape_fault(format!("no number says where dimension {d} begins")).dim(0, d));
    }
    if let Some(d) = lead.iter().find(|d| sizes[**d] != x.shape[**d]) {
        return Err(shape_fault(format!("dimension {d} runs over examples, and is taken whole")).dim(0, *d));
    }
    let of_examples: Vec<usize> = lead.iter().map(|d| x.shape[*d]).collect();
    for (k, o) in numbers.iter().enumerate() {
        if o.ty.rank() > 0 && o.ty.shape[..] != of_examples {
            let message = format!("number {k} has shape {}, and must be a scalar", o.ty.shape);
            return Err(shape_fault(message).help("give one number for each dimension"));
        }
    }
    Ok(())
}

impl DynamicSlice {
    /// The boxes of one array that all examples look at, each at numbers of its own: its cotangents are then put into one array, and not
    /// into one for each example.
    fn of_one(&self, batch: &Batch<'_>) -> Option<Gather> {
        let (x, numbers) = batch.operands.split_first()?;
        let scalars = numbers.iter().all(|n| n.rank() == 0 && n.dtype == numbers[0].dtype);
        let parted = |d: &usize| self.sizes[*d] != x.shape[*d] && !x.spec.dim(*d).is_empty();
        if batch.mapped[0] || !scalars || self.dims.iter().any(parted) {
            return None;
        }
        let at = Places {
            of: self.dims.clone(),
            windows: (0..x.rank()).collect(),
            beyond: Beyond::Clip,
            ..Places::default()
        };
        let one = Gather { at, sizes: self.sizes.clone(), fill: Scalar::zero(x.dtype), out: self.out };
        Some(one.on_examples(&Batch { mapped: &[false, true], ..*batch }))
    }
}

/// The loops of numbers.
fn of_numbers(numbers: &[ArrayType], lead: &[usize]) -> Vec<Vec<Dim>> {
    numbers.iter().map(|i| Dim::each(lead.iter().copied().take(i.rank()))).collect()
}

/// Where the numbers' dimensions run when examples are added.
fn leading(lead: &[usize], batch: &Batch<'_>, first: usize) -> Vec<usize> {
    let own = batch.mapped[first..].contains(&true);
    own.then_some(0).into_iter().chain(behind(lead)).collect()
}

impl Primitive for DynamicSlice {
    fn name(&self) -> &'static str {
        "dynamic_slice"
    }
    fn params(&self) -> String {
        let lead = if self.lead.is_empty() { String::new() } else { format!(", lead={}", list(&self.lead)) };
        format!("sizes={}, dims={}{lead}{}", list(&self.sizes), list(&self.dims), print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1 + self.dims.len())?[0];
        integers(operands, 1)?;
        check(self.name(), x, &self.sizes, &operands[1..], &self.dims, &self.lead)?;
        Ok(vec![(x.dtype, self.sizes.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let x = &operands[0].shape;
        let at = |d| if self.sizes[d] == x[d] { At::Same } else { At::Window };
        let mut dims = vec![Dim::each(0..x.rank())];
        dims.extend(of_numbers(&operands[1..], &self.lead));
        let result = (0..x.rank()).map(|d| Dim::at(d, at(d))).collect();
        Factors { operands: dims, results: vec![result], ..Factors::over(x) }
    }
    fn linearity(&self) -> Linearity {
        Linearity::Placed(1)
    }
    fn priority(&self) -> Priority {
        Priority::DynamicSlice
    }
    fn out(&self) -> Option<Spec> {
        self.out
    }
    fn with_out(&self, out: Spec) -> Option<Prim> {
        Some(Arc::new(Self { out: Some(out), ..self.clone() }))
    }
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let args: Vec<Value> = std::iter::once(t).chain(&operands[1..]).cloned().collect();
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &args)?)])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let mut cts = vec![None; types.len()];
        if let Some(ct) = &cotangents[0] {
            let want = cotangent_type(&types[0]);
            let zeros = b.zeros(&want)?;
            let starts = operands[1..].iter().flatten().cloned();
            let args: Vec<Value> = [zeros, ct.clone()].into_iter().chain(starts).collect();
            let (dims, lead) = (self.dims.clone(), self.lead.clone());
            let put = DynamicUpdateSlice { dims, lead, combine: Some(Combine::Add), out: None };
            let make = |out| Arc::new(DynamicUpdateSlice { out, ..put.clone() }) as Prim;
            cts[0] = Some(b.emit_as(make, &args, want.spec)?);
        }
        Ok(cts)
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        if let Some(gather) = self.of_one(batch) {
            return Batched { align: Align::Vectors(1), ..Batched::of(Arc::new(gather)) };
        }
        let prim = DynamicSlice {
            sizes: inserted(&self.sizes, 0, batch.examples.size).into(),
            dims: behind(&self.dims),
            lead: leading(&self.lead, batch, 1),
            out: batch.out(self.out, 0),
        };
        Batched { align: Align::Placed(1), ..Batched::of(Arc::new(prim)) }
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (x, y) = (&operands[0], &results[0]);
        let mut extents = y.shape.to_vec();
        let mut loops: Vec<usize> = (0..x.rank()).collect();
        // along a dimension that is all there, the number says nothing
        let (mut at, mut said) = (Vec::new(), Vec::new());
        for (j, &d) in self.dims.iter().enumerate().filter(|(_, d)| x.shape[**d] != y.shape[**d]) {
            loops[d] = extents.len();
            extents.push(x.shape[d]);
            let most = x.shape[d].saturating_sub(y.shape[d]) as i64;
            said.push(1 + j);
            let by = said.len();
            at.push(Bound { index: loops[d], by, most, beyond: Beyond::Clip, window: Some(d) });
        }
        let dtype = y.dtype.storage();
        let mut reads = vec![read(0, dtype, &extents, loops)];
        if at.is_empty() {
            return view(y, reads.remove(0).parts, Scalar::zero(dtype));
        }
        reads.extend(numbers(operands, said, &extents, &self.lead));
        vec![Sentence { rank: y.rank(), extents, dtype, reads, body: Body::Take { at } }]
    }
}

impl DynamicUpdateSlice {
    /// What combines, where that is not linear in both.
    fn function(&self) -> Option<Binary> {
        match self.combine? {
            Combine::Add => None,
            Combine::Mul => Some(Binary::Mul),
            Combine::Max | Combine::Same => Some(Binary::Max),
            Combine::Min => Some(Binary::Min),
            Combine::And => Some(Binary::And),
            Combine::Or => Some(Binary::Or),
        }
    }
    /// What of an array is where an update of this type is put.
    fn there(&self, b: &mut Builder, x: &Value, update: &ArrayType, starts: &[Value]) -> Result<Value> {
        let args: Vec<Value> = std::iter::once(x).chain(starts).cloned().collect();
        let (dims, lead) = (self.dims.clone(), self.lead.clone());
        let take = DynamicSlice { sizes: update.shape.clone(), dims, lead, out: None };
        let make = |out| Arc::new(DynamicSlice { out, ..take.clone() }) as Prim;
        b.emit_as(make, &args, update.spec)
    }
}

/// Reads of the numbers that say where, which are these of the operands.
fn numbers<'a>(
    operands: &'a [ArrayType],
    said: Vec<usize>,
    extents: &'a [usize],
    lead: &'a [usize],
) -> impl Iterator<Item = Read> + 'a {
    let number = |k: usize| (k, &operands[k]);
    let each = said.into_iter().map(number);
    each.map(move |(k, i)| read(k, i.dtype, extents, lead.iter().copied().take(i.rank())))
}

impl Primitive for DynamicUpdateSlice {
    fn name(&self) -> &'static str {
        "dynamic_update_slice"
    }
    fn params(&self) -> String {
        let lead = if self.lead.is_empty() { String::new() } else { format!(", lead={}", list(&self.lead)) };
        let combine = match self.combine {
            None => "",
            Some(Combine::Add) => ", add",
            Some(Combine::Mul) => ", mul",
            Some(Combine::Max) => ", max",
            Some(Combine::Min) => ", min",
            Some(Combine::And) => ", and",
            Some(Combine::Or) => ", or",
            Some(Combine::Same) => ", same",
        };
        format!("dims={}{lead}{combine}{}", list(&self.dims), print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let types = arity(self.name(), operands, 2 + self.dims.len())?;
        let (x, u) = (types[0], types[1]);
        one_type(x, u)?;
        integers(operands, 2)?;
        match self.combine {
            None => {}
            Some(Combine::Add | Combine::Mul) => Takes::Number.check(operands, 0)?,
            Some(_) => Takes::Ordered.check(operands, 0)?,
        }
        if u.rank() != x.rank() {
            let message = format!("the update has {} dimensions, but the array has {}", u.rank(), x.rank());
            return Err(shape_fault(message).help("give them one rank: `.expand_dims(…)`, `.reshape(…)`"));
        }
        check(self.name(), x, &u.shape, &operands[2..], &self.dims, &self.lead)?;
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let (x, u) = (&operands[0].shape, &operands[1].shape);
        let at = |d| if u[d] == x[d] { At::Same } else { At::Window };
        let mut dims = vec![Dim::each(0..x.rank()), (0..x.rank()).map(|d| Dim::at(d, at(d))).collect()];
        dims.extend(of_numbers(&operands[2..], &self.lead));
        let mut f = Factors { operands: dims, results: vec![Dim::each(0..x.rank())], ..Factors::over(x) };
        if self.out.is_none() {
            // numbers of examples may be unsharded where the examples are not
            for l in (0..x.rank()).filter(|l| !self.lead.contains(l)) {
                f.loops[l].join = Some(Join::Equal);
            }
        }
        f
    }
    fn linearity(&self) -> Linearity {
        match self.combine {
            None | Some(Combine::Add) => Linearity::Placed(2),
            Some(_) => Linearity::None,
        }
    }
    fn priority(&self) -> Priority {
        Priority::DynamicSlice
    }
    fn out(&self) -> Option<Spec> {
        self.out
    }
    fn with_out(&self, out: Spec) -> Option<Prim> {
        Some(Arc::new(Self { out: Some(out), ..self.clone() }))
    }
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let mut args = operands.to_vec();
        for k in 0..2 {
            args[k] = match &tangents[k] {
                Some(t) => t.clone(),
                None => b.zeros(&operands[k].ty)?,
            };
        }
        let Some(fun) = self.function() else {
            return Ok(vec![Some(b.emit1(Arc::new(self.clone()), &args)?)]);
        };
        // of what is there and the update, whose tangent takes its place
        let mut there = |x: &Value| self.there(b, x, &operands[1].ty, &operands[2..]);
        let (old, now, of_old) = (there(&operands[0])?, there(&outputs[0])?, there(&args[0])?);
        let at = [old, operands[1].clone()];
        let of = [Some(of_old), tangents[1].clone()];
        let t = fun.jvp(Forward { b, operands: &at, tangents: &of, outputs: &[now] })?;
        let Some(t) = t.into_iter().next().flatten() else { return Ok(vec![None]) };
        args[1] = b.fit(&t, &operands[1].ty)?;
        let set = DynamicUpdateSlice { combine: None, ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(set), &args)?)])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let mut cts = vec![None; types.len()];
        let Some(ct) = &cotangents[0] else { return Ok(cts) };
        if self.function().is_some() {
            return Err(not_linear("dynamic_update_slice"));
        }
        let add = self.combine.is_some();
        let starts: Vec<Value> = operands[2..].iter().flatten().cloned().collect();
        if operands[0].is_none() && add {
            let (ct, x) = (ct.clone(), cotangent_type(&types[0]));
            cts[0] =
                Some(b.broadcast_in_dim_as(&ct, &x.shape, &(0..x.rank()).collect::<Vec<_>>(), x.spec)?);
        } else if operands[0].is_none() {
            let hole = b.zeros(&cotangent_type(&types[1]))?;
            let args: Vec<Value> = [ct.clone(), hole].into_iter().chain(starts.iter().cloned()).collect();
            let make = |out| Arc::new(DynamicUpdateSlice { out, ..self.clone() }) as Prim;
            cts[0] = Some(b.emit_as(make, &args, cotangent_type(&types[0]).spec)?);
        }
        if operands[1].is_none() {
            cts[1] = Some(self.there(b, ct, &cotangent_type(&types[1]), &starts)?);
        }
        Ok(cts)
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        let prim = DynamicUpdateSlice {
            dims: behind(&self.dims),
            lead: leading(&self.lead, batch, 2),
            combine: self.combine,
            out: batch.out(self.out, 0),
        };
        Batched { align: Align::Placed(2), ..Batched::of(Arc::new(prim)) }
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (x, u) = (&operands[0], &operands[1]);
        let dtype = x.dtype.storage();
        let mut extents = x.shape.to_vec();
        let mut loops: Vec<usize> = (0..x.rank()).collect();
        let (mut at, mut said) = (Vec::new(), Vec::new());
        for (j, &d) in self.dims.iter().enumerate().filter(|(_, d)| x.shape[**d] != u.shape[**d]) {
            loops[d] = extents.len();
            extents.push(u.shape[d]);
            let most = (x.shape[d] - u.shape[d]) as i64;
            said.push(2 + j);
            let by = 1 + said.len();
            at.push(Bound { index: d, by, most, beyond: Beyond::Clip, window: Some(loops[d]) });
        }
        let put = read(1, dtype, &extents, loops);
        if at.is_empty() && self.combine.is_none() {
            return view(&results[0], put.parts, Scalar::zero(dtype));
        }
        let mut reads = vec![read(0, dtype, &extents, 0..x.rank()), put];
        reads.extend(numbers(operands, said, &extents, &self.lead));
        let body = Body::Put { at, combine: self.combine };
        vec![Sentence { rank: x.rank(), extents, dtype, reads, body }]
    }
}
