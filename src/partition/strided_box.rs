//! Strided boxes: products of index sets, and the number of elements in a union of them.
//!
//! A step that reads with a stride reads a few strided boxes and not a box for each element. The
//! union of boxes is measured without subtracting boxes from boxes. Boxes that are apart along some
//! dimension are measured on their own. Connected boxes are cut along one dimension into classes of
//! indices that the same boxes contain. The time is proportional to n·log n for n boxes that each
//! overlap few others; a budget bounds it for all others.

use crate::partition::boxes::{Interval, Region, for_each_index, volume};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::progression::{
    IndexSet, MAX_EXPANDED_INTERVALS, Progression, clip_set, hull, merged, set_len,
};
use crate::partition::work;
use std::collections::{BTreeSet, HashMap};

/// A product of index sets, one for each dimension.
pub(crate) type StridedBox = Vec<IndexSet>;

/// The maximum number of entries of classes in one measurement.
/// A union that needs more is estimated.
const MAX_CLASS_ENTRIES: i64 = 1 << 20;

/// The number of elements of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ElementCount {
    /// The number of elements, saturating at `i64::MAX`.
    pub(crate) elements: i64,
    /// True if the number is exact.
    /// Otherwise it is an upper bound.
    pub(crate) exact: bool,
}

/// Returns the number of elements of one strided box.
pub(crate) fn box_volume(b: &[IndexSet]) -> i64 {
    b.iter().map(|s| set_len(s)).fold(1, i64::saturating_mul)
}

/// Returns the part of a strided box within a box, `None` if it is empty.
pub(crate) fn clip_box(b: &[IndexSet], within: &[Interval]) -> Option<StridedBox> {
    let mut out = StridedBox::with_capacity(b.len());
    for (set, v) in b.iter().zip(within) {
        let set = clip_set(set, *v);
        if set.is_empty() {
            return None;
        }
        out.push(set);
    }
    Some(out)
}

/// Returns the number of elements in the union of strided boxes.
pub(crate) fn union_volume(boxes: &[StridedBox]) -> ElementCount {
    work::count(boxes.len());
    if let [one] = boxes {
        return ElementCount { elements: box_volume(one), exact: true };
    }
    let mut list: Vec<&[IndexSet]> = boxes.iter().map(|b| &b[..]).collect();
    list.retain(|b| b.iter().all(|s| !s.is_empty()));
    list.sort_unstable();
    list.dedup();
    let dims: Vec<usize> = (0..list.first().map_or(0, |b| b.len())).collect();
    let mut measure = Measure { budget: MAX_CLASS_ENTRIES, exact: true };
    let elements = measure.union(list, &dims);
    ElementCount { elements, exact: measure.exact }
}

/// Returns the number of elements in the union of strided boxes that are outside of a box.
pub(crate) fn missing_volume(boxes: &[StridedBox], held: &[Interval]) -> ElementCount {
    let all = union_volume(boxes);
    let here: Vec<StridedBox> = boxes.iter().filter_map(|b| clip_box(b, held)).collect();
    let own = union_volume(&here);
    ElementCount { elements: (all.elements - own.elements).max(0), exact: all.exact && own.exact }
}

/// Returns a box as a strided box, `None` if it is empty.
pub(crate) fn strided(b: &[Interval]) -> Option<StridedBox> {
    let set = |v: &Interval| (v.0 < v.1).then(|| [Progression::interval(v.0, v.1)].into_iter().collect());
    b.iter().map(set).collect()
}

/// Appends a box for each combination of intervals of strided boxes.
pub(crate) fn expand_boxes(boxes: &[StridedBox], out: &mut Vec<Region>) {
    for b in boxes.iter().filter(|b| b.iter().all(|s| !s.is_empty())) {
        let mut list = vec![Region::with_capacity(b.len())];
        for set in b {
            let with = |r: &Region| {
                let r = r.clone();
                set.iter().flat_map(Progression::intervals).map(move |v| [&r[..], &[v]].concat())
            };
            list = list.iter().flat_map(with).collect();
        }
        out.extend(list);
    }
}

