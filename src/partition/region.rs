//! Boxes of indices: intersections, differences, and the boxes of linear ranges.

use crate::partition::layout::{DimLayout, Layout};

/// Indices from the first (included) to the second (not included).
pub type Interval = (i64, i64);
/// An interval for each dimension.
pub type Region = Vec<Interval>;

/// How many indices a box has; of loops that make more than can be counted, the greatest number.
pub fn volume(b: &[Interval]) -> i64 {
    b.iter().map(|i| (i.1 - i.0).max(0)).fold(1, i64::saturating_mul)
}
/// What two boxes share, if anything.
pub fn intersect(a: &[Interval], b: &[Interval]) -> Option<Region> {
    let r: Region = a.iter().zip(b).map(|(x, y)| (x.0.max(y.0), x.1.min(y.1))).collect();
    r.iter().all(|i| i.0 < i.1).then_some(r)
}
/// All indices of a shape.
pub fn full(shape: &[usize]) -> Region {
    shape.iter().map(|n| (0, *n as i64)).collect()
}
/// a − b as disjoint boxes.
pub fn minus(a: &[Interval], b: &[Interval], out: &mut Vec<Region>) {
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
/// What the wanted boxes have beyond those held, disjoint; it is held afterwards.
pub(crate) fn beyond(wanted: Vec<Region>, held: &mut Vec<Region>) -> Vec<Region> {
    let mut out: Vec<Region> = Vec::new();
    for w in wanted {
        if volume(&w) == 0 {
            continue;
        }
        let mut rest = vec![w];
        for h in held.iter() {
            let mut next = Vec::new();
            rest.iter().for_each(|r: &Region| minus(r, h, &mut next));
            rest = next;
        }
        held.extend(rest.iter().cloned());
        out.extend(rest);
    }
    out
}
/// Visits every index of a box, row-major.
pub fn each(b: &[Interval], mut visit: impl FnMut(&[i64])) {
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
/// The row-major position of an index within a box.
pub fn linear(index: &[i64], b: &[Interval]) -> usize {
    index.iter().zip(b).fold(0, |a, (x, v)| a * (v.1 - v.0) + x - v.0) as usize
}
/// The boxes of the linear range `[from, to)` of a row-major array.
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

/// The box of loops that a device runs.
pub fn loop_box(layout: &[DimLayout], extents: &[usize], position: usize) -> Region {
    layout.iter().zip(extents).map(|(l, n)| l.range(l.rank(position), *n)).collect()
}

impl Layout {
    /// The box that a device holds.
    pub fn region(&self, shape: &[usize], position: usize) -> Region {
        loop_box(&self.dims, shape, position)
    }
    /// The ranks, along each dimension, of what holds something of a box that is not empty.
    pub(crate) fn owners(&self, b: &[Interval]) -> Region {
        let of = |(v, d): (&Interval, &DimLayout)| (d.owner(v.0) as i64, d.owner(v.1 - 1) as i64 + 1);
        b.iter().zip(&self.dims).map(of).collect()
    }
    /// How many devices other than `position` hold what it needs of these boxes, where it takes each element from the nearest one.
    pub(crate) fn others(&self, position: usize, boxes: &[Region]) -> usize {
        let own = self.dims.iter().map(|d| d.rank(position) as i64).map(|r| (r, r + 1)).collect();
        let ranks = boxes.iter().filter(|b| volume(b) > 0).map(|b| self.owners(b)).collect();
        beyond(ranks, &mut vec![own]).iter().map(|r| volume(r) as usize).sum()
    }
    /// Splits a box by holder, `position`'s nearest ones; calls back with holder and piece.
    pub fn holders(
        &self,
        shape: &[usize],
        position: usize,
        b: &[Interval],
        mut found: impl FnMut(usize, Region),
    ) {
        if volume(b) == 0 {
            return;
        }
        each(&self.owners(b), |r| {
            let holder = self.dims.iter().zip(r).fold(position, |p, (d, r)| d.place(p, *r as usize));
            let held: Region =
                self.dims.iter().zip(r).zip(shape).map(|((d, r), n)| d.range(*r as usize, *n)).collect();
            if let Some(piece) = intersect(b, &held) {
                found(holder, piece);
            }
        });
    }
}
