//! Shapes: broadcast_in_dim, reshape, transpose, squeeze, expand_dims, rev.

use super::build::cotangent_type;
use super::moves::Move;
use super::view::{check_dims, list, part, plain_view, print_out, shape_fault, view};
use crate::diagnostic::{Fault, Result};
use crate::mesh::Axes;
use crate::program::sentence::{Affine, Body, Part, Read, Sentence, Source, Span};
use crate::program::{At, Builder, Dim, Factors, Join, Rank, Value};
use crate::program::{Batch, behind, inserted};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// Dimension i of the operand becomes dimension `broadcast_dimensions[i]` of the result; the others are new.
#[derive(Clone, Debug, PartialEq)]
pub struct BroadcastInDim {
    /// The result's shape.
    pub shape: Shape,
    /// Where each dimension of the operand goes; a dimension of size 1 is repeated.
    pub broadcast_dimensions: Vec<usize>,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

/// The same elements in the same linear order, with other sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Reshape {
    /// The result's shape.
    pub new_sizes: Shape,
    /// The sharding asked for.
    pub out: Option<Spec>,
}

/// Dimension i of the result is dimension `permutation[i]` of the operand.
#[derive(Clone, Debug, PartialEq)]
pub struct Transpose {
    /// Which dimension of the operand each dimension of the result is.
    pub permutation: Vec<usize>,
}

/// Drops dimensions of size 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Squeeze {
    /// Which ones.
    pub dimensions: Vec<usize>,
}

/// New dimensions of size 1.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpandDims {
    /// Where they stand in the result.
    pub dimensions: Vec<usize>,
}

/// Dimensions from the last position to the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Rev {
    /// Which ones.
    pub dimensions: Vec<usize>,
}

impl Move for BroadcastInDim {
    const NAME: &'static str = "broadcast_in_dim";
    const RANK: Rank = Rank::Broadcast;
    fn text(&self) -> String {
        let dims = list(&self.broadcast_dimensions);
        format!("shape={}, dims={dims}{}", self.shape, print_out(self.out))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        if self.broadcast_dimensions.len() != x.rank() {
            return Err(shape_fault(format!(
                "broadcast_dimensions has {} entries, but the operand has {} dimensions",
                self.broadcast_dimensions.len(),
                x.rank()
            ))
            .help("give one entry for each dimension of the operand"));
        }
        check_dims("broadcast dimension", &self.broadcast_dimensions, self.shape.rank())?;
        for (d, (&to, &n)) in self.broadcast_dimensions.iter().zip(&*x.shape).enumerate() {
            if n != 1 && n != self.shape[to] {
                let message = format!(
                    "dimension {d} has size {n}, which does not broadcast to size {}",
                    self.shape[to]
                );
                return Err(shape_fault(message).help("only dimensions of size 1 are repeated").dim(0, d));
            }
        }
        Ok(self.shape.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let mut f = Factors::default();
        let loops: Vec<_> = self.shape.iter().map(|n| f.add(*n)).collect();
        let dims = self.broadcast_dimensions.iter().zip(&*x.shape).map(|(&to, &n)| {
            let stretched = n == 1 && self.shape[to] != 1;
            Dim::at(loops[to], if stretched { At::Stretched } else { At::Same })
        });
        f.operands = vec![dims.collect()];
        f.results = vec![loops.iter().map(|l| Dim::same(*l)).collect()];
        f
    }
    fn asked(&self) -> Option<Spec> {
        self.out
    }
    fn back(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        // new dimensions and repeated ones are summed; what is left stands in the order of the result
        let kept: Vec<usize> = (0..x.rank())
            .filter(|&d| x.shape[d] != 1 || self.shape[self.broadcast_dimensions[d]] == 1)
            .collect();
        let stays = |to: usize| kept.iter().any(|&d| self.broadcast_dimensions[d] == to);
        let summed: Vec<usize> = (0..self.shape.rank()).filter(|&to| !stays(to)).collect();
        let mut order: Vec<usize> = kept.clone();
        order.sort_by_key(|&d| self.broadcast_dimensions[d]);
        let want = cotangent_type(x).spec;
        let mut y = ct.clone();
        if !summed.is_empty() {
            let entries = order.iter().map(|d| Axes::from(want.dim(*d))).collect();
            y = b.reduce_sum_as(&y, &summed, x.mesh.as_ref().map(|_| want.with_dims(entries)))?;
        }
        let permutation: Vec<usize> =
            kept.iter().map(|d| order.iter().position(|o| o == d).unwrap_or_default()).collect();
        y = b.transpose(&y, &permutation)?;
        let new: Vec<usize> = (0..x.rank()).filter(|d| !kept.contains(d)).collect();
        b.expand_dims(&y, &new)
    }
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let sizes = &x.shape;
        let span = self.shape.iter().map(|n| Span::all(*n)).collect();
        let map = self
            .broadcast_dimensions
            .iter()
            .zip(&**sizes)
            .map(|(&to, &n)| if n == 1 { Affine::constant(0) } else { Affine::of(0, to, 1) });
        let map = map.collect();
        view(y, vec![part(0, span, map)], Scalar::zero(x.dtype.storage()))
    }
    fn for_examples(&self, batch: &Batch<'_>) -> Self {
        let dims = inserted(&behind(&self.broadcast_dimensions), 0, 0);
        let (shape, out) = (batch.examples.shape(&self.shape), batch.out(self.out, 0));
        BroadcastInDim { shape, broadcast_dimensions: dims, out }
    }
}

