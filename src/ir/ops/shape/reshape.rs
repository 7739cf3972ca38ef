//! The primitive `reshape`, and the factors that the shapes before and after it share.

use crate::core::{ArrayType, Fault, Result, Scalar, Shape, Spec, types::gcd};
use crate::ir::ops::dim_check::{format_out_sharding, plain_view};
use crate::ir::ops::structural::StructuralOp;
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Builder, Compute, Dim, ExplicitRule, Factors, LoopNest, Priority,
    Source, StridedRange, Value, VmapArgs, typing::cotangent_type,
};
use std::sync::Arc;

/// Gives an array a new shape, with its elements in the same row-major order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// The shape of the result.
    pub new_sizes: Shape,
    /// The requested sharding of the result.
    /// `None` if it is inferred.
    pub out_sharding: Option<Spec>,
}

impl Reshape {
    /// Returns each operand dimension's loop if the shapes differ only in dimensions of size 1.
    fn as_view(&self, from: &[usize]) -> Option<Vec<Option<usize>>> {
        let big = |s: &[usize]| s.iter().copied().filter(|n| *n != 1).collect::<Vec<_>>();
        if big(from) != big(&self.new_sizes) {
            return None;
        }
        let mut to = self.new_sizes.iter().enumerate().filter(|(_, n)| **n != 1).map(|(d, _)| d);
        Some(from.iter().map(|n| if *n == 1 { None } else { to.next() }).collect())
    }
    /// Returns true if the reshape merges one run of dimensions and keeps all others.
    ///
    /// The sharding of the merged dimension is then the concatenation of the run's entries, even if
    /// elements move between devices. A run includes the dimensions of size 1 after it that the
    /// result does not have, but no such dimensions before it.
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

/// Returns the pairs of dimensions of size 1 that are at the same place of both shapes.
///
/// The place of a dimension is the number of elements of the dimensions before it. Dimensions of
/// size 1 at one place are paired in order, if both shapes have the same number of them there.
fn paired_unit_dims(from: &[usize], to: &[usize]) -> Vec<(usize, usize)> {
    let units = |shape: &[usize]| {
        let mut place = 1usize;
        let mut list: Vec<(usize, usize)> = Vec::new();
        for (d, n) in shape.iter().enumerate().take_while(|(_, n)| **n != 0) {
            if *n == 1 {
                list.push((place, d));
            }
            place = place.saturating_mul(*n);
        }
        list
    };
    let (a, b) = (units(from), units(to));
    let at = |list: &[(usize, usize)], place: usize| {
        list.iter().filter(|u| u.0 == place).map(|u| u.1).collect::<Vec<usize>>()
    };
    let mut pairs = Vec::new();
    for group in a.chunk_by(|one, two| one.0 == two.0) {
        let there = at(&b, group[0].0);
        if there.len() == group.len() {
            pairs.extend(group.iter().map(|u| u.1).zip(there));
        }
    }
    pairs
}

/// Returns the factors of a reshape.
///
/// Both shapes are traversed from the left. Where the products of their sizes are equal, the
/// greatest common divisor of the remaining sizes becomes a loop of both. Other parts of dimensions
/// become loops of one shape only; those of the operand must be unsharded. Dimensions of size 1
/// share a loop if they are at the same place of both shapes, so that a dimension keeps the axes of
/// size 1 that shard it.
fn reshape_factors(from: &[usize], to: &[usize]) -> Factors {
    let mut f = Factors::default();
    let mut dims: SideLoops = [vec![Vec::new(); from.len()], vec![Vec::new(); to.len()]];
    let empty = from.contains(&0);
    match empty {
        true => add_empty_loops(&mut f, &mut dims, from, to),
        false => add_common_loops(&mut f, &mut dims, from, to),
    }
    for (i, j) in paired_unit_dims(from, to) {
        let l = f.add_loop(1);
        dims[0][i].push(l);
        dims[1][j].push(l);
    }
    // other dimensions of size 1, and dimensions after the end of the other shape, share no loop
    for (side, shape) in [from, to].into_iter().enumerate() {
        for (d, n) in dims[side].iter_mut().zip(shape).filter(|(d, _)| d.is_empty()) {
            let l = f.add_loop(*n);
            f.loops[l].need_replication = side == 0 && *n != 1 && !empty;
            d.push(l);
        }
    }
    let [a, b] = dims;
    f.operands = vec![a.into_iter().map(Dim::merged).collect()];
    f.results = vec![b.into_iter().map(Dim::merged).collect()];
    if !Reshape::merges_one_run(from, to) {
        // all other reshapes may be sharded only if no element moves between devices
        for l in f.operands[0].iter().flat_map(|d| &d.loops) {
            let shared = f.results[0].iter().any(|d| d.loops.contains(l));
            f.loops[*l].explicit_rule = shared.then_some(ExplicitRule::MustNotMove);
        }
    }
    f
}

/// The loops of each dimension of the operand and of the result.
type SideLoops = [Vec<Vec<usize>>; 2];

/// Adds the loops of a reshape of an array without elements.
///
/// Dimensions that are equal share loops, from either end up to the first difference.
fn add_empty_loops(f: &mut Factors, dims: &mut SideLoops, from: &[usize], to: &[usize]) {
    let big = |s: &[usize]| (0..s.len()).filter(|d| s[*d] != 1).collect::<Vec<usize>>();
    let (a, b) = (big(from), big(to));
    let same = |(i, j): &(&usize, &usize)| from[**i] == to[**j];
    let first = a.iter().zip(&b).take_while(same).count();
    let last = a[first..].iter().rev().zip(b[first..].iter().rev()).take_while(same).count();
    let (ends, others) = (a[a.len() - last..].iter(), b[b.len() - last..].iter());
    for (&i, &j) in a[..first].iter().chain(ends).zip(b[..first].iter().chain(others)) {
        let l = f.add_loop(from[i]);
        dims[0][i].push(l);
        dims[1][j].push(l);
    }
}

/// Adds the loops of a reshape for all dimensions up to the end of the shorter shape.
fn add_common_loops(f: &mut Factors, dims: &mut SideLoops, from: &[usize], to: &[usize]) {
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
            let l = f.add_loop(common);
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
            let l = f.add_loop(size);
            f.loops[l].need_replication = side == 0;
            dims[side][at[side]].push(l);
            rest[side][at[side]] /= size;
        }
        for &side in sides {
            let l = dims[side][at[side]].last().map_or(1, |l| f.loops[*l].size);
            done[side] *= l;
        }
    }
}

