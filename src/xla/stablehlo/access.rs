//! Writes accesses as tensors over loops.
//!
//! An access becomes slices, reversals, transposes, paddings and concatenations of its operand.

use super::writer::{Ssa, Writer};
use super::{FaultResult, unsupported};
use crate::core::{DType, Scalar, util::small_sort};
use crate::ir::program::{Access, AccessPiece, AffineExpr, Source, StridedRange};

/// The maximum padding of a window access along a dimension, in elements.
const MAX_PADDING_ELEMENTS: i64 = 1 << 40;

/// Returns the index after the last one of a range.
fn span_end(s: &StridedRange) -> i64 {
    s.lo + (s.len() - 1) * s.step + 1
}

/// Returns the loops that an access depends on, in ascending order.
/// These are the loops in the maps of its pieces, and the loops that a piece does not cover
/// completely.
pub(super) fn dependent_loops(read: &Access, extents: &[usize]) -> Vec<usize> {
    let on = |l: &usize| {
        read.pieces.iter().any(|p| {
            p.ranges[*l] != StridedRange::full(extents[*l])
                || p.map.iter().any(|a| a.terms.iter().any(|t| t.0 == *l))
        })
    };
    (0..extents.len()).filter(on).collect()
}

/// Returns the operand and its loops if the access reads all of it, with one loop per dimension.
fn direct_operand(read: &Access, operands: &[Ssa]) -> Option<(Ssa, Vec<usize>)> {
    let [piece] = &read.pieces[..] else { return None };
    let Source::Value(k) = piece.source else { return None };
    let x = &operands[k];
    if x.splat.is_some() {
        return None;
    }
    let of = |(a, n): (&AffineExpr, &usize)| match a.terms[..] {
        [(l, 1)] if a.constant == 0 && piece.ranges[l] == StridedRange::full(*n) => Some(l),
        _ => None,
    };
    let loops = piece.map.iter().zip(&x.shape).map(of).collect::<Option<Vec<_>>>()?;
    let mut once = loops.clone();
    small_sort::sort(&mut once);
    once.dedup();
    (once.len() == loops.len()).then(|| (x.clone(), loops))
}

impl Writer {
    /// Writes an access over as few loops as possible, in any order.
    /// Returns the tensor, and the loop of each of its dimensions.
    pub(super) fn minimal_read(
        &mut self,
        read: &Access,
        extents: &[usize],
        operands: &[Ssa],
    ) -> FaultResult<(Ssa, Vec<usize>)> {
        if let Some(found) = direct_operand(read, operands) {
            return Ok(found);
        }
        let loops = dependent_loops(read, extents);
        Ok((self.read(read, extents, &loops, operands)?, loops))
    }
    /// Writes an access as a tensor over these loops, in ascending order.
    /// They include all loops that the access depends on.
    pub(super) fn read(
        &mut self,
        r: &Access,
        extents: &[usize],
        loops: &[usize],
        operands: &[Ssa],
    ) -> FaultResult<Ssa> {
        let place = |l: usize| loops.iter().position(|m| *m == l);
        let slim = |p: &AccessPiece| AccessPiece {
            source: p.source,
            ranges: loops.iter().map(|l| p.ranges[*l]).collect(),
            map: p
                .map
                .iter()
                .map(|a| AffineExpr {
                    constant: a.constant,
                    terms: a.terms.iter().filter_map(|(l, c)| Some((place(*l)?, *c))).collect(),
                })
                .collect(),
        };
        let pieces: Vec<AccessPiece> =
            r.pieces.iter().filter(|p| p.ranges.iter().all(|s| !s.is_empty())).map(slim).collect();
        let full: Vec<(i64, i64)> = loops.iter().map(|l| (0, extents[*l] as i64)).collect();
        self.assemble(&pieces.iter().collect::<Vec<_>>(), &full, r, operands)
    }

