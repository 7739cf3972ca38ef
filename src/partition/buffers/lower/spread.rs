//! Spreads values that are read at every few indices, as the gradient of a strided convolution
//! reads them.
//!
//! Such an access has a piece for each remainder of the indices. Its positions are one affine map
//! of an array in which the elements are set apart, with the fill value between them.

use super::ProgramLowering;
use crate::core::diagnostic::Result;
use crate::ir::program::loop_nest::{Access, AccessPiece, AffineExpr, Source, StridedRange};
use crate::partition::Slot;
use crate::partition::buffers::index::MAX_LOOPS;
use crate::partition::buffers::{BufferOp, CopyBox};
use smallvec::SmallVec;

/// A position in an array whose elements are `scale` positions apart.
#[derive(PartialEq)]
pub(super) struct SpreadPosition {
    /// The distance between elements.
    pub(super) scale: i64,
    /// The position as a function of the loop indices.
    pub(super) map: AffineExpr,
}

/// Returns the positions that a piece reads, as functions of all indices.
/// `steps` has the distance between the indices of each loop.
fn spread_positions(p: &AccessPiece, steps: &[i64]) -> Vec<SpreadPosition> {
    let of = |m: &AffineExpr| {
        let lcm = |a: i64, b: i64| a / crate::core::dtype::gcd(a, b) * b;
        let scale = m.terms.iter().fold(1, |scale, t| lcm(scale, steps[t.0]));
        let terms: SmallVec<[(usize, i64); 2]> =
            m.terms.iter().map(|(l, c)| (*l, c * (scale / steps[*l]))).collect();
        let start: i64 = terms.iter().map(|(l, c)| c * p.ranges[*l].lo).sum();
        SpreadPosition { scale, map: AffineExpr { constant: scale * m.constant - start, terms } }
    };
    p.map.iter().map(of).collect()
}

/// Returns the number of indices at which the positions are those of elements.
/// Returns `None` if two dimensions depend on one loop.
fn count_elements(positions: &[SpreadPosition], extents: &[usize]) -> Option<u128> {
    let mut free: Vec<bool> = vec![true; extents.len()];
    let mut total = 1u128;
    for p in positions.iter().filter(|p| p.scale > 1) {
        // the number of indices for each remainder of the position
        let mut counts = vec![0u128; p.scale as usize];
        counts[p.map.constant.rem_euclid(p.scale) as usize] = 1;
        for (l, c) in &p.map.terms {
            if !std::mem::take(&mut free[*l]) {
                return None;
            }
            let old = std::mem::replace(&mut counts, vec![0; p.scale as usize]);
            for i in 0..p.scale.min(extents[*l] as i64) {
                let each = (extents[*l] as i64 - i + p.scale - 1) / p.scale;
                for (r, n) in old.iter().enumerate() {
                    counts[(r as i64 + c * i).rem_euclid(p.scale) as usize] += n * each as u128;
                }
            }
        }
        total *= counts[0];
    }
    Some(extents.iter().zip(free).filter(|e| e.1).fold(total, |total, e| total * *e.0 as u128))
}

impl ProgramLowering<'_> {
    /// Returns the value of a strided access, and the positions that it reads in an array in which
    /// the elements of the value are set apart.
    ///
    /// Returns `None` if the access is not strided, or is not one affine map of such an array.
    pub(super) fn spread_positions_of(
        &self,
        r: &Access,
        extents: &[usize],
        at: Slot,
    ) -> Option<(Slot, Vec<SpreadPosition>)> {
        let strided = |p: &AccessPiece| p.ranges.iter().any(|s| s.step != 1 && s.len() > 1);
        let Source::Value(slot) = r.pieces.first()?.source else { return None };
        let v = &self.program.values[slot + at];
        if !r.pieces.iter().any(strided) || v.num_partials > 1 || extents.contains(&0) {
            return None;
        }
        let mut steps = vec![1; extents.len()];
        for p in &r.pieces {
            steps.iter_mut().zip(&p.ranges).for_each(|(step, s)| *step = s.step.max(*step));
        }
        let positions = spread_positions(&r.pieces[0], &steps);
        let alike = |p: &AccessPiece| {
            let same_steps = p.ranges.iter().zip(&steps).all(|(s, step)| s.step == *step);
            p.source == Source::Value(slot) && same_steps && spread_positions(p, &steps) == positions
        };
        let covered = |p: &AccessPiece| p.ranges.iter().map(|s| s.len() as u128).product::<u128>();
        let complete = r.pieces.iter().all(alike)
            && count_elements(&positions, extents) == Some(r.pieces.iter().map(covered).sum());
        complete.then_some((slot + at, positions))
    }
    /// Copies the value of a strided access to a value in which its elements are set apart.
    ///
    /// Returns an access with this copy as its source. Returns `None` if the access is not strided,
    /// or is not one affine map of such a copy.
    pub(super) fn spread_windows(
        &mut self,
        r: &Access,
        extents: &[usize],
        at: Slot,
    ) -> Result<Option<Access>> {
        let Some((value, positions)) = self.spread_positions_of(r, extents, at) else { return Ok(None) };
        let v = &self.program.values[value];
        let ranges = StridedRange::full_box(extents);
        let hulls: Vec<(i64, i64)> = positions.iter().map(|p| p.map.bounds(&ranges)).collect();
        let (sizes, strides, layout) = (v.shape.to_vec(), v.strides, v.partial_layout.clone());
        let shape = hulls.iter().map(|(lo, hi)| (hi - lo + 1) as usize).collect();
        let tmp = self.add_value(r.dtype.storage(), shape, layout)?;
        let to = &self.program.values[tmp];
        let mut copy = CopyBox {
            from: Source::Value(value),
            ext: [1; MAX_LOOPS],
            src: (0, [0; MAX_LOOPS]),
            dst: (0, [0; MAX_LOOPS]),
        };
        for (d, (p, (lo, hi))) in positions.iter().zip(&hulls).enumerate() {
            let first = (lo + p.scale - 1).div_euclid(p.scale).max(0);
            let end = (hi.div_euclid(p.scale) + 1).min(sizes[d] as i64);
            copy.ext[d] = (end - first).max(0);
            copy.src.0 += first * strides[d];
            copy.dst.0 += (first * p.scale - lo) * to.strides[d];
            (copy.src.1[d], copy.dst.1[d]) = (strides[d], p.scale * to.strides[d]);
        }
        let parts = if copy.ext.contains(&0) { Vec::new() } else { vec![copy] };
        self.push(BufferOp::Pack { out: tmp, fill: r.fill, parts });
        let map = positions.into_iter().zip(&hulls);
        let map = map.map(|(p, (lo, _))| AffineExpr { constant: p.map.constant - lo, ..p.map }).collect();
        let piece = AccessPiece { source: Source::Value(tmp - at), ranges, map };
        Ok(Some(Access { pieces: vec![piece], ..r.clone() }))
    }
}
