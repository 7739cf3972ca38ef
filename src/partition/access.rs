//! Accesses over boxes of loop indices: the boxes of a value that they read, and their composition.

use crate::core::util::small_sort;
use crate::ir::program::loop_nest::{Access, AccessPiece, AffineExpr, LoopNest, Source, StridedRange};
use crate::partition::boxes::{
    Interval, Region, for_each_index, full, intersect, linear_index, range_boxes, subtract, volume,
};
use crate::partition::program::Slot;

/// Returns the range of `k` in `0..n` for which `at + step·k` is within `v`.
pub fn steps_within(at: i64, step: i64, n: i64, v: Interval) -> Interval {
    let up = |a: i64, b: i64| (a + b - 1).div_euclid(b);
    let (lo, hi) = match step {
        0 if v.0 <= at && at < v.1 => (0, n),
        0 => (0, 0),
        s if s > 0 => (up(v.0 - at, s), up(v.1 - at, s)),
        s => (up(at - v.1 + 1, -s), up(at - v.0 + 1, -s)),
    };
    let lo = lo.clamp(0, n);
    (lo, hi.clamp(lo, n))
}

/// Returns the steps of a strided range that are within an interval of the loop.
pub fn span_steps(span: &StridedRange, v: Interval) -> Interval {
    steps_within(span.lo, span.step, span.len(), v)
}

/// Appends the indices `at + Σ c·k`, for `k` in the given steps, as disjoint intervals.
/// Strided indices are intervals of one index each.
fn index_intervals(map: &AffineExpr, ks: &[Interval], out: &mut Vec<Interval>) {
    let mut terms: Vec<(i64, Interval)> = Vec::new();
    for (l, c) in &map.terms {
        if *c != 0 {
            terms.push((*c, ks[*l]));
        }
    }
    small_sort::sort_by_key(&mut terms, |t| t.0.abs());
    let mut runs: Vec<Interval> = vec![(map.constant, map.constant + 1)];
    for (c, k) in terms {
        let n = k.1 - k.0;
        let width = runs.first().map_or(1, |r| r.1 - r.0);
        // a coefficient up to the current width extends the run without gaps
        if runs.len() == 1 && c.abs() <= width {
            let (a, b) = (c * k.0, c * (k.1 - 1));
            runs[0] = (runs[0].0 + a.min(b), runs[0].1 + a.max(b));
        } else {
            let base = std::mem::take(&mut runs);
            for step in 0..n {
                let shift = c * (k.0 + step);
                runs.extend(base.iter().map(|r| (r.0 + shift, r.1 + shift)));
            }
        }
    }
    out.extend(runs);
}

/// Appends the boxes that one access piece reads over a box of loop indices.
/// `shape` is the shape of the value; the boxes are within it.
pub fn piece_boxes(piece: &AccessPiece, shape: &[usize], loops: &[Interval], out: &mut Vec<Region>) {
    let ks: Region = piece.ranges.iter().zip(loops).map(|(s, v)| span_steps(s, *v)).collect();
    if volume(&ks) == 0 {
        return;
    }
    let mut boxes: Vec<Region> = vec![Vec::with_capacity(piece.map.len())];
    for (map, n) in piece.map.iter().zip(shape) {
        let mut runs = Vec::new();
        index_intervals(map, &ks, &mut runs);
        if map.terms.len() > 1 {
            runs.iter_mut().for_each(|r| *r = (r.0.max(0), r.1.min(*n as i64)));
            runs.retain(|r| r.0 < r.1);
        }
        boxes = if let [one] = runs[..] {
            boxes.into_iter().map(|mut b| (b.push(one), b).1).collect()
        } else {
            let with = |b: &Region| {
                let b = b.clone();
                runs.clone().into_iter().map(move |r| {
                    let mut b = b.clone();
                    b.push(r);
                    b
                })
            };
            boxes.iter().flat_map(with).collect()
        };
    }
    out.extend(boxes);
}