impl DimLayout {
    /// Returns the ranks that hold indices of a set.
    fn ranks_of(&self, set: &[Progression]) -> IndexSet {
        if self.sub_axes.is_empty() {
            return [Progression::interval(0, 1)].into_iter().collect();
        }
        let mut ranks: Vec<Interval> = Vec::new();
        let mut add = |lo: i64, hi: i64| ranks.push((self.owner(lo) as i64, self.owner(hi - 1) as i64 + 1));
        for p in set {
            // no block fits into a gap that is smaller
            if p.count == 1 || p.step - p.width < self.block {
                add(p.start, p.end());
            } else {
                p.intervals().for_each(|v| add(v.0, v.1));
            }
        }
        work::count(ranks.len());
        ranks.sort_unstable();
        merged(&ranks)
    }
}

impl Layout {
    /// Returns the ranks along each dimension that hold elements of a strided box.
    fn ranks_of_box(&self, b: &[IndexSet]) -> StridedBox {
        self.dims.iter().zip(b).map(|(l, set)| l.ranks_of(set)).collect()
    }
    /// Returns how many other devices hold elements of `boxes`.
    /// Each element that the device at `position` does not hold is taken from the nearest holder.
    pub(crate) fn num_other_holders(&self, position: usize, boxes: &[StridedBox]) -> usize {
        let ranks: Vec<StridedBox> = boxes.iter().map(|b| self.ranks_of_box(b)).collect();
        let own: Region = self.dims.iter().map(|d| d.rank(position) as i64).map(|r| (r, r + 1)).collect();
        missing_volume(&ranks, &own).elements as usize
    }
    /// Returns the other devices from which the device at `position` takes elements of `boxes`.
    pub(crate) fn other_holders(&self, position: usize, boxes: &[StridedBox]) -> BTreeSet<usize> {
        let ranks: BTreeSet<StridedBox> = boxes.iter().map(|b| self.ranks_of_box(b)).collect();
        let (mut cells, mut found) = (Vec::new(), BTreeSet::new());
        expand_boxes(&ranks.into_iter().collect::<Vec<_>>(), &mut cells);
        for cell in &cells {
            for_each_index(cell, |r| {
                let nearest = |p, (d, r): (&DimLayout, &i64)| d.nearest_position(p, *r as usize);
                found.insert(self.dims.iter().zip(r).fold(position, nearest));
            });
        }
        found.remove(&position);
        found
    }
}

/// A measurement, with the work that it may still do.
struct Measure {
    budget: i64,
    exact: bool,
}

impl Measure {
    /// Returns the number of elements of a union along the given dimensions.
    fn union(&mut self, boxes: Vec<&[IndexSet]>, dims: &[usize]) -> i64 {
        let of = |b: &[IndexSet]| dims.iter().map(|d| set_len(&b[*d])).fold(1, i64::saturating_mul);
        match boxes[..] {
            [] => return 0,
            [one] => return of(one),
            _ if dims.is_empty() => return 1,
            _ => {}
        }
        work::count(boxes.len());
        self.budget -= boxes.len() as i64;
        if self.budget < 0 {
            self.exact = false;
            let sum = boxes.iter().map(|b| of(b)).fold(0, i64::saturating_add);
            let around: Region = dims.iter().map(|d| hull_of(&boxes, *d)).collect();
            return sum.min(volume(&around));
        }
        for d in dims {
            let parts = separate(&boxes, *d);
            if parts.len() > 1 {
                return parts.into_iter().map(|p| self.union(p, dims)).fold(0, i64::saturating_add);
            }
        }
        let without = |d: usize| -> Vec<usize> { dims.iter().copied().filter(|e| *e != d).collect() };
        if let Some(d) = dims.iter().find(|d| boxes.iter().all(|b| b[**d] == boxes[0][**d])) {
            let rest = self.union(distinct(boxes.clone(), &without(*d)), &without(*d));
            return set_len(&boxes[0][*d]).saturating_mul(rest);
        }
        let length = |d: &&usize| boxes.iter().map(|b| b[**d].len()).sum::<usize>();
        let Some(d) = dims.iter().min_by_key(length).copied() else { return 1 };
        let (sets, rest) = (boxes.iter().map(|b| &b[d][..]).collect::<Vec<_>>(), without(d));
        let mut total = 0i64;
        for (active, weight) in self.classes(&sets) {
            let inside = active.iter().map(|k| boxes[*k as usize]).collect();
            let each = self.union(distinct(inside, &rest), &rest);
            total = total.saturating_add(weight.saturating_mul(each));
        }
        total
    }

