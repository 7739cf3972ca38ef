//! Sets of indices of one dimension: intervals of equal width at equal distances.
//!
//! What a stride, a dilation or a reshape reads of a dimension is a progression. Representing it as
//! one keeps the time to count its elements independent of the size of the dimension.

use crate::core::util::small_sort;
use crate::partition::{boxes::Interval, work};
use smallvec::{SmallVec, smallvec};

/// The maximum number of intervals into which a set is expanded.
/// A set with more of them is replaced by one interval around it.
pub(crate) const MAX_EXPANDED_INTERVALS: i64 = 1 << 20;

/// The intervals `[start + k·step, start + k·step + width)` for `k` in `0..count`.
///
/// They are disjoint and not adjacent: a single interval has `count` 1 and `step` 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Progression {
    /// The first index.
    pub(crate) start: i64,
    /// The width of each interval, at least 1.
    pub(crate) width: i64,
    /// The distance between the starts of neighbouring intervals, greater than `width`.
    pub(crate) step: i64,
    /// The number of intervals, at least 1.
    pub(crate) count: i64,
}

/// A set of indices of one dimension, as disjoint progressions.
/// The set is empty if the list is.
pub(crate) type IndexSet = SmallVec<[Progression; 1]>;

impl Progression {
    /// Returns the progression of one interval that is not empty.
    pub(crate) fn interval(lo: i64, hi: i64) -> Progression {
        Progression { start: lo, width: hi - lo, step: 0, count: 1 }
    }
    /// Returns a progression, as one interval if its intervals touch.
    fn new(start: i64, width: i64, step: i64, count: i64) -> Progression {
        match count {
            1 => Progression { start, width, step: 0, count },
            _ if step <= width => Progression::interval(start, start + step * (count - 1) + width),
            _ => Progression { start, width, step, count },
        }
    }
    /// Returns the number of indices.
    pub(crate) fn len(&self) -> i64 {
        self.width.saturating_mul(self.count)
    }
    /// Returns the index after the last one.
    pub(crate) fn end(&self) -> i64 {
        self.start + self.step * (self.count - 1) + self.width
    }
    /// Returns the end of the last period.
    pub(crate) fn period_end(&self) -> i64 {
        if self.count == 1 { self.end() } else { self.start.saturating_add(self.step * self.count) }
    }
    /// Appends the indices within an interval: up to three progressions.
    pub(crate) fn clip(&self, v: Interval, out: &mut IndexSet) {
        let Progression { start, width, step, count } = *self;
        if v.0 <= start && self.end() <= v.1 {
            return out.push(*self);
        }
        if v.0 >= v.1 || v.1 <= start || self.end() <= v.0 {
            return;
        }
        if count == 1 {
            return out.push(Progression::interval(start.max(v.0), (start + width).min(v.1)));
        }
        let mut first = (v.0 - start - width).div_euclid(step) + 1;
        let mut last = (v.1 - 1 - start).div_euclid(step);
        (first, last) = (first.max(0), last.min(count - 1));
        let cut = |k: i64| ((start + k * step).max(v.0), (start + k * step + width).min(v.1));
        let is_whole = |k: i64| cut(k) == (start + k * step, start + k * step + width);
        if first <= last && !is_whole(first) {
            out.push(Progression::interval(cut(first).0, cut(first).1));
            first += 1;
        }
        let end = (first <= last && !is_whole(last)).then(|| cut(last));
        last -= i64::from(end.is_some());
        if first <= last {
            out.push(Progression::new(start + first * step, width, step, last - first + 1));
        }
        out.extend(end.map(|v| Progression::interval(v.0, v.1)));
    }
    /// Returns the intervals in ascending order.
    pub(crate) fn intervals(&self) -> impl Iterator<Item = Interval> + use<> {
        let Progression { start, width, step, count } = *self;
        (0..count).map(move |k| (start + k * step, start + k * step + width))
    }
}

