//! Pieces of arrays at places known beforehand: slice, pad, concatenate, update_slice.
//!
//! All are views: their sentences read, and compute nothing. The transposes are each other.

use super::build::cotangent_type;
use super::elementwise::one_dtype;
use super::moves::Move;
use super::view::{arity, list, part, print_out, shape_fault, view};
use crate::diagnostic::{ErrorKind, Fault, Result, Spot};
use crate::program::sentence::{Affine, Part, Sentence, Span};
use crate::program::{At, Builder, Dim, Factors, Join, Linearity, Operand, Primitive, Rank, Tangents, Value};
use crate::program::{Batch, Batched, inserted};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// Every `strides`-th position from `start` to below `limit`.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// First position in each dimension.
    pub start: Vec<usize>,
    /// End in each dimension (not included).
    pub limit: Vec<usize>,
    /// Steps in each dimension.
    pub strides: Vec<usize>,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

/// The operand with a number around and between its elements. Negative `low` and `high` cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Pad {
    /// How many before, in each dimension.
    pub low: Vec<i64>,
    /// How many after.
    pub high: Vec<i64>,
    /// How many between neighbours.
    pub interior: Vec<usize>,
    /// The number.
    pub value: Scalar,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

/// The operands one after another along a dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Concatenate {
    /// Along which.
    pub dimension: usize,
}

/// The first operand with the second one in its place from `start` on.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateSlice {
    /// Where the second operand begins, in each dimension.
    pub start: Vec<usize>,
}

/// The factors of an operation that maps each dimension of its operand to the same of its result: `at(d)` is where step i of the
/// dimension's loop lies in the operand and in the result.
fn moved(
    from: &[usize],
    to: &[usize],
    join: Option<Join>,
    at: impl Fn(usize) -> (At, At),
) -> (Factors, Vec<usize>) {
    let mut f = Factors::default();
    let (mut of, mut results, mut loops) = (Vec::new(), Vec::new(), Vec::new());
    for (d, (&n, &m)) in from.iter().zip(to).enumerate() {
        let l = f.add(n.max(m));
        f.loops[l].join = join;
        let (a, b) = at(d);
        of.push(Dim::at(l, a));
        results.push(Dim::at(l, b));
        loops.push(l);
    }
    f.operands = vec![of];
    f.results = vec![results];
    (f, loops)
}

fn same_length(what: &str, got: usize, rank: usize) -> Result<(), Fault> {
    if got != rank {
        return Err(shape_fault(format!("{what} has {got} entries, but the operand has {rank} dimensions")));
    }
    Ok(())
}

impl Slice {
    fn size(&self, d: usize) -> usize {
        self.limit[d].saturating_sub(self.start[d]).div_ceil(self.strides[d])
    }
}

impl Move for Slice {
    const NAME: &'static str = "slice";
    const RANK: Rank = Rank::Plain;
    fn text(&self) -> String {
        let strides = if self.strides.iter().all(|s| *s == 1) {
            String::new()
        } else {
            format!(", strides={}", list(&self.strides))
        };
        format!("start={}, limit={}{strides}{}", list(&self.start), list(&self.limit), print_out(self.out))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        for (what, n) in
            [("start", self.start.len()), ("limit", self.limit.len()), ("strides", self.strides.len())]
        {
            same_length(what, n, x.rank())?;
        }
        for (d, &n) in x.shape.iter().enumerate() {
            let (start, limit) = (self.start[d], self.limit[d]);
            if limit > n || start > limit {
                return Err(shape_fault(format!(
                    "the slice {start}..{limit} does not lie in dimension {d} of size {n}"
                ))
                .help("give 0 <= start <= limit <= size")
                .dim(0, d));
            }
            if self.strides[d] == 0 {
                return Err(
                    shape_fault(format!("the stride of dimension {d} is 0")).help("strides are at least 1")
                );
            }
        }
        Ok((0..x.rank()).map(|d| self.size(d)).collect())
    }
    fn loops(&self, x: &ArrayType, y: &Shape) -> Factors {
        let from = &x.shape;
        moved(from, y, None, |d| {
            let all = self.size(d) == from[d];
            let (scale, offset) = (self.strides[d] as i64, self.start[d] as i64);
            (if all { At::Same } else { At::Affine { scale, offset, wrap: false } }, At::Same)
        })
        .0
    }
    fn asked(&self) -> Option<Spec> {
        self.out
    }
    fn back(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        let (mut high, mut interior) = (Vec::new(), Vec::new());
        for (d, &n) in x.shape.iter().enumerate() {
            // an empty slice leaves the whole dimension to what stands behind it
            let covered = (self.size(d).max(1) - 1) * self.strides[d] + usize::from(self.size(d) > 0);
            high.push((n - covered) as i64 - self.start[d] as i64);
            interior.push(self.strides[d] - 1);
        }
        let low = self.start.iter().map(|s| *s as i64).collect();
        let pad = Pad { low, high, interior, value: Scalar::zero(x.dtype), out: None };
        let make = |out| Arc::new(Pad { out, ..pad.clone() }) as _;
        b.emit_as(make, std::slice::from_ref(ct), cotangent_type(x).spec)
    }
    fn reads(&self, _x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let span = y.shape.iter().map(|n| Span::all(*n)).collect();
        let map = (0..self.start.len())
            .map(|d| Affine::of(self.start[d] as i64, d, self.strides[d] as i64))
            .collect();
        view(y, vec![part(0, span, map)], Scalar::zero(y.dtype.storage()))
    }
    fn for_examples(&self, batch: &Batch<'_>) -> Self {
        Slice {
            start: inserted(&self.start, 0, 0),
            limit: inserted(&self.limit, 0, batch.examples.size),
            strides: inserted(&self.strides, 0, 1),
            out: batch.out(self.out, 0),
        }
    }
}

