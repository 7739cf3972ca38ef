//! Accesses over boxes of loop indices: the boxes of a value that they read, and their composition.

use crate::ir::program::{Access, AccessPiece, AffineExpr, LoopNest, Source, StridedRange};
use crate::partition::boxes::{Interval, Region, full, subtract, volume};
use crate::partition::progression::{IndexSet, clip_set, hull, set_of_levels};
use crate::partition::{program::Slot, reshape_boxes::reshape_boxes, strided_box::StridedBox};
use smallvec::SmallVec;

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

/// Returns the indices `constant + Σ c·k`, for `k` in the given steps.
/// `exact` becomes false if there are too many to be listed, and the set has more.
fn index_set(map: &AffineExpr, ks: &[Interval], exact: &mut bool) -> IndexSet {
    let mut levels: SmallVec<[(i64, i64); 4]> = SmallVec::new();
    let mut start = map.constant;
    for (l, c) in map.terms.iter().filter(|t| t.1 != 0) {
        start += c * ks[*l].0;
        levels.push((*c, ks[*l].1 - ks[*l].0));
    }
    set_of_levels(start, &mut levels, exact)
}

/// Returns the strided box that one access piece reads over a box of loop indices, `None` if it is
/// empty.
///
/// `shape` is the shape of the value; the box is within it.
pub(crate) fn piece_sets(
    piece: &AccessPiece,
    shape: &[usize],
    loops: &[Interval],
    exact: &mut bool,
) -> Option<StridedBox> {
    let ks: Region = piece.ranges.iter().zip(loops).map(|(s, v)| span_steps(s, *v)).collect();
    if volume(&ks) == 0 {
        return None;
    }
    let mut sets = StridedBox::with_capacity(piece.map.len());
    for (map, n) in piece.map.iter().zip(shape) {
        let mut set = index_set(map, &ks, exact);
        if map.terms.len() > 1 {
            set = clip_set(&set, (0, *n as i64));
        }
        if set.is_empty() {
            return None;
        }
        sets.push(set);
    }
    Some(sets)
}

/// Appends the strided boxes of `slot` that access `read` of a loop nest reads over a box of loop
/// indices.
///
/// `shape` is the shape of the slot. `exact` becomes false if they have elements that are not read.
pub(crate) fn access_sets(
    s: &LoopNest,
    read: usize,
    (slot, shape): (Slot, &[usize]),
    loops: &[Interval],
    out: &mut Vec<StridedBox>,
    exact: &mut bool,
) {
    let mut pieces = s.accesses[read].pieces.iter().filter(|p| p.source == Source::Value(slot));
    if !s.compute.has_affine_accesses() {
        if pieces.next().is_some() && volume(loops) > 0 {
            reshape_boxes(&s.extents, shape, loops, out, exact);
        }
        return;
    }
    out.extend(pieces.filter_map(|p| piece_sets(p, shape, loops, exact)));
}

/// Returns the smallest box around what an access of a loop nest reads of `slot`.
/// It is empty if the access reads nothing.
pub(crate) fn access_hull(
    s: &LoopNest,
    read: usize,
    (slot, shape): (Slot, &[usize]),
    loops: &[Interval],
) -> Region {
    if !s.compute.has_affine_accesses() {
        return full(shape);
    }
    let mut boxes = Vec::new();
    access_sets(s, read, (slot, shape), loops, &mut boxes, &mut true);
    let along = |d: usize| {
        let hulls = boxes.iter().map(|b| hull(&b[d]));
        hulls.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
    };
    (0..shape.len()).map(along).collect()
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
            // a window exceeds the bounds of the view exactly where it exceeds those of the view's
            // source
            let same_bounds = |d: usize| {
                let ends = matches!(q.source, Source::Value(from) if ends_with_source(q, d, shape(from)));
                beyond && ends && inner.pieces.len() == 1
            };
            let ks = steps_in_piece(p, q, inner_extents, &all, same_bounds)?;
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

/// Returns the steps, among `all` those of piece `p` of a consumer, that read piece `q` of a view.
///
/// `None` if they are not a box. `same_bounds` returns true if a window along a dimension leaves
/// the view exactly where it leaves the view's source.
fn steps_in_piece(
    p: &AccessPiece,
    q: &AccessPiece,
    view_extents: &[usize],
    all: &Region,
    same_bounds: impl Fn(usize) -> bool,
) -> Option<Region> {
    let mut ks = all.clone();
    for (d, map) in p.map.iter().enumerate() {
        let span = &q.ranges[d];
        let leaves = map.terms.len() > 1 && p.may_leave_bounds(d, view_extents[d]);
        if span.lo == 0 && span.hi >= view_extents[d] as i64 && !leaves {
            continue;
        }
        if map.terms.len() > 1 && same_bounds(d) {
            continue;
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
    Some(ks)
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