    /// Writes the box `bounds` of an access from the pieces in it.
    fn assemble(
        &mut self,
        parts: &[&AccessPiece],
        bounds: &[(i64, i64)],
        r: &Access,
        operands: &[Ssa],
    ) -> FaultResult<Ssa> {
        let shape: Vec<usize> = bounds.iter().map(|(lo, hi)| (hi - lo) as usize).collect();
        match parts {
            [] => return Ok(self.constant(r.dtype, r.fill, &shape)),
            [piece] => {
                let value = self.piece(piece, r, operands)?;
                return Ok(self.padded(&value, piece, bounds, r.fill));
            }
            _ => {}
        }
        // overlay the other pieces on an operand that keeps its position: a mask moves no data,
        // whereas concatenating along a sharded dimension would gather it
        let stays = |p: &AccessPiece| {
            let Source::Value(k) = p.source else { return None };
            let full =
                operands[k].splat.is_none() && operands[k].shape == shape && bounds.iter().all(|b| b.0 == 0);
            let same = |(d, a): (usize, &AffineExpr)| {
                a.terms[..] == [(d, 1)] && a.constant == p.ranges[d].lo && p.ranges[d].step == 1
            };
            (full && p.map.len() == shape.len() && p.map.iter().enumerate().all(same)).then_some(k)
        };
        if let Some(k) = parts.iter().find_map(|p| stays(p)) {
            let mut all = operands[k].clone();
            for piece in parts.iter().filter(|p| stays(p) != Some(k)) {
                all = self.overlay(piece, bounds, r, operands, &all)?;
            }
            return Ok(all);
        }
        // concatenate along a dimension in which the box can be cut without cutting a piece
        for d in 0..bounds.len() {
            let slabs = separable_groups(parts, d);
            if slabs.len() < 2 {
                continue;
            }
            let mut pieces = Vec::new();
            for (g, (lo, group)) in slabs.iter().enumerate() {
                let lo = if g == 0 { bounds[d].0 } else { *lo };
                let hi = slabs.get(g + 1).map_or(bounds[d].1, |next| next.0);
                let mut slab = bounds.to_vec();
                slab[d] = (lo, hi);
                pieces.push(self.assemble(group, &slab, r, operands)?);
            }
            return Ok(self.concatenate(&pieces, d));
        }
        // the pieces interlock: overlay them one after another
        let mut all = self.constant(r.dtype, r.fill, &shape);
        for piece in parts {
            all = self.overlay(piece, bounds, r, operands, &all)?;
        }
        Ok(all)
    }
    /// Writes a piece over `under`.
    /// The mask is computed from indices, so XLA fuses it with the consumer of the access.
    fn overlay(
        &mut self,
        piece: &AccessPiece,
        bounds: &[(i64, i64)],
        r: &Access,
        operands: &[Ssa],
        under: &Ssa,
    ) -> FaultResult<Ssa> {
        let value = self.piece(piece, r, operands)?;
        let value = self.padded(&value, piece, bounds, r.fill);
        let shape = under.shape.clone();
        let mut mask: Option<Ssa> = None;
        for (d, s) in piece.ranges.iter().enumerate() {
            let (lo, last) = (s.lo - bounds[d].0, span_end(s) - bounds[d].0);
            if lo == 0 && last == shape[d] as i64 && s.step == 1 {
                continue;
            }
            let at = self.iota(d, DType::I32, &shape);
            let mut tests = vec![("GE", at.clone(), lo), ("LT", at.clone(), last)];
            tests.retain(|(op, _, n)| !(*op == "GE" && *n == 0 || *op == "LT" && *n == shape[d] as i64));
            if s.step > 1 {
                let (first, step) = (self.int(DType::I32, lo, &shape), self.int(DType::I32, s.step, &shape));
                let from = self.elementwise("subtract", &[&at, &first]);
                tests.push(("EQ", self.elementwise("remainder", &[&from, &step]), 0));
            }
            for (op, x, n) in tests {
                let n = self.int(DType::I32, n, &shape);
                let hit = self.compare(op, &x, &n);
                mask = Some(match mask {
                    None => hit,
                    Some(m) => self.elementwise("and", &[&m, &hit]),
                });
            }
        }
        Ok(match mask {
            None => value,
            Some(mask) => self.select(&mask, &value, under),
        })
    }
    /// Pads a piece to the size of a box with the fill value.
    fn padded(&mut self, x: &Ssa, piece: &AccessPiece, bounds: &[(i64, i64)], fill: Scalar) -> Ssa {
        let width = |(s, b): (&StridedRange, &(i64, i64))| [s.lo - b.0, b.1 - span_end(s), s.step - 1];
        let widths: Vec<[i64; 3]> = piece.ranges.iter().zip(bounds).map(width).collect();
        self.pad(x, fill, &widths)
    }