impl Pad {
    /// The size of a dimension of `n` elements; negative where more is cut than there is.
    fn size(&self, d: usize, n: usize) -> i64 {
        let n = n as i128;
        let size = i128::from(self.low[d])
            + n
            + (n - 1).max(0) * self.interior[d] as i128
            + i128::from(self.high[d]);
        size.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
    /// Which elements of a dimension of `n` stay: `first..end`.
    fn kept(&self, d: usize, n: usize) -> (i64, i64) {
        let (step, size) = (self.interior[d] as i64 + 1, self.size(d, n));
        // element k stands at low + k·step, which must lie in 0..size
        let first = ceil((-self.low[d]).max(0), step);
        let end = ceil((size - self.low[d]).max(0), step).min(n as i64);
        (first.min(end), end)
    }
}

/// `n / d`, rounded up; both are not negative.
fn ceil(n: i64, d: i64) -> i64 {
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
            format!(", interior={}", list(&self.interior))
        };
        let (low, high) = (list(&self.low), list(&self.high));
        format!("low={low}, high={high}{interior}, value={}{}", self.value, print_out(self.out))
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        for (what, n) in
            [("low", self.low.len()), ("high", self.high.len()), ("interior", self.interior.len())]
        {
            same_length(what, n, x.rank())?;
        }
        let mut shape = Vec::with_capacity(x.rank());
        for (d, &n) in x.shape.iter().enumerate() {
            let most = 1u64 << 62;
            if self.low[d].unsigned_abs().max(self.high[d].unsigned_abs()).max(self.interior[d] as u64) > most
            {
                return Err(
                    shape_fault(format!("dimension {d} is padded by more than can be counted")).dim(0, d)
                );
            }
            let size = self.size(d, n);
            let Ok(size) = usize::try_from(size) else {
                return Err(shape_fault(format!(
                    "low {} and high {} cut more than dimension {d} of size {n} has",
                    self.low[d], self.high[d]
                ))
                .help(format!("cut {n} elements at most"))
                .dim(0, d));
            };
            shape.push(size);
        }
        Ok(vec![(x.dtype, shape.into())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let from = &operands[0].shape;
        moved(from, &results[0].1, None, |d| {
            let still = self.low[d] == 0 && self.high[d] == 0 && self.interior[d] == 0;
            let (scale, offset) = (self.interior[d] as i64 + 1, self.low[d]);
            (At::Same, if still { At::Same } else { At::Affine { scale, offset, wrap: false } })
        })
        .0
    }
    fn linearity(&self) -> Linearity {
        if self.value.to_f64() == 0.0 { Linearity::Joint } else { Linearity::None }
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
        _outputs: &[Value],
    ) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let zero = Pad { value: Scalar::zero(operands[0].ty.dtype), ..self.clone() };
        Ok(vec![Some(b.emit1(Arc::new(zero), std::slice::from_ref(t))?)])
    }
    fn transpose(
        &self,
        b: &mut Builder,
        _operands: &[Option<Value>],
        types: &[ArrayType],
        cotangents: &[Option<Value>],
    ) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        let x = &types[0];
        let mut slice = Slice { start: vec![], limit: vec![], strides: vec![], out: None };
        let mut back = Pad { low: vec![], high: vec![], interior: vec![0; x.rank()], ..self.clone() };
        let mut cut = false;
        for (d, &n) in x.shape.iter().enumerate() {
            let (step, (first, end)) = (self.interior[d] as i64 + 1, self.kept(d, n));
            let start = if end > first { self.low[d] + first * step } else { 0 };
            slice.start.push(start as usize);
            slice.limit.push(if end > first { (start + (end - first - 1) * step + 1) as usize } else { 0 });
            slice.strides.push(step as usize);
            back.low.push(first);
            back.high.push(n as i64 - end);
            cut |= end - first != n as i64;
        }
        let want = cotangent_type(x);
        if !cut {
            let make = |out| Arc::new(Slice { out, ..slice.clone() }) as _;
            return Ok(vec![Some(b.emit_as(make, std::slice::from_ref(ct), want.spec)?)]);
        }
        // what the pad cut away has no cotangent
        let whole =
            Spec::whole(x.rank()).unreduced(want.spec.unreduced_axes()).reduced(want.spec.reduced_axes());
        let make = |out: Option<Spec>| Arc::new(Slice { out: out.map(|_| whole), ..slice.clone() }) as _;
        let kept = b.emit_as(make, std::slice::from_ref(ct), want.spec)?;
        let make = |out| Arc::new(Pad { out, value: Scalar::zero(x.dtype), ..back.clone() }) as _;
        Ok(vec![Some(b.emit_as(make, &[kept], want.spec)?)])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (mut span, mut map) = (Vec::new(), Vec::new());
        for (d, &n) in operands[0].shape.iter().enumerate() {
            let (step, (first, end)) = (self.interior[d] as i64 + 1, self.kept(d, n));
            let lo = self.low[d] + first * step;
            let hi = if end > first { self.low[d] + (end - 1) * step + 1 } else { lo };
            span.push(Span { lo, hi, step });
            map.push(Affine::of(first, d, 1));
        }
        let empty = span.iter().any(Span::is_empty);
        let parts = if empty { Vec::new() } else { vec![part(0, span, map)] };
        view(&results[0], parts, self.value)
    }
    fn cost(&self) -> f64 {
        0.0
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(Pad {
            low: inserted(&self.low, 0, 0),
            high: inserted(&self.high, 0, 0),
            interior: inserted(&self.interior, 0, 0),
            value: self.value,
            out: batch.out(self.out, 0),
        }))
    }
}