/// Appends the boxes of `slot` that access `read` of a loop nest reads over a box of loop indices.
/// `shape` is the shape of the slot.
pub fn access_boxes(
    s: &LoopNest,
    read: usize,
    slot: Slot,
    shape: &[usize],
    loops: &[Interval],
    out: &mut Vec<Region>,
) {
    let pieces = || s.accesses[read].pieces.iter().filter(|p| p.source == Source::Value(slot));
    if !s.compute.has_affine_accesses() {
        if pieces().next().is_some() && volume(loops) > 0 {
            reshaped_boxes(&s.extents, shape, loops, out);
        }
        return;
    }
    for part in pieces() {
        piece_boxes(part, shape, loops, out);
    }
}

/// Appends the boxes that a reshape from `from` to `to` reads for box `b` of the result.
/// They have the same linear offsets as `b`.
fn reshaped_boxes(to: &[usize], from: &[usize], b: &[Interval], out: &mut Vec<Region>) {
    let is_full = full(to);
    // trailing dimensions that are covered completely form one contiguous run
    let mut outer = b.len();
    while outer > 0 && b[outer - 1] == is_full[outer - 1] {
        outer -= 1;
    }
    let inner: i64 = is_full[outer..].iter().map(|v| v.1).product();
    let mut rows = b[..outer].to_vec();
    let last = rows.pop().unwrap_or((0, 1));
    let width = (last.1 - last.0) * inner;
    let mut runs: Vec<Interval> = Vec::new();
    for_each_index(&rows, |i| {
        let mut at: Vec<i64> = i.to_vec();
        if outer > 0 {
            at.push(last.0);
        }
        let a = linear_index(&at, &is_full[..outer]) as i64 * inner;
        match runs.last_mut() {
            Some(r) if r.1 == a => r.1 += width,
            _ => runs.push((a, a + width)),
        }
    });
    out.extend(runs.iter().flat_map(|r| range_boxes(from, r.0, r.1)));
}

/// Returns `outer` with its reads of `slot` replaced by `inner`, the access that defines `slot`.
///
/// `None` if the result would not be affine. `shape` returns the shapes of the values that `inner`
/// reads.
pub fn compose_access<'s>(
    outer: &Access,
    slot: Slot,
    inner: &Access,
    inner_extents: &[usize],
    shape: &dyn Fn(Slot) -> &'s [usize],
) -> Option<Access> {
    if inner.pieces.iter().any(|q| q.ranges.iter().any(|s| s.step != 1)) {
        return None;
    }
    let full =
        |q: &AccessPiece| q.ranges.iter().zip(inner_extents).all(|(s, n)| s.lo == 0 && s.hi >= *n as i64);
    // both accesses fill with the same value outside their pieces, or the single piece of `inner`
    // covers everything, so that only the fill of `outer` applies
    let beyond = inner.fill == outer.fill || matches!(&inner.pieces[..], [q] if full(q));
    let clips = |q: &AccessPiece| match q.source {
        Source::Value(from) => (0..q.map.len()).any(|e| q.may_leave_bounds(e, shape(from)[e])),
        Source::Const(_) => false,
    };
    if inner.fill != outer.fill && inner.pieces.iter().any(clips) {
        return None;
    }
    let mut parts = Vec::new();
    for p in &outer.pieces {
        if p.source != Source::Value(slot) {
            parts.push(p.clone());
            continue;
        }
        let all: Region = p.ranges.iter().map(|s| (0, s.len())).collect();
        if volume(&all) == 0 {
            continue;
        }
        let mut rest = vec![all.clone()];
        for q in &inner.pieces {
            let mut ks = all.clone();
            for (d, map) in p.map.iter().enumerate() {
                let span = &q.ranges[d];
                let leaves = map.terms.len() > 1 && p.may_leave_bounds(d, inner_extents[d]);
                if span.lo == 0 && span.hi >= inner_extents[d] as i64 && !leaves {
                    continue;
                }
                // a window exceeds the bounds of the view exactly where it exceeds those of the
                // view's source
                if leaves || map.terms.len() > 1 {
                    let ends = matches!(q.source, Source::Value(from) if ends_with_source(q, d, shape(from)));
                    if beyond && ends && inner.pieces.len() == 1 {
                        continue;
                    }
                }
                match map.terms.iter().filter(|t| t.1 != 0).collect::<Vec<_>>()[..] {
                    [] if span.lo <= map.constant && map.constant < span.hi => {}
                    [] => ks.iter_mut().for_each(|k| k.1 = k.0),
                    [&(l, c)] => {
                        let k = steps_within(map.constant, c, p.ranges[l].len(), (span.lo, span.hi));
                        ks[l] = (ks[l].0.max(k.0), ks[l].1.min(k.1).max(ks[l].0.max(k.0)));
                    }
                    _ => return None,
                }
            }
            // a piece without loops has no range; only its map shows that it reads nothing
            let nothing = p.ranges.is_empty()
                && p.map.iter().zip(&q.ranges).any(|(m, s)| m.constant < s.lo || m.constant >= s.hi);
            if nothing || volume(&ks) == 0 {
                continue;
            }
            rest = rest
                .iter()
                .flat_map(|b| {
                    let mut o = Vec::new();
                    subtract(b, &ks, &mut o);
                    o
                })
                .collect();
            let map = q.map.iter().map(|m| substitute(m, &q.ranges, &p.map, &ks)).collect();
            parts.push(AccessPiece { source: q.source, ranges: sub_span(&p.ranges, &ks), map });
        }
        if inner.fill != outer.fill {
            parts.extend(rest.iter().map(|b| AccessPiece {
                source: Source::Const(inner.fill),
                ranges: sub_span(&p.ranges, b),
                map: Vec::new(),
            }));
        }
    }
    Some(Access { dtype: inner.dtype, pieces: parts, fill: outer.fill })
}