impl Reshape {
    /// Whether it only adds or drops dimensions of size 1: which loop each dimension of the operand is.
    fn as_view(&self, from: &[usize]) -> Option<Vec<Option<usize>>> {
        let big = |s: &[usize]| s.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
        if big(from) != big(&self.new_sizes) {
            return None;
        }
        let mut to = self.new_sizes.iter().enumerate().filter(|(_, n)| **n != 1).map(|(d, _)| d);
        Some(from.iter().map(|n| if *n == 1 { None } else { to.next() }).collect())
    }
    /// Whether at most one run of dimensions is split or merged, not both (dimensions of size 1 left out).
    fn is_simple(from: &[usize], to: &[usize]) -> bool {
        let sums = |s: &[usize]| -> Vec<usize> {
            let mut product = 1;
            s.iter().filter(|n| **n != 1).map(|n| (product *= n, product).1).collect()
        };
        let (a, b) = (sums(from), sums(to));
        let (mut i, mut j, mut groups, mut pure) = (0, 0, 0, true);
        while i < a.len() && j < b.len() {
            let (i0, j0) = (i, j);
            (i, j) = (i + 1, j + 1);
            while i <= a.len() && j <= b.len() && a[i - 1] != b[j - 1] {
                if a[i - 1] < b[j - 1] { i += 1 } else { j += 1 }
            }
            if (i - i0, j - j0) != (1, 1) {
                groups += 1;
                pure &= i - i0 == 1 || j - j0 == 1;
            }
        }
        groups <= 1 && pure
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The loops of a reshape: both shapes are walked from the left, and where their products meet the common divisor of what is left
/// is one loop of both. What only one side has is a loop of its own; on the operand's side it is needed whole.
fn reshape_factors(from: &[usize], to: &[usize]) -> Factors {
    let mut f = Factors::default();
    let mut dims: [Vec<Vec<usize>>; 2] = [vec![Vec::new(); from.len()], vec![Vec::new(); to.len()]];
    if !from.contains(&0) {
        let mut rest = [from.to_vec(), to.to_vec()];
        let (mut at, mut done) = ([0, 0], [1usize, 1usize]);
        loop {
            for side in 0..2 {
                while rest[side].get(at[side]) == Some(&1) {
                    at[side] += 1;
                }
            }
            if at[0] == from.len() || at[1] == to.len() {
                break;
            }
            let left = [rest[0][at[0]], rest[1][at[1]]];
            let common = if done[0] == done[1] { gcd(left[0], left[1]) } else { 1 };
            if common > 1 {
                let l = f.add(common);
                for side in 0..2 {
                    dims[side][at[side]].push(l);
                    done[side] *= common;
                    rest[side][at[side]] /= common;
                }
                continue;
            }
            let sides: &[usize] = match done[0].cmp(&done[1]) {
                std::cmp::Ordering::Equal => &[0, 1],
                std::cmp::Ordering::Less => &[0],
                std::cmp::Ordering::Greater => &[1],
            };
            for &side in sides {
                let (mine, other) = (done[side], done[1 - side]);
                let ratio = if sides.len() == 1 && other.is_multiple_of(mine) { other / mine } else { 1 };
                let size = if ratio > 1 && left[side].is_multiple_of(ratio) { ratio } else { left[side] };
                let l = f.add(size);
                f.loops[l].whole = side == 0;
                dims[side][at[side]].push(l);
                rest[side][at[side]] /= size;
            }
            for &side in sides {
                let l = dims[side][at[side]].last().map_or(1, |l| f.loops[*l].size);
                done[side] *= l;
            }
        }
    }
    // dimensions of size 1 (and all where there are no elements) share nothing; nor do those behind the other side's end
    let empty = from.contains(&0);
    for (side, shape) in [from, to].into_iter().enumerate() {
        for (d, n) in dims[side].iter_mut().zip(shape).filter(|(d, _)| d.is_empty()) {
            let l = f.add(*n);
            f.loops[l].whole = side == 0 && *n != 1 && !empty;
            d.push(l);
        }
    }
    let [a, b] = dims;
    f.operands = vec![a.into_iter().map(Dim::several).collect()];
    f.results = vec![b.into_iter().map(Dim::several).collect()];
    if !Reshape::is_simple(from, to) {
        // one that cuts and joins in several places is sharded only so that nothing moves
        for l in f.operands[0].iter().flat_map(|d| &d.loops) {
            let shared = f.results[0].iter().any(|d| d.loops.contains(l));
            f.loops[*l].join = shared.then_some(Join::Still);
        }
    }
    f
}

impl Move for Reshape {
    const NAME: &'static str = "reshape";
    const RANK: Rank = Rank::Alias;
    fn text(&self) -> String {
        format!("shape={}{}", self.new_sizes, print_out(self.out))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        if x.shape.elements() != self.new_sizes.elements() {
            let (n, m) = (x.shape.elements(), self.new_sizes.elements());
            return Err(shape_fault(format!("{} has {n} elements, but {} has {m}", x.shape, self.new_sizes))
                .help("a reshape keeps the number of elements"));
        }
        Ok(self.new_sizes.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        reshape_factors(&x.shape, &self.new_sizes)
    }
    fn asked(&self) -> Option<Spec> {
        self.out
    }
    fn back(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        let new_sizes = x.shape.clone();
        let make = |out| Arc::new(Reshape { new_sizes: new_sizes.clone(), out }) as _;
        b.emit_as(make, std::slice::from_ref(ct), cotangent_type(x).spec)
    }
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        if let Some(loops) = self.as_view(&x.shape) {
            return plain_view(y, &loops);
        }
        let dtype = y.dtype.storage();
        let whole = Part {
            from: Source::Value(0),
            span: self.new_sizes.iter().map(|n| Span::all(*n)).collect(),
            map: vec![Affine::constant(0); x.rank()],
        };
        vec![Sentence {
            extents: self.new_sizes.to_vec(),
            rank: self.new_sizes.rank(),
            dtype,
            reads: vec![Read { dtype, parts: vec![whole], fill: Scalar::zero(dtype) }],
            body: Body::Reshape,
        }]
    }
    fn for_examples(&self, batch: &Batch<'_>) -> Self {
        let new_sizes = batch.examples.shape(&self.new_sizes);
        Reshape { new_sizes, out: batch.out(self.out, 0) }
    }
}

impl Move for Transpose {
    const NAME: &'static str = "transpose";
    const RANK: Rank = Rank::Alias;
    fn text(&self) -> String {
        format!("permutation={}", list(&self.permutation))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        if self.permutation.len() != x.rank() {
            return Err(shape_fault(format!(
                "the permutation {} has {} entries, but the operand has {} dimensions",
                list(&self.permutation),
                self.permutation.len(),
                x.rank()
            )));
        }
        check_dims("dimension", &self.permutation, x.rank())?;
        Ok(self.permutation.iter().map(|d| x.shape[*d]).collect())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let mut f = Factors::default();
        let loops: Vec<_> = x.shape.iter().map(|n| f.add(*n)).collect();
        f.results = vec![self.permutation.iter().map(|d| Dim::same(loops[*d])).collect()];
        f.operands = vec![loops.into_iter().map(Dim::same).collect()];
        f
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        let mut inverse = vec![0; self.permutation.len()];
        for (i, d) in self.permutation.iter().enumerate() {
            inverse[*d] = i;
        }
        b.transpose(ct, &inverse)
    }
    fn reads(&self, _x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let mut loops = vec![None; self.permutation.len()];
        for (i, d) in self.permutation.iter().enumerate() {
            loops[*d] = Some(i);
        }
        plain_view(y, &loops)
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        Transpose { permutation: inserted(&behind(&self.permutation), 0, 0) }
    }
}

impl Move for Squeeze {
    const NAME: &'static str = "squeeze";
    const RANK: Rank = Rank::Alias;
    fn text(&self) -> String {
        format!("dims={}", list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        check_dims("dimension", &self.dimensions, x.rank())?;
        if let Some(&d) = self.dimensions.iter().find(|d| x.shape[**d] != 1) {
            return Err(shape_fault(format!("dimension {d} has size {}, not 1", x.shape[d]))
                .help("only dimensions of size 1 can be dropped")
                .dim(0, d));
        }
        let kept = (0..x.rank()).filter(|d| !self.dimensions.contains(d));
        Ok(kept.map(|d| x.shape[d]).collect())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let mut f = Factors::default();
        let loops: Vec<_> = x.shape.iter().map(|n| f.add(*n)).collect();
        let kept = loops.iter().enumerate().filter(|(d, _)| !self.dimensions.contains(d));
        f.results = vec![kept.map(|(_, l)| Dim::same(*l)).collect()];
        f.operands = vec![loops.into_iter().map(Dim::same).collect()];
        f
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.expand_dims(ct, &self.dimensions)
    }
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let mut next = 0..;
        let loops: Vec<_> =
            (0..x.rank()).map(|d| if self.dimensions.contains(&d) { None } else { next.next() }).collect();
        plain_view(y, &loops)
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        Squeeze { dimensions: behind(&self.dimensions) }
    }
}

impl Move for ExpandDims {
    const NAME: &'static str = "expand_dims";
    const RANK: Rank = Rank::Alias;
    fn text(&self) -> String {
        format!("dims={}", list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        let rank = x.rank() + self.dimensions.len();
        check_dims("dimension", &self.dimensions, rank)?;
        let mut old = x.shape.iter().copied();
        let new = (0..rank).map(|d| if self.dimensions.contains(&d) { 1 } else { old.next().unwrap_or(1) });
        Ok(new.collect())
    }
    fn loops(&self, _x: &ArrayType, y: &Shape) -> Factors {
        let mut f = Factors::default();
        let loops: Vec<_> = y.iter().map(|n| f.add(*n)).collect();
        let old = loops.iter().enumerate().filter(|(d, _)| !self.dimensions.contains(d));
        f.operands = vec![old.map(|(_, l)| Dim::same(*l)).collect()];
        f.results = vec![loops.into_iter().map(Dim::same).collect()];
        f
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.squeeze(ct, &self.dimensions)
    }
    fn reads(&self, _x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let loops: Vec<_> = (0..y.rank()).filter(|d| !self.dimensions.contains(d)).map(Some).collect();
        plain_view(y, &loops)
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        ExpandDims { dimensions: behind(&self.dimensions) }
    }
}

impl Move for Rev {
    const NAME: &'static str = "rev";
    const RANK: Rank = Rank::Plain;
    fn text(&self) -> String {
        format!("dims={}", list(&self.dimensions))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        check_dims("dimension", &self.dimensions, x.rank())?;
        Ok(x.shape.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        let mut f = Factors::default();
        let (mut of, mut to) = (Vec::new(), Vec::new());
        for (d, &n) in x.shape.iter().enumerate() {
            let l = f.add(n);
            let turned = At::Affine { scale: -1, offset: n as i64 - 1, wrap: false };
            of.push(Dim::at(l, if self.dimensions.contains(&d) { turned } else { At::Same }));
            to.push(Dim::same(l));
        }
        f.operands = vec![of];
        f.results = vec![to];
        f
    }
    fn back(&self, b: &mut Builder, ct: &Value, _x: &ArrayType) -> Result<Value> {
        b.rev(ct, &self.dimensions)
    }
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence> {
        let shape = &x.shape;
        let span = shape.iter().map(|n| Span::all(*n)).collect();
        let map = shape.iter().enumerate().map(|(d, &n)| {
            if self.dimensions.contains(&d) { Affine::of(n as i64 - 1, d, -1) } else { Affine::of(0, d, 1) }
        });
        let map = map.collect();
        view(y, vec![part(0, span, map)], Scalar::zero(y.dtype.storage()))
    }
    fn for_examples(&self, _: &Batch<'_>) -> Self {
        Rev { dimensions: behind(&self.dimensions) }
    }
}

impl Builder {
    /// `x` broadcast to `shape`: dimension i becomes dimension `dims[i]`.
    pub fn broadcast_in_dim(
        &mut self,
        x: &Value,
        shape: impl Into<Shape>,
        dims: &[usize],
        out: Option<Spec>,
    ) -> Result<Value> {
        let shape = shape.into();
        if out.is_none() && x.ty.shape == shape && dims.iter().copied().eq(0..shape.rank()) {
            return Ok(x.clone());
        }
        let prim = BroadcastInDim { shape, broadcast_dimensions: dims.to_vec(), out };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
    /// `x` with other sizes.
    pub fn reshape(&mut self, x: &Value, sizes: impl Into<Shape>, out: Option<Spec>) -> Result<Value> {
        let new_sizes = sizes.into();
        if out.is_none_or(|s| s == x.ty.spec) && x.ty.shape == new_sizes {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Reshape { new_sizes, out }), std::slice::from_ref(x))
    }
    /// `x` with its dimensions in another order; itself where they stay.
    pub fn transpose(&mut self, x: &Value, permutation: &[usize]) -> Result<Value> {
        if permutation.len() == x.ty.rank() && permutation.iter().copied().eq(0..x.ty.rank()) {
            return Ok(x.clone());
        }
        let prim = Transpose { permutation: permutation.to_vec() };
        self.emit1(Arc::new(prim), std::slice::from_ref(x))
    }
    /// `x` without these dimensions of size 1.
    pub fn squeeze(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        if dims.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Squeeze { dimensions: dims.to_vec() }), std::slice::from_ref(x))
    }
    /// `x` with new dimensions of size 1, at these places of the result.
    pub fn expand_dims(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        if dims.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(ExpandDims { dimensions: dims.to_vec() }), std::slice::from_ref(x))
    }
    /// `x` with these dimensions from the last position to the first.
    pub fn rev(&mut self, x: &Value, dims: &[usize]) -> Result<Value> {
        if dims.is_empty() {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Rev { dimensions: dims.to_vec() }), std::slice::from_ref(x))
    }
}