    /// Returns the classes of indices that the same sets contain: the sets, and the number of
    /// indices.
    fn classes(&mut self, sets: &[&[Progression]]) -> Vec<(Vec<u32>, i64)> {
        let mut classes = HashMap::new();
        let mut ends: Vec<i64> =
            sets.iter().flat_map(|s| s.iter()).flat_map(|p| [p.start, p.period_end()]).collect();
        ends.sort_unstable();
        ends.dedup();
        // the progressions by start, so that those of a segment are found by a sweep
        let mut starts: Vec<(i64, u32, Progression)> = Vec::new();
        for (k, set) in sets.iter().enumerate() {
            starts.extend(set.iter().map(|p| (p.start, k as u32, *p)));
        }
        starts.sort_unstable();
        let (mut next, mut active) = (0, Vec::<(u32, Progression)>::new());
        for w in ends.windows(2) {
            active.retain(|a| a.1.period_end() > w[0]);
            while next < starts.len() && starts[next].0 <= w[0] {
                active.push((starts[next].1, starts[next].2));
                next += 1;
            }
            if active.is_empty() {
                continue;
            }
            self.segment(&active, (w[0], w[1]), &mut classes);
        }
        let mut list: Vec<(Vec<u32>, i64)> = classes.into_iter().collect();
        list.sort_unstable();
        list
    }

    /// Adds the classes of a segment, in which every active progression is periodic.
    fn segment(&mut self, active: &[(u32, Progression)], v: Interval, classes: &mut HashMap<Vec<u32>, i64>) {
        let period = active.iter().filter(|a| a.1.count > 1).try_fold(1i64, |l, a| lcm(l, a.1.step));
        let intervals = |len: i64| -> i64 {
            let of = |p: &Progression| if p.count == 1 { 1 } else { len / p.step + 2 };
            active.iter().map(|a| of(&a.1)).fold(0, i64::saturating_add)
        };
        let len = v.1 - v.0;
        let (once, times) = match period {
            Some(p) if len / p > 1 => (p, len / p),
            _ => (len, 1),
        };
        self.budget -= intervals(once);
        if intervals(once) > MAX_EXPANDED_INTERVALS || self.budget < 0 {
            // all of the segment counts as read by all
            self.exact = false;
            let mut all: Vec<u32> = active.iter().map(|a| a.0).collect();
            all.sort_unstable();
            all.dedup();
            *classes.entry(all).or_insert(0) += len;
            return;
        }
        sweep(active, (v.0, v.0 + once), times, classes);
        if once * times < len {
            sweep(active, (v.0 + once * times, v.1), 1, classes);
        }
    }
}

/// Adds the classes of a window, each of its indices counted `times` times.
fn sweep(active: &[(u32, Progression)], v: Interval, times: i64, classes: &mut HashMap<Vec<u32>, i64>) {
    let mut events: Vec<(i64, bool, u32)> = Vec::new();
    for (k, p) in active {
        let mut cut = IndexSet::new();
        p.clip(v, &mut cut);
        for (lo, hi) in cut.iter().flat_map(Progression::intervals) {
            events.extend([(lo, true, *k), (hi, false, *k)]);
        }
    }
    work::count(events.len());
    events.sort_unstable();
    let (mut inside, mut at) = (Vec::<u32>::new(), v.0);
    for (x, opens, k) in events {
        if x > at && !inside.is_empty() {
            match classes.get_mut(&inside) {
                Some(n) => *n += (x - at) * times,
                None => drop(classes.insert(inside.clone(), (x - at) * times)),
            }
        }
        at = x;
        match (inside.binary_search(&k), opens) {
            (Err(here), true) => inside.insert(here, k),
            (Ok(here), false) => drop(inside.remove(here)),
            _ => {}
        }
    }
}