/// Returns true if a piece of a view ends, along dimension `d`, exactly where its source ends.
/// `shape` is the shape of the source.
fn ends_with_source(part: &AccessPiece, d: usize, shape: &[usize]) -> bool {
    let (len, mut along) = (part.ranges[d].len(), part.map.iter().zip(shape));
    along.any(|(m, n)| match m.terms[..] {
        [(l, c)] if l == d && len == *n as i64 => {
            (c, m.constant) == (1, 0) || (c, m.constant) == (-1, len - 1)
        }
        _ => false,
    })
}

/// Returns the pieces of strided ranges that consist of the steps `ks`.
fn sub_span(span: &[StridedRange], ks: &[Interval]) -> Vec<StridedRange> {
    let cut = |(s, k): (&StridedRange, &Interval)| {
        let lo = s.lo + s.step * k.0;
        StridedRange { lo, hi: if k.1 > k.0 { s.lo + s.step * (k.1 - 1) + 1 } else { lo }, step: s.step }
    };
    span.iter().zip(ks).map(cut).collect()
}

/// Returns the composition of two affine maps, for outer loops that start at `ks`.
/// Each index of the inner map is replaced by the expression that the outer map has for it.
fn substitute(
    inner: &AffineExpr,
    span: &[StridedRange],
    outer: &[AffineExpr],
    ks: &[Interval],
) -> AffineExpr {
    let mut r = AffineExpr::constant(inner.constant);
    for (d, c) in &inner.terms {
        let o = &outer[*d];
        r.constant += c * (o.constant - span[*d].lo);
        for (l, e) in &o.terms {
            r.constant += c * e * ks[*l].0;
            match r.terms.iter_mut().find(|t| t.0 == *l) {
                Some(t) => t.1 += c * e,
                None => r.terms.push((*l, c * e)),
            }
        }
    }
    r.terms.retain(|t| t.1 != 0);
    r
}

/// Returns true if box `a` is contained in box `b`.
pub fn is_within(a: &[Interval], b: &[Interval]) -> bool {
    volume(a) == 0 || intersect(a, b).is_some_and(|c| c == a)
}
