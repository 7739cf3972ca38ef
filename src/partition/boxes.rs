//! Boxes of indices: intersection, difference, and the boxes that cover a linear range.

use crate::partition::layout::{DimLayout, Layout};

/// A half-open range of indices.
pub type Interval = (i64, i64);
/// A box: an interval for each dimension.
pub type Region = Vec<Interval>;

/// Returns the number of indices in a box, saturating at `i64::MAX`.
pub fn volume(b: &[Interval]) -> i64 {
    b.iter().map(|i| (i.1 - i.0).max(0)).fold(1, i64::saturating_mul)
}
/// Returns the intersection of two boxes, `None` if it is empty.
pub fn intersect(a: &[Interval], b: &[Interval]) -> Option<Region> {
    let r: Region = a.iter().zip(b).map(|(x, y)| (x.0.max(y.0), x.1.min(y.1))).collect();
    r.iter().all(|i| i.0 < i.1).then_some(r)
}
/// Returns the box of all indices of a shape.
pub fn full(shape: &[usize]) -> Region {
    shape.iter().map(|n| (0, *n as i64)).collect()
}
/// Appends a − b to `out`, as disjoint boxes.
pub fn subtract(a: &[Interval], b: &[Interval], out: &mut Vec<Region>) {
    let Some(c) = intersect(a, b) else { return out.push(a.to_vec()) };
    let mut rest = a.to_vec();
    for d in 0..a.len() {
        for cut in [(rest[d].0, c[d].0), (c[d].1, rest[d].1)] {
            if cut.0 < cut.1 {
                let mut piece = rest.clone();
                piece[d] = cut;
                out.push(piece);
            }
        }
        rest[d] = c[d];
    }
}
/// Returns disjoint boxes for everything in `wanted` that is not in `held`, and adds them to
/// `held`.
pub(crate) fn take_missing(requested: Vec<Region>, held: &mut Vec<Region>) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    for w in requested {
        if volume(&w) == 0 {
            continue;
        }
        let mut rest = vec![w];
        for h in held.iter() {
            let mut next = Vec::new();
            rest.iter().for_each(|r: &Region| subtract(r, h, &mut next));
            rest = next;
        }
        held.extend(rest.iter().cloned());
        out.extend(rest);
    }
    out
}
/// Calls `visit` with each index of a box, in row-major order.
pub fn for_each_index(b: &[Interval], mut visit: impl FnMut(&[i64])) {
    if volume(b) == 0 {
        return;
    }
    let mut i: Vec<i64> = b.iter().map(|v| v.0).collect();
    loop {
        visit(&i);
        let mut d = b.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            i[d] += 1;
            if i[d] < b[d].1 {
                break;
            }
            i[d] = b[d].0;
        }
    }
}
/// Returns the row-major offset of an index within a box.
pub fn linear_index(index: &[i64], b: &[Interval]) -> usize {
    index.iter().zip(b).fold(0, |a, (x, v)| a * (v.1 - v.0) + x - v.0) as usize
}
/// Returns the boxes of the linear range `[from, to)` of a row-major array.
pub fn range_boxes(shape: &[usize], from: i64, to: i64) -> Vec<Region> {
    if from >= to {
        return Vec::new();
    }
    let Some((_, inner)) = shape.split_first() else { return vec![Region::new()] };
    let row: i64 = inner.iter().map(|n| *n as i64).product();
    let (first, last) = ((from + row - 1).div_euclid(row), to / row);
    let within = |r: i64, a: i64, b: i64| {
        range_boxes(inner, a, b).into_iter().map(move |mut x| {
            x.insert(0, (r, r + 1));
            x
        })
    };
    if first > last {
        let r = from / row;
        return within(r, from - r * row, to - r * row).collect();
    }
    let mut out: Vec<Region> = Vec::new();
    if from < first * row {
        out.extend(within(first - 1, from - (first - 1) * row, row));
    }
    if first < last {
        let mut rows = full(inner);
        rows.insert(0, (first, last));
        out.push(rows);
    }
    if to > last * row {
        out.extend(within(last, 0, to - last * row));
    }
    out
}

/// Returns the box of loop indices that the device at `position` runs.
pub fn loop_box(layout: &[DimLayout], extents: &[usize], position: usize) -> Region {
    layout.iter().zip(extents).map(|(l, n)| l.range(l.rank(position), *n)).collect()
}

impl Layout {
    /// Returns the box that the device at `position` holds.
    pub fn region(&self, shape: &[usize], position: usize) -> Region {
        loop_box(&self.dims, shape, position)
    }
    /// Returns, for each dimension, the range of ranks that hold elements of a non-empty box.
    pub(crate) fn owner_ranks(&self, b: &[Interval]) -> Region {
        let of = |(v, d): (&Interval, &DimLayout)| (d.owner(v.0) as i64, d.owner(v.1 - 1) as i64 + 1);
        b.iter().zip(&self.dims).map(of).collect()
    }
    /// Splits a box by holder and calls `found` with each holder and its piece.
    /// Each element is assigned to the holder nearest to `position`.
    pub fn for_each_holder(
        &self,
        shape: &[usize],
        position: usize,
        b: &[Interval],
        mut found: impl FnMut(usize, Region),
    ) {
        if volume(b) == 0 {
            return;
        }
        for_each_index(&self.owner_ranks(b), |r| {
            let holder =
                self.dims.iter().zip(r).fold(position, |p, (d, r)| d.nearest_position(p, *r as usize));
            let held: Region =
                self.dims.iter().zip(r).zip(shape).map(|((d, r), n)| d.range(*r as usize, *n)).collect();
            if let Some(piece) = intersect(b, &held) {
                found(holder, piece);
            }
        });
    }
}
