//! Reads over boxes: which boxes of a stored value a box of loops touches, and reads through other reads.

use crate::partition::program::Slot;
use crate::partition::region::{Interval, Region, each, full, intersect, linear, minus, range_boxes, volume};
use crate::program::sentence::{Affine, Part, Read, Sentence, Source, Span};
use crate::sorted;

/// The k with `at + step·k` in `v`, for `0 ≤ k < n`.
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

/// The steps of a span that are within an interval of the loop.
pub fn span_steps(span: &Span, v: Interval) -> Interval {
    steps_within(span.lo, span.step, span.len(), v)
}

/// The positions `at + Σ c·k` for k in the given steps, as disjoint intervals (single positions where they are strided).
fn positions(map: &Affine, ks: &[Interval], out: &mut Vec<Interval>) {
    let mut terms: Vec<(i64, Interval)> = Vec::new();
    for (l, c) in &map.terms {
        if *c != 0 {
            terms.push((*c, ks[*l]));
        }
    }
    sorted::sort_by_key(&mut terms, |t| t.0.abs());
    let mut runs: Vec<Interval> = vec![(map.at, map.at + 1)];
    for (c, k) in terms {
        let n = k.1 - k.0;
        let width = runs.first().map_or(1, |r| r.1 - r.0);
        // a term that steps by just the width of what is there makes one longer run
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

/// The boxes of a value of shape `shape` that one part reads over a box of loops: where its positions are inside.
pub fn part_boxes(part: &Part, shape: &[usize], loops: &[Interval], out: &mut Vec<Region>) {
    let ks: Region = part.span.iter().zip(loops).map(|(s, v)| span_steps(s, *v)).collect();
    if volume(&ks) == 0 {
        return;
    }
    let mut boxes: Vec<Region> = vec![Vec::with_capacity(part.map.len())];
    for (map, n) in part.map.iter().zip(shape) {
        let mut runs = Vec::new();
        positions(map, &ks, &mut runs);
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

/// The boxes of slot `slot`, of shape `shape`, that read `read` of a sentence touches over a box of loops.
pub fn read_boxes(
    s: &Sentence,
    read: usize,
    slot: Slot,
    shape: &[usize],
    loops: &[Interval],
    out: &mut Vec<Region>,
) {
    let parts = || s.reads[read].parts.iter().filter(|p| p.from == Source::Value(slot));
    if !s.body.reads_by_position() {
        if parts().next().is_some() && volume(loops) > 0 {
            reshaped(&s.extents, shape, loops, out);
        }
        return;
    }
    for part in parts() {
        part_boxes(part, shape, loops, out);
    }
}

/// The boxes of an array of shape `from` that are at the same linear positions as a box of an array of shape `to`.
fn reshaped(to: &[usize], from: &[usize], b: &[Interval], out: &mut Vec<Region>) {
    let whole = full(to);
    // dimensions that are whole from some point on make one run
    let mut outer = b.len();
    while outer > 0 && b[outer - 1] == whole[outer - 1] {
        outer -= 1;
    }
    let inner: i64 = whole[outer..].iter().map(|v| v.1).product();
    let mut rows = b[..outer].to_vec();
    let last = rows.pop().unwrap_or((0, 1));
    let width = (last.1 - last.0) * inner;
    let mut runs: Vec<Interval> = Vec::new();
    each(&rows, |i| {
        let mut at: Vec<i64> = i.to_vec();
        if outer > 0 {
            at.push(last.0);
        }
        let a = linear(&at, &whole[..outer]) as i64 * inner;
        match runs.last_mut() {
            Some(r) if r.1 == a => r.1 += width,
            _ => runs.push((a, a + width)),
        }
    });
    out.extend(runs.iter().flat_map(|r| range_boxes(from, r.0, r.1)));
}

/// `outer` with its parts of `slot` read through `inner`, what `slot` is as a function of its own indices; `None` where the result
/// would not be affine. `shape` has the shapes of what `inner` reads.
pub fn through<'s>(
    outer: &Read,
    slot: Slot,
    inner: &Read,
    inner_extents: &[usize],
    shape: &dyn Fn(Slot) -> &'s [usize],
) -> Option<Read> {
    if inner.parts.iter().any(|q| q.span.iter().any(|s| s.step != 1)) {
        return None;
    }
    let whole = |q: &Part| q.span.iter().zip(inner_extents).all(|(s, n)| s.lo == 0 && s.hi >= *n as i64);
    // where there is nothing, both have the same number; or all of the inner is one part, and what is beyond it is the outer's
    let beyond = inner.fill == outer.fill || matches!(&inner.parts[..], [q] if whole(q));
    let clips = |q: &Part| match q.from {
        Source::Value(from) => (0..q.map.len()).any(|e| q.leaves(e, shape(from)[e])),
        Source::Const(_) => false,
    };
    if inner.fill != outer.fill && inner.parts.iter().any(clips) {
        return None;
    }
    let mut parts = Vec::new();
    for p in &outer.parts {
        if p.from != Source::Value(slot) {
            parts.push(p.clone());
            continue;
        }
        let all: Region = p.span.iter().map(|s| (0, s.len())).collect();
        if volume(&all) == 0 {
            continue;
        }
        let mut rest = vec![all.clone()];
        for q in &inner.parts {
            let mut ks = all.clone();
            for (d, map) in p.map.iter().enumerate() {
                let span = &q.span[d];
                let leaves = map.terms.len() > 1 && p.leaves(d, inner_extents[d]);
                if span.lo == 0 && span.hi >= inner_extents[d] as i64 && !leaves {
                    continue;
                }
                // the same windows leave what is read where they leave the view, or its part
                if leaves || map.terms.len() > 1 {
                    let ends = matches!(q.from, Source::Value(from) if ends_with(q, d, shape(from)));
                    if beyond && ends && inner.parts.len() == 1 {
                        continue;
                    }
                }
                match map.terms.iter().filter(|t| t.1 != 0).collect::<Vec<_>>()[..] {
                    [] if span.lo <= map.at && map.at < span.hi => {}
                    [] => ks.iter_mut().for_each(|k| k.1 = k.0),
                    [&(l, c)] => {
                        let k = steps_within(map.at, c, p.span[l].len(), (span.lo, span.hi));
                        ks[l] = (ks[l].0.max(k.0), ks[l].1.min(k.1).max(ks[l].0.max(k.0)));
                    }
                    _ => return None,
                }
            }
            // with no loops at all, an empty part shows in the map alone
            let nothing =
                p.span.is_empty() && p.map.iter().zip(&q.span).any(|(m, s)| m.at < s.lo || m.at >= s.hi);
            if nothing || volume(&ks) == 0 {
                continue;
            }
            rest = rest
                .iter()
                .flat_map(|b| {
                    let mut o = Vec::new();
                    minus(b, &ks, &mut o);
                    o
                })
                .collect();
            let map = q.map.iter().map(|m| substitute(m, &q.span, &p.map, &ks)).collect();
            parts.push(Part { from: q.from, span: sub_span(&p.span, &ks), map });
        }
        if inner.fill != outer.fill {
            parts.extend(rest.iter().map(|b| Part {
                from: Source::Const(inner.fill),
                span: sub_span(&p.span, b),
                map: Vec::new(),
            }));
        }
    }
    Some(Read { dtype: inner.dtype, parts, fill: outer.fill })
}

/// Whether a part of a view ends along the view's dimension `d` just where what it reads, of this shape, ends.
fn ends_with(part: &Part, d: usize, shape: &[usize]) -> bool {
    let (len, mut along) = (part.span[d].len(), part.map.iter().zip(shape));
    along.any(|(m, n)| match m.terms[..] {
        [(l, c)] if l == d && len == *n as i64 => (c, m.at) == (1, 0) || (c, m.at) == (-1, len - 1),
        _ => false,
    })
}

/// The steps `ks` of these spans, as spans.
fn sub_span(span: &[Span], ks: &[Interval]) -> Vec<Span> {
    let cut = |(s, k): (&Span, &Interval)| {
        let lo = s.lo + s.step * k.0;
        Span { lo, hi: if k.1 > k.0 { s.lo + s.step * (k.1 - 1) + 1 } else { lo }, step: s.step }
    };
    span.iter().zip(ks).map(cut).collect()
}

/// The inner map with each inner index replaced by what the outer map makes of the outer loops, which begin at `ks`.
fn substitute(inner: &Affine, span: &[Span], outer: &[Affine], ks: &[Interval]) -> Affine {
    let mut r = Affine::constant(inner.at);
    for (d, c) in &inner.terms {
        let o = &outer[*d];
        r.at += c * (o.at - span[*d].lo);
        for (l, e) in &o.terms {
            r.at += c * e * ks[*l].0;
            match r.terms.iter_mut().find(|t| t.0 == *l) {
                Some(t) => t.1 += c * e,
                None => r.terms.push((*l, c * e)),
            }
        }
    }
    r.terms.retain(|t| t.1 != 0);
    r
}

/// Whether a box is within another.
pub fn within(a: &[Interval], b: &[Interval]) -> bool {
    volume(a) == 0 || intersect(a, b).is_some_and(|c| c == a)
}