    /// Writes one piece as a tensor over the steps of its ranges.
    fn piece(&mut self, p: &AccessPiece, r: &Access, operands: &[Ssa]) -> FaultResult<Ssa> {
        let counts: Vec<usize> = p.ranges.iter().map(|s| s.len() as usize).collect();
        let mut x = match p.source {
            Source::Const(c) => return Ok(self.constant(r.dtype, c, &counts)),
            Source::Value(k) => operands[k].clone(),
        };
        if let Some(c) = x.splat.filter(|_| p.map.iter().all(|a| a.terms.len() < 2)) {
            return Ok(self.constant(r.dtype, c, &counts));
        }
        // write windows first: a dimension becomes two, the first of which runs over the steps
        // within a window
        let mut map: Vec<AffineExpr> = Vec::new();
        for a in &p.map {
            match a.terms[..] {
                [_, _] => {
                    x = self.materialised(&[x]).swap_remove(0);
                    x = self.windows(&x, map.len(), a, &counts, r.fill)?;
                    map.push(AffineExpr::linear(0, a.terms[1].0, 1));
                    map.push(AffineExpr::linear(0, a.terms[0].0, 1));
                }
                [_] | [] => map.push(a.clone()),
                _ => return Err(unsupported("a position that depends on three loops has no StableHLO")),
            }
        }
        let (mut bounds, mut turned, mut loops) = (vec![], vec![], vec![]);
        for (d, AffineExpr { constant: at, terms }) in map.iter().enumerate() {
            bounds.push(match terms[..] {
                [(l, c)] => {
                    let last = at + (counts[l] as i64 - 1) * c;
                    if loops.contains(&l) {
                        return Err(unsupported("a read along a diagonal has no StableHLO"));
                    }
                    loops.push(l);
                    if c < 0 && counts[l] > 1 {
                        turned.push(d);
                    }
                    [*at.min(&last), *at.max(&last) + 1, c.abs().max(1)]
                }
                _ => [*at, *at + 1, 1],
            });
        }
        let mut value = self.slice(&x, &bounds);
        if !turned.is_empty() {
            let text = format!(
                "stablehlo.reverse {}, dims = {} : {}",
                value.name,
                super::syntax::list(&turned),
                value.ty()
            );
            value = self.op(text, value.dtype, &value.shape);
        }
        // each dimension is its loop or is broadcast along it, such as the sums of rows: XLA knows
        // this form, and turns a division by such a value into a product with its reciprocal
        let keeps_dims = |(d, a): (usize, &AffineExpr)| a.terms.first().is_none_or(|t| t.0 == d);
        if map.len() == counts.len() && map.iter().enumerate().all(keeps_dims) {
            return Ok(self.broadcast(&value, &(0..map.len()).collect::<Vec<_>>(), &counts));
        }
        Ok(self.over_loops(&value, &loops, &counts))
    }
    /// Converts a tensor over some of the loops to one over all loops of these sizes.
    /// Loops of size 1 may be missing from `loops`.
    pub(super) fn over_loops(&mut self, x: &Ssa, loops: &[usize], sizes: &[usize]) -> Ssa {
        // loops with a single step are not dimensions of the tensor
        let kept: Vec<usize> = loops.iter().map(|l| sizes[*l]).collect();
        let mut sorted = loops.to_vec();
        small_sort::sort(&mut sorted);
        if loops.is_sorted() && (0..sizes.len()).all(|l| loops.contains(&l) || sizes[l] == 1) {
            return self.reshape(x, sizes);
        }
        let x = self.reshape(x, &kept);
        let order: Vec<usize> = sorted.iter().filter_map(|l| loops.iter().position(|m| m == l)).collect();
        let x = self.transpose(&x, &order);
        self.broadcast(&x, &sorted, sizes)
    }
    /// Writes windows along dimension `d`; elements out of bounds have the fill value.
    ///
    /// The dimension becomes two: one for the steps within a window (the second loop), then one for
    /// the windows (the first loop).
    fn windows(
        &mut self,
        x: &Ssa,
        d: usize,
        a: &AffineExpr,
        counts: &[usize],
        fill: Scalar,
    ) -> FaultResult<Ssa> {
        let [(outer, stride), (inner, dilation)] = a.terms[..] else {
            return Err(unsupported("a window needs exactly two loops"));
        };
        let (n, m) = (counts[outer] as i64, counts[inner] as i64);
        let (far, near) = ((n - 1) * stride, (m - 1) * dilation);
        let least = a.constant + far.min(0) + near.min(0);
        let most = a.constant + far.max(0) + near.max(0);
        let size = x.shape[d] as i64;
        let (low, high) = ((-least).max(0), (most + 1 - size).max(0));
        if low.max(high) > MAX_PADDING_ELEMENTS {
            return Err(unsupported("windows that extend so far beyond their operand have no StableHLO"));
        }
        let mut widths = vec![[0, 0, 0]; x.shape.len()];
        widths[d] = [low, high, 0];
        let x = self.pad(x, fill, &widths);
        let mut taps = Vec::new();
        for t in 0..m {
            let first = a.constant + low + t * dilation;
            let last = first + (n - 1) * stride;
            let mut bounds: Vec<[i64; 3]> = x.shape.iter().map(|n| [0, *n as i64, 1]).collect();
            bounds[d] = [first.min(last), first.max(last) + 1, stride.abs().max(1)];
            let mut tap = self.slice(&x, &bounds);
            if stride < 0 && n > 1 {
                let text = format!("stablehlo.reverse {}, dims = [{d}] : {}", tap.name, tap.ty());
                tap = self.op(text, tap.dtype, &tap.shape);
            }
            let mut shape = tap.shape.clone();
            shape.insert(d, 1);
            taps.push(self.reshape(&tap, &shape));
        }
        Ok(self.concatenate(&taps, d))
    }
}

/// Groups pieces along dimension `d` so that a cut between two groups cuts no piece.
/// Returns the groups with the index at which each starts.
fn separable_groups<'a>(pieces: &[&'a AccessPiece], d: usize) -> Vec<(i64, Vec<&'a AccessPiece>)> {
    let mut order = pieces.to_vec();
    small_sort::sort_by_key(&mut order, |p| p.ranges[d].lo);
    let mut groups: Vec<(i64, i64, Vec<&AccessPiece>)> = Vec::new();
    for p in order {
        let (lo, end) = (p.ranges[d].lo, span_end(&p.ranges[d]));
        match groups.last_mut() {
            Some(g) if lo < g.1 => {
                g.1 = g.1.max(end);
                g.2.push(p);
            }
            _ => groups.push((lo, end, vec![p])),
        }
    }
    groups.into_iter().map(|(lo, _, parts)| (lo, parts)).collect()
}