/// Returns the least common multiple, `None` if it overflows.
fn lcm(a: i64, b: i64) -> Option<i64> {
    let gcd = crate::core::types::gcd(a as usize, b as usize) as i64;
    (a / gcd).checked_mul(b)
}

fn hull_of(boxes: &[&[IndexSet]], d: usize) -> Interval {
    let hulls = boxes.iter().map(|b| hull(&b[d]));
    hulls.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
}

/// Returns boxes without those that are equal to another along the given dimensions.
fn distinct<'a>(mut boxes: Vec<&'a [IndexSet]>, dims: &[usize]) -> Vec<&'a [IndexSet]> {
    let along = |b: &'a [IndexSet]| dims.iter().map(move |d| &b[*d]);
    boxes.sort_unstable_by(|a, b| along(a).cmp(along(b)));
    boxes.dedup_by(|a, b| along(a).eq(along(b)));
    boxes
}

/// Returns the groups of boxes that are connected along one dimension.
fn separate<'a>(boxes: &[&'a [IndexSet]], d: usize) -> Vec<Vec<&'a [IndexSet]>> {
    let mut order: Vec<(Interval, usize)> = boxes.iter().enumerate().map(|(k, b)| (hull(&b[d]), k)).collect();
    order.sort_unstable();
    let mut parts: Vec<Vec<&[IndexSet]>> = Vec::new();
    let mut end = i64::MIN;
    for (v, k) in order {
        if v.0 >= end {
            parts.push(Vec::new());
        }
        end = end.max(v.1);
        parts.last_mut().into_iter().for_each(|p| p.push(boxes[k]));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::progression::set_of_levels;
    use std::collections::BTreeSet;

    /// The measure of a union equals a count of its elements, for random strided boxes.
    #[test]
    fn unions_are_measured_as_counted() {
        let mut state = 12345u64;
        let mut random = move |n: i64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as i64 % n
        };
        for case in 0..1500 {
            let rank = 1 + random(3) as usize;
            let boxes: Vec<StridedBox> = (0..1 + random(6))
                .map(|_| {
                    let mut set = || {
                        let start = random(12);
                        let mut levels = [(1 + random(5), 1 + random(6)), (1 + random(9), 1 + random(4))];
                        set_of_levels(start, &mut levels, &mut true)
                    };
                    (0..rank).map(|_| set()).collect()
                })
                .collect();
            let mut counted = BTreeSet::new();
            let mut regions = Vec::new();
            expand_boxes(&boxes, &mut regions);
            for r in &regions {
                for_each_index(r, |i| {
                    counted.insert(i.to_vec());
                });
            }
            let found = union_volume(&boxes);
            assert_eq!((found.elements, found.exact), (counted.len() as i64, true), "case {case}: {boxes:?}");
        }
    }

    /// Sliding windows and rows take work proportional to their number.
    #[test]
    fn many_boxes_take_linear_work() {
        let one = |lo, hi| -> IndexSet { [Progression::interval(lo, hi)].into_iter().collect() };
        for shift in [2, 8] {
            let mut works = [0; 2];
            for (work, n) in works.iter_mut().zip([1000i64, 8000]) {
                let boxes: Vec<StridedBox> =
                    (0..n).map(|k| vec![one(shift * k, shift * k + 4), one(0, 64)]).collect();
                crate::partition::work::take_work();
                assert!(union_volume(&boxes).exact);
                *work = crate::partition::work::take_work();
            }
            assert!(works[1] < 10 * works[0], "{works:?}");
        }
    }
}