/// Returns the number of indices in a set.
pub(crate) fn set_len(set: &[Progression]) -> i64 {
    set.iter().map(Progression::len).fold(0, i64::saturating_add)
}

/// Returns the smallest interval that contains a set, `(0, 0)` if the set is empty.
pub(crate) fn hull(set: &[Progression]) -> Interval {
    let lo = set.iter().map(|p| p.start).min().unwrap_or(0);
    (lo, set.iter().map(Progression::end).max().unwrap_or(0))
}

/// Returns the part of a set within an interval.
pub(crate) fn clip_set(set: &[Progression], v: Interval) -> IndexSet {
    work::count(set.len());
    let mut out = IndexSet::new();
    set.iter().for_each(|p| p.clip(v, &mut out));
    out
}

/// Returns the indices `start + Σ c·k` for `k` in `0..n`, for each (c, n) in `levels`.
///
/// If it has more than [`MAX_EXPANDED_INTERVALS`] intervals that do not form progressions, one
/// interval around them is returned, and `exact` becomes false.
pub(crate) fn set_of_levels(start: i64, levels: &mut [(i64, i64)], exact: &mut bool) -> IndexSet {
    let mut base = start;
    for (c, n) in levels.iter_mut() {
        if *n == 0 {
            return IndexSet::new();
        }
        if *c < 0 {
            base += *c * (*n - 1);
            *c = -*c;
        }
    }
    small_sort::sort(levels);
    let mut set: IndexSet = smallvec![Progression::interval(base, base + 1)];
    let mut apart = true;
    for (c, n) in levels.iter().copied().filter(|(c, n)| *c != 0 && *n > 1) {
        if let [one] = &mut set[..]
            && extend(one, c, n)
        {
            continue;
        }
        let (lo, hi) = hull(&set);
        apart &= c >= hi - lo;
        if set.len() as i64 * set.iter().map(|p| p.count.min(n)).max().unwrap_or(1) > MAX_EXPANDED_INTERVALS {
            *exact = false;
            return smallvec![Progression::interval(base, hi + rest_of(levels, c))];
        }
        let mut more = IndexSet::new();
        for p in &set {
            if p.count == 1 {
                more.push(Progression::new(p.start, p.width, c, n));
            } else if n <= p.count {
                more.extend((0..n).map(|k| Progression { start: p.start + c * k, ..*p }));
            } else {
                more.extend(p.intervals().map(|v| Progression::new(v.0, v.1 - v.0, c, n)));
            }
        }
        work::count(more.len());
        set = more;
    }
    if apart || set.len() == 1 { set } else { disjoint(set, exact) }
}

/// Returns the largest sum of multiples of the levels from step `c` on.
fn rest_of(levels: &[(i64, i64)], c: i64) -> i64 {
    levels.iter().filter(|l| l.0 >= c).map(|l| l.0 * (l.1 - 1)).sum()
}

/// Adds the multiples `0..n` of `c` to a progression.
/// Returns false if the result is not a progression.
fn extend(p: &mut Progression, c: i64, n: i64) -> bool {
    if p.count == 1 {
        *p = Progression::new(p.start, p.width, c, n);
        return true;
    }
    let extends = c % p.step == 0 && c / p.step <= p.count;
    if extends {
        p.count += c / p.step * (n - 1);
    }
    extends
}

/// Returns the same set as disjoint progressions, or an interval around it if it has too many.
fn disjoint(mut set: IndexSet, exact: &mut bool) -> IndexSet {
    set.sort_unstable();
    if set.windows(2).all(|w| w[0].end() <= w[1].start) {
        return set;
    }
    if let Some(set) = by_residue(&set) {
        return set;
    }
    let total = set.iter().map(|p| p.count).fold(0, i64::saturating_add);
    let (lo, hi) = hull(&set);
    if total > MAX_EXPANDED_INTERVALS {
        *exact = false;
        return smallvec![Progression::interval(lo, hi)];
    }
    let mut all: Vec<Interval> = set.iter().flat_map(Progression::intervals).collect();
    work::count(all.len());
    all.sort_unstable();
    merged(&all)
}