/// The tangent of an operation that joins its operands: itself of their tangents, with zeros for those that don't move.
fn joined_jvp(
    prim: &(impl Primitive + Clone),
    b: &mut Builder,
    operands: &[Value],
    tangents: &[Option<Value>],
) -> Result<Tangents> {
    let mut parts = Vec::with_capacity(operands.len());
    for (x, t) in operands.iter().zip(tangents) {
        parts.push(match t {
            Some(t) => t.clone(),
            None => b.zeros(&x.ty)?,
        });
    }
    Ok(vec![Some(b.emit1(Arc::new(prim.clone()), &parts)?)])
}

impl Concatenate {
    /// Where each operand begins.
    fn starts(&self, operands: &[ArrayType]) -> Vec<usize> {
        let sizes = operands.iter().map(|x| x.shape[self.dimension]);
        sizes.scan(0, |at, n| Some((*at, *at += n).0)).collect()
    }
}

impl Primitive for Concatenate {
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
        let mut f = Factors::default();
        let loops: Vec<_> = results[0].1.iter().map(|n| f.add_joined(*n, Join::Equal)).collect();
        for start in self.starts(operands) {
            let at = |d: usize| {
                let offset = -(start as i64);
                if d == self.dimension { At::Affine { scale: 1, offset, wrap: false } } else { At::Same }
            };
            f.operands.push(loops.iter().enumerate().map(|(d, l)| Dim::at(*l, at(d))).collect());
        }
        f.results = vec![loops.into_iter().map(Dim::same).collect()];
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::Joint
    }
    fn rank(&self) -> Rank {
        Rank::Plain
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(
        &self,
        b: &mut Builder,
        operands: &[Value],
        tangents: &[Option<Value>],
        _outputs: &[Value],
    ) -> Result<Tangents> {
        joined_jvp(self, b, operands, tangents)
    }
    fn transpose(
        &self,
        b: &mut Builder,
        operands: &[Option<Value>],
        types: &[ArrayType],
        cotangents: &[Option<Value>],
    ) -> Result<Tangents> {
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
            let mut span: Vec<Span> = x.shape.iter().map(|n| Span::all(*n)).collect();
            span[self.dimension].lo += start as i64;
            span[self.dimension].hi += start as i64;
            part(k, span, (0..x.rank()).map(|d| Affine::of(0, d, 1)).collect())
        });
        let parts = parts.filter(|p| !p.span.iter().any(Span::is_empty)).collect();
        view(&results[0], parts, Scalar::zero(results[0].dtype.storage()))
    }
    fn cost(&self) -> f64 {
        0.0
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
                    format!("the update's {at}..{} does not lie in dimension {d} of size {n}", at + m);
                return Err(shape_fault(message).dim(0, d).dim(1, d));
            }
        }
        Ok(vec![(x.dtype, x.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let (x, u) = (&operands[0].shape, &operands[1].shape);
        let (mut f, loops) = moved(x, &results[0].1, Some(Join::Equal), |_| (At::Same, At::Same));
        let mut dims = Vec::with_capacity(loops.len());
        for (d, l) in loops.into_iter().enumerate() {
            if u[d] == x[d] {
                dims.push(Dim::same(l));
            } else {
                dims.push(Dim::at(l, At::Affine { scale: 1, offset: -(self.start[d] as i64), wrap: false }));
            }
        }
        f.operands.push(dims);
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::Joint
    }
    fn rank(&self) -> Rank {
        Rank::DynamicSlice
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(
        &self,
        b: &mut Builder,
        operands: &[Value],
        tangents: &[Option<Value>],
        _outputs: &[Value],
    ) -> Result<Tangents> {
        joined_jvp(self, b, operands, tangents)
    }
    fn transpose(
        &self,
        b: &mut Builder,
        operands: &[Option<Value>],
        types: &[ArrayType],
        cotangents: &[Option<Value>],
    ) -> Result<Tangents> {
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
        let outer: Vec<Span> = operands[0].shape.iter().map(|n| Span::all(*n)).collect();
        let at = self.start.iter().zip(&*operands[1].shape);
        let inner: Vec<Span> =
            at.map(|(s, n)| Span { lo: *s as i64, hi: (*s + *n) as i64, step: 1 }).collect();
        let mut parts: Vec<Part> = Vec::new();
        if inner.iter().any(Span::is_empty) {
            parts.push(part(0, outer.clone(), (0..outer.len()).map(|d| Affine::of(0, d, 1)).collect()));
        } else {
            for span in around(&outer, &inner) {
                let map = span.iter().enumerate().map(|(d, s)| Affine::of(s.lo, d, 1)).collect();
                parts.push(part(0, span, map));
            }
            parts.push(part(1, inner.clone(), (0..inner.len()).map(|d| Affine::of(0, d, 1)).collect()));
        }
        view(&results[0], parts, Scalar::zero(results[0].dtype.storage()))
    }
    fn cost(&self) -> f64 {
        0.0
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::alike(Arc::new(UpdateSlice { start: inserted(&self.start, 0, 0) }), false)
    }
}

impl Builder {
    /// `x[start..limit]` in each dimension.
    pub fn slice(&mut self, x: &Value, start: &[usize], limit: &[usize]) -> Result<Value> {
        if start.iter().all(|s| *s == 0) && limit == &*x.ty.shape {
            return Ok(x.clone());
        }
        let strides = vec![1; start.len()];
        let prim = Slice { start: start.to_vec(), limit: limit.to_vec(), strides, out: None };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
    /// The box of a cotangent from `start` on that is the cotangent of a value of type `like`.
    fn box_of(&mut self, ct: &Value, start: &[usize], like: &ArrayType) -> Result<Value> {
        let limit: Vec<_> = start.iter().zip(&*like.shape).map(|(s, n)| s + n).collect();
        let make = |out| {
            let (start, strides) = (start.to_vec(), vec![1; start.len()]);
            Arc::new(Slice { start, limit: limit.clone(), strides, out }) as _
        };
        self.emit_as(make, std::slice::from_ref(ct), cotangent_type(like).spec)
    }
    /// `x` with zeros around it.
    pub fn pad(&mut self, x: &Value, low: &[i64], high: &[i64]) -> Result<Value> {
        if low.iter().chain(high).all(|n| *n == 0) {
            return Ok(x.clone());
        }
        let (low, high, interior) = (low.to_vec(), high.to_vec(), vec![0; x.ty.rank()]);
        let prim = Pad { low, high, interior, value: Scalar::zero(x.ty.dtype), out: None };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
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

/// An instance of each, with types of operands that it takes.
pub(super) mod examples {
    use super::*;
    use crate::program::Prim;

    type Example = (Prim, Vec<ArrayType>);
    fn of(prim: impl Primitive, operands: impl IntoIterator<Item = ArrayType>) -> Example {
        (Arc::new(prim), operands.into_iter().collect())
    }

    pub(in crate::ops) fn slice() -> Example {
        let (start, limit, strides) = (vec![1, 0], vec![7, 3], vec![2, 1]);
        of(Slice { start, limit, strides, out: None }, [DType::F32.of([9, 3])])
    }
    pub(in crate::ops) fn pad() -> Example {
        let (low, high, interior) = (vec![2, -1], vec![-1, 1], vec![1, 0]);
        of(Pad { low, high, interior, value: Scalar::Float(0.5), out: None }, [DType::F32.of([4, 3])])
    }
    pub(in crate::ops) fn concatenate() -> Example {
        of(Concatenate { dimension: 1 }, [2, 4, 2].map(|n| DType::F32.of([2, n])))
    }
    pub(in crate::ops) fn update_slice() -> Example {
        of(UpdateSlice { start: vec![2, 1] }, [[4, 6], [2, 4]].map(|s| DType::F32.of(s)))
    }
}