/// An instance of each, with types of operands that it takes.
pub(super) mod examples {
    use super::*;
    use crate::program::{Prim, Primitive};

    type Example = (Prim, Vec<ArrayType>);
    fn of(prim: impl Primitive, operands: impl IntoIterator<Item = ArrayType>) -> Example {
        (Arc::new(prim), operands.into_iter().collect())
    }

    pub(in crate::ops) fn broadcast_in_dim() -> Example {
        let (shape, broadcast_dimensions) = ([3, 2, 4].into(), vec![2, 0]);
        let prim = BroadcastInDim { shape, broadcast_dimensions, out: None };
        of(prim, [DType::F32.of([4, 1])])
    }
    pub(in crate::ops) fn reshape() -> Example {
        of(Reshape { new_sizes: [4, 6].into(), out: None }, [DType::F32.of([2, 3, 4])])
    }
    pub(in crate::ops) fn transpose() -> Example {
        of(Transpose { permutation: vec![2, 0, 1] }, [DType::F32.of([2, 3, 4])])
    }
    pub(in crate::ops) fn squeeze() -> Example {
        of(Squeeze { dimensions: vec![1] }, [DType::F32.of([2, 1, 3])])
    }
    pub(in crate::ops) fn expand_dims() -> Example {
        of(ExpandDims { dimensions: vec![0, 2] }, [DType::F32.of([3, 2])])
    }
    pub(in crate::ops) fn rev() -> Example {
        of(Rev { dimensions: vec![1] }, [DType::F32.of([2, 3])])
    }
}