/// Returns the union of intervals in ascending order.
pub(crate) fn merged(list: &[Interval]) -> IndexSet {
    let mut apart: Vec<Interval> = Vec::with_capacity(list.len());
    for v in list {
        match apart.last_mut() {
            Some(last) if v.0 <= last.1 => last.1 = last.1.max(v.1),
            _ => apart.push(*v),
        }
    }
    let mut set = IndexSet::new();
    for (lo, hi) in apart {
        if let Some(p) = set.last_mut()
            && p.width == hi - lo
            && (p.count == 1 || lo == p.start + p.step * p.count)
        {
            (p.step, p.count) = (if p.count == 1 { lo - p.start } else { p.step }, p.count + 1);
            continue;
        }
        set.push(Progression::interval(lo, hi));
    }
    set
}

/// Merges progressions of one step and width by their residues.
/// `None` if they differ, or if two residues overlap partly.
fn by_residue(set: &[Progression]) -> Option<IndexSet> {
    let Progression { width, step, .. } = *set.iter().find(|p| p.count > 1)?;
    if set.iter().any(|p| p.width != width || p.count > 1 && p.step != step) {
        return None;
    }
    work::count(set.len());
    let mut classes: Vec<(i64, i64, i64)> =
        set.iter().map(|p| (p.start.rem_euclid(step), p.start.div_euclid(step), p.count)).collect();
    classes.sort_unstable();
    let (first, last) = (classes.first()?.0, classes.last()?.0);
    let apart = classes.windows(2).all(|w| w[0].0 == w[1].0 || w[0].0 + width <= w[1].0);
    if !apart || last != first && last + width > first + step {
        return None;
    }
    let mut merged: Vec<(i64, i64, i64)> = Vec::new();
    for (residue, k, count) in classes {
        match merged.last_mut() {
            Some(m) if m.0 == residue && k <= m.1 + m.2 => m.2 = m.2.max(k + count - m.1),
            _ => merged.push((residue, k, count)),
        }
    }
    Some(merged.into_iter().map(|(r, k, n)| Progression::new(r + k * step, width, step, n)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn indices(set: &[Progression]) -> Vec<i64> {
        set.iter().flat_map(Progression::intervals).flat_map(|v| v.0..v.1).collect()
    }

    /// Every set of up to three levels has the indices that the levels describe, each once.
    #[test]
    fn levels_are_exact_and_disjoint() {
        let steps = [-7, -3, -2, -1, 0, 1, 2, 3, 4, 6, 9];
        let sizes = [1, 2, 3, 5, 8];
        let levels: Vec<(i64, i64)> = steps.iter().flat_map(|c| sizes.map(|n| (*c, n))).collect();
        for a in &levels {
            for b in &levels {
                for c in levels.iter().step_by(4) {
                    let mut exact = true;
                    let set = set_of_levels(5, &mut [*a, *b, *c], &mut exact);
                    assert!(exact);
                    let mut wanted = BTreeSet::new();
                    for (i, j) in (0..a.1).flat_map(|i| (0..b.1).map(move |j| (i, j))) {
                        wanted.extend((0..c.1).map(|k| 5 + a.0 * i + b.0 * j + c.0 * k));
                    }
                    let mut made = indices(&set);
                    made.sort_unstable();
                    assert!(made.iter().eq(wanted.iter()), "{a:?} {b:?} {c:?}: {set:?}");
                    for v in [(0, 9), (4, 5), (6, 6), (-20, 7), (8, 100)] {
                        let mut cut = indices(&clip_set(&set, v));
                        cut.sort_unstable();
                        assert!(cut.iter().eq(wanted.range(v.0..v.1)), "{set:?} in {v:?}");
                    }
                }
            }
        }
    }
}