impl StructuralOp for Reshape {
    const NAME: &'static str = "reshape";
    const PRIORITY: Priority = Priority::Alias;
    fn format_params(&self) -> String {
        format!("shape={}{}", self.new_sizes, format_out_sharding(self.out_sharding))
    }
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault> {
        if x.shape.num_elements() != self.new_sizes.num_elements() {
            let (n, m) = (x.shape.num_elements(), self.new_sizes.num_elements());
            return Err(fault!(Shape, "{} has {n} elements, but {} has {m}", x.shape, self.new_sizes)
                .help("a reshape keeps the number of elements"));
        }
        Ok(self.new_sizes.clone())
    }
    fn loops(&self, x: &ArrayType, _y: &Shape) -> Factors {
        reshape_factors(&x.shape, &self.new_sizes)
    }
    fn requested_sharding(&self) -> Option<Spec> {
        self.out_sharding
    }
    fn with_requested_sharding(&self, out: Spec) -> Option<Self> {
        Some(Self { out_sharding: Some(out), ..self.clone() })
    }
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value> {
        let new_sizes = x.shape.clone();
        let make = |out| Arc::new(Reshape { new_sizes: new_sizes.clone(), out_sharding: out }) as _;
        b.emit_with_sharding(&make, std::slice::from_ref(ct), cotangent_type(x).spec)
    }
    fn view_nests(&self, x: &ArrayType, y: &ArrayType) -> Vec<LoopNest> {
        if let Some(loops) = self.as_view(&x.shape) {
            return plain_view(y, &loops);
        }
        let dtype = y.dtype.storage();
        let piece = AccessPiece {
            source: Source::Value(0),
            ranges: StridedRange::full_box(&self.new_sizes),
            map: vec![AffineExpr::constant(0); x.rank()],
        };
        vec![LoopNest {
            extents: self.new_sizes.to_vec(),
            rank: self.new_sizes.rank(),
            dtype,
            accesses: vec![Access { dtype, pieces: vec![piece], fill: Scalar::zero(dtype) }],
            compute: Compute::Reshape,
        }]
    }
    fn with_batch_dim(&self, batch: &VmapArgs<'_>) -> Self {
        let new_sizes = batch.batch_dim.shape(&self.new_sizes);
        Reshape { new_sizes, out_sharding: batch.out_sharding(self.out_sharding, 0) }
    }
}

impl Builder {
    /// Emits `x` with other sizes; returns `x` unchanged if it has them.
    pub fn reshape(&mut self, x: &Value, sizes: impl Into<Shape>, out: Option<Spec>) -> Result<Value> {
        let new_sizes = sizes.into();
        if out.is_none_or(|s| s == x.ty.spec) && x.ty.shape == new_sizes {
            return Ok(x.clone());
        }
        self.emit1(Arc::new(Reshape { new_sizes, out_sharding: out }), std::slice::from_ref(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        merged_the_major_axis_stays: Reshape { new_sizes: [8].into(), out_sharding: None }, ["float32[4@X,2]"] => "
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
        merged_the_minor_axis_is_rejected: Reshape { new_sizes: [8].into(), out_sharding: None }, ["float32[2,4@X]"] => r#"
            error: dimension 1 of the operand, 4@X, becomes the minor part of dimension 0 of the result, whose major part is unsharded: its elements would move between devices
            say the result's sharding: p!["X"]
            reshard it first: `.reshard(p![_, _])`
        "#;
    }
}
