//! Other sizes of the same elements: reshape, with the loops that both shapes have.

use crate::diagnostic::{Fault, Result};
use crate::ops::build::cotangent_type;
use crate::ops::moves::Move;
use crate::ops::view::{plain_view, print_out, shape_fault};
use crate::program::sentence::{Affine, Body, Part, Read, Sentence, Source, Span};
use crate::program::{Batch, Builder, Dim, Factors, Join, Priority, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, Scalar, Shape, gcd};
use std::sync::Arc;

/// The same elements in the same linear order, with other sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The result's shape.
    pub new_sizes: Shape,
    /// The sharding asked for.
    pub out: Option<Spec>,
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
    /// Whether it merges one run of dimensions and leaves the others: then the run's entries are strung together, though elements may move.
    /// A run ends with the 1s behind it that the result has not, and has none before its end.
    fn merges_one_run(from: &[usize], to: &[usize]) -> bool {
        let ends = from.iter().rev().zip(to.iter().rev()).take_while(|(n, m)| (**n, **m) == (1, 1)).count();
        let (from, to) = (&from[..from.len() - ends], &to[..to.len() - ends]);
        let (mut at, mut runs) = (0, 0);
        for (d, &n) in to.iter().enumerate() {
            if from.get(at) == Some(&n) {
                at += 1;
                continue;
            }
            runs += 1;
            let (start, mut product) = (at, 1usize);
            while product != n && from.get(at).is_some_and(|m| *m != 1) {
                product = product.saturating_mul(from[at]);
                at += 1;
            }
            if at == start || product != n {
                return false;
            }
            while from.get(at) == Some(&1) && to.get(d + 1) != Some(&1) {
                at += 1;
            }
        }
        at == from.len() && runs == 1 && to.len() < from.len()
    }
}

/// The loops of a reshape: both shapes are walked from the left, and where their products meet the common divisor of what is left
/// is one loop of both. What only one side has is a loop of its own; on the operand's side it is needed unsharded.
fn reshape_factors(from: &[usize], to: &[usize]) -> Factors {
    let mut f = Factors::default();
    let mut dims: [Vec<Vec<usize>>; 2] = [vec![Vec::new(); from.len()], vec![Vec::new(); to.len()]];
    let empty = from.contains(&0);
    if empty {
        // without elements, dimensions go on that are the same up to where the shapes first differ, from either end
        let big = |s: &[usize]| (0..s.len()).filter(|d| s[*d] != 1).collect::<Vec<usize>>();
        let (a, b) = (big(from), big(to));
        let same = |(i, j): &(&usize, &usize)| from[**i] == to[**j];
        let first = a.iter().zip(&b).take_while(same).count();
        let last = a[first..].iter().rev().zip(b[first..].iter().rev()).take_while(same).count();
        let (ends, others) = (a[a.len() - last..].iter(), b[b.len() - last..].iter());
        for (&i, &j) in a[..first].iter().chain(ends).zip(b[..first].iter().chain(others)) {
            let l = f.add(from[i]);
            dims[0][i].push(l);
            dims[1][j].push(l);
        }
    } else {
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
    // dimensions of size 1 (and others where there are no elements) share nothing; nor do those behind the other side's end
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
    if !Reshape::merges_one_run(from, to) {
        // any other is sharded only so that nothing moves
        for l in f.operands[0].iter().flat_map(|d| &d.loops) {
            let shared = f.results[0].iter().any(|d| d.loops.contains(l));
            f.loops[*l].join = shared.then_some(Join::Still);
        }
    }
    f
}

impl Move for Reshape {
    const NAME: &'static str = "reshape";
    const PRIORITY: Priority = Priority::Alias;
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
    fn asking(&self, out: Spec) -> Option<Self> {
        Some(Self { out: Some(out), ..self.clone() })
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
            span: Span::whole(&self.new_sizes),
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

impl Builder {
    /// `x` with other sizes.
    pub fn reshape(&mut self, x: &Value, sizes: impl Into<Shape>, out: Option<Spec>) -> Result<Value> {
        let new_sizes = sizes.into();
        if out.is_none_or(|s| s == x.ty.spec) && x.ty.shape == new_sizes {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Reshape { new_sizes, out }), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        merged_the_major_axis_stays: Reshape { new_sizes: [8].into(), out: None }, ["float32[4@X,2]"] => "
            (a: float32[4@X,2]) {
              b: float32[8@X] = reshape[shape=[8]] a
              return b
            }
            tangents: (a: float32[4@X,2], b: float32[4@X,2]) {
              c: float32[8@X] = reshape[shape=[8]] a
              d: float32[8@X] = reshape[shape=[8]] b
              return c, d
            }
            cotangents: (a: float32[8@X]) {
              b: float32[4@X,2] = reshape[shape=[4,2]] a
              return b
            }
        ";
        merged_the_minor_axis_is_refused: Reshape { new_sizes: [8].into(), out: None }, ["float32[2,4@X]"] => r#"
            refused: dimension 1 of the operand, 4@X, becomes the minor part of dimension 0 of the result, whose major part is unsharded: its elements would move between devices
            say the result's sharding: p!["X"]
            reshard it first: `.reshard(p![_, _])`
        "#;
    }
}
