//! The strided boxes that a reshape reads.
//!
//! Both shapes are cut into groups of dimensions with equal products. Within a group, if one shape
//! of factors refines both, an interval of a dimension is a few boxes of factors, and a box of
//! factors is a strided box of either shape. Otherwise the elements are progressions of the group's
//! linear index, which are cut at the rows of the shape that is read.

use crate::core::util::small_sort;
use crate::partition::boxes::{Interval, Region, range_boxes};
use crate::partition::progression::{IndexSet, Progression, clip_set, hull, set_of_levels};
use crate::partition::{strided_box::StridedBox, work};
use std::ops::Range;

/// The maximum number of boxes of factors in one group.
const MAX_FACTOR_BOXES: usize = 64;
/// The maximum number of rows into which a group without common factors is cut.
/// If there are more, the boxes around all of them are read.
const MAX_ROWS: i64 = 1 << 16;

/// Appends the strided boxes that a reshape from `from` to `to` reads for box `b` of the result.
///
/// They have the same linear indices as `b`. `exact` becomes false if they have more elements.
pub(crate) fn reshape_boxes(
    to: &[usize],
    from: &[usize],
    b: &[Interval],
    out: &mut Vec<StridedBox>,
    exact: &mut bool,
) {
    let mut list = vec![StridedBox::with_capacity(from.len())];
    for (i, j) in groups(to, from) {
        let parts = group_boxes(&to[i.clone()], &from[j], &b[i], exact);
        list = list.iter().flat_map(|x| parts.iter().map(move |y| [&x[..], y].concat())).collect();
        work::count(list.len());
    }
    out.extend(list);
}

/// Returns the groups of dimensions of two shapes that have equal products.
fn groups(to: &[usize], from: &[usize]) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut groups, mut i, mut j) = (Vec::new(), 0, 0);
    while i < to.len() || j < from.len() {
        let (i0, j0, mut a, mut b) = (i, j, 1usize, 1usize);
        while a != b || (i, j) == (i0, j0) {
            match (to.get(i), from.get(j)) {
                (Some(n), _) if a <= b || j == from.len() => (a, i) = (a.saturating_mul(*n), i + 1),
                (_, Some(n)) => (b, j) = (b.saturating_mul(*n), j + 1),
                _ => break,
            }
        }
        groups.push((i0..i, j0..j));
    }
    groups
}

fn whole(n: usize) -> IndexSet {
    [Progression::interval(0, n as i64)].into_iter().collect()
}

/// Returns the boxes of one group.
fn group_boxes(to: &[usize], from: &[usize], b: &[Interval], exact: &mut bool) -> Vec<StridedBox> {
    if b.iter().zip(to).all(|(v, n)| *v == (0, *n as i64)) {
        return vec![from.iter().map(|n| whole(*n)).collect()];
    }
    if let ([v], [_]) = (b, from) {
        return vec![vec![[Progression::interval(v.0, v.1)].into_iter().collect()]];
    }
    factor_boxes(to, from, b).unwrap_or_else(|| row_boxes(to, from, b, exact))
}

/// Returns the sizes of a shape's factors, one list for each dimension.
/// Dimensions of size 1 have none.
fn factors_of(shape: &[usize], factors: &[usize]) -> Vec<Vec<usize>> {
    let mut factors = factors.iter();
    let mut of = |n: &usize| {
        let (mut left, mut own) = (*n, Vec::new());
        while left > 1 {
            let Some(f) = factors.next() else { break };
            left /= f;
            own.push(*f);
        }
        own
    };
    shape.iter().map(&mut of).collect()
}

/// Returns the common refinement of two shapes with equal element counts, major to minor.
///
/// `None` if a factor of one shape does not divide a factor of the other.
pub(crate) fn common_refinement(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let cuts = |s: &[usize]| -> Vec<usize> {
        s.iter()
            .scan(1, |p, n| {
                *p *= n;
                Some(*p)
            })
            .collect()
    };
    let mut all: Vec<usize> = cuts(a).into_iter().chain(cuts(b)).collect();
    small_sort::sort(&mut all);
    all.dedup();
    let mut before = 1;
    all.iter()
        .map(|c| {
            let f = (before != 0 && c.is_multiple_of(before)).then(|| c / before);
            before = *c;
            f
        })
        .collect()
}

/// Returns the boxes of a group by the factors of both shapes, `None` if there are no common ones.
fn factor_boxes(to: &[usize], from: &[usize], b: &[Interval]) -> Option<Vec<StridedBox>> {
    let large = |shape: &[usize]| -> Vec<usize> { shape.iter().copied().filter(|n| *n > 1).collect() };
    let factors = common_refinement(&large(from), &large(to))?;
    let mut boxes: Vec<Region> = vec![Region::new()];
    for (sizes, v) in factors_of(to, &factors).iter().zip(b) {
        if sizes.is_empty() {
            continue;
        }
        let own = range_boxes(sizes, v.0, v.1);
        boxes = boxes.iter().flat_map(|x| own.iter().map(move |y| [&x[..], y].concat())).collect();
        if boxes.len() > MAX_FACTOR_BOXES {
            return None;
        }
    }
    let dims = factors_of(from, &factors);
    let strided = |x: &Region| -> StridedBox {
        let mut x = x.iter();
        let mut set = |sizes: &Vec<usize>| {
            let mut step: i64 = sizes.iter().map(|n| *n as i64).product();
            let (mut start, mut levels) = (0, Vec::with_capacity(sizes.len()));
            for (n, v) in sizes.iter().zip(x.by_ref()) {
                step /= *n as i64;
                start += step * v.0;
                levels.push((step, v.1 - v.0));
            }
            // the factors of a dimension are digits, so the set is exact
            set_of_levels(start, &mut levels, &mut true)
        };
        dims.iter().map(&mut set).collect()
    };
    Some(boxes.iter().map(strided).collect())
}

/// Returns the boxes of a group by its linear indices.
fn row_boxes(to: &[usize], from: &[usize], b: &[Interval], exact: &mut bool) -> Vec<StridedBox> {
    let (mut start, mut step, mut levels) = (0, 1, Vec::with_capacity(to.len()));
    for (n, v) in to.iter().zip(b).rev() {
        start += step * v.0;
        levels.push((step, v.1 - v.0));
        step *= *n as i64;
    }
    let set = set_of_levels(start, &mut levels, exact);
    let Some((last, outer)) = from.split_last() else { return vec![StridedBox::new()] };
    let (row, around) = (*last as i64, hull(&set));
    let rows = (around.0 / row, (around.1 - 1) / row + 1);
    let single = |r: Region| -> StridedBox {
        r.into_iter().map(|v| [Progression::interval(v.0, v.1)].into_iter().collect()).collect()
    };
    let runs = set.iter().map(|p| p.count).fold(0, i64::saturating_add);
    let by_row = (rows.1 - rows.0).saturating_mul(set.len() as i64);
    if runs.min(by_row) > MAX_ROWS {
        *exact = false;
        return range_boxes(from, around.0, around.1).into_iter().map(single).collect();
    }
    work::count(runs.min(by_row) as usize);
    if runs <= by_row {
        let all = set.iter().flat_map(Progression::intervals);
        return all.flat_map(|v| range_boxes(from, v.0, v.1)).map(single).collect();
    }
    // neighbouring rows of which the same elements are read form one box
    let mut found: Vec<(Interval, IndexSet)> = Vec::new();
    for r in rows.0..rows.1 {
        let mut own = clip_set(&set, (r * row, (r + 1) * row));
        own.iter_mut().for_each(|p| p.start -= r * row);
        match found.last_mut() {
            _ if own.is_empty() => {}
            Some((v, set)) if v.1 == r && *set == own => v.1 = r + 1,
            _ => found.push(((r, r + 1), own)),
        }
    }
    let of = |(v, set): (Interval, IndexSet)| {
        range_boxes(outer, v.0, v.1)
            .into_iter()
            .map(move |x| [&single(x)[..], std::slice::from_ref(&set)].concat())
    };
    found.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::boxes::{for_each_index, full, linear_index, volume};
    use crate::partition::strided_box::{expand_boxes, union_volume};
    use std::collections::BTreeSet;

    fn linear(shape: &[usize], list: &[Region]) -> Vec<usize> {
        let all = full(shape);
        let mut found = Vec::new();
        list.iter().for_each(|r| for_each_index(r, |i| found.push(linear_index(i, &all))));
        found
    }

    /// All boxes of reshapes among shapes of 24, 36 and 60 elements read the same linear indices.
    #[test]
    fn reshapes_read_the_same_elements() {
        let shapes: [&[&[usize]]; 3] = [
            &[&[24], &[4, 6], &[6, 4], &[2, 3, 4], &[8, 3], &[3, 1, 8], &[1, 24], &[2, 2, 2, 3], &[12, 2, 1]],
            &[&[36], &[4, 9], &[6, 6], &[3, 3, 4], &[12, 3], &[2, 18]],
            &[&[60], &[4, 15], &[5, 3, 4], &[6, 10], &[10, 1, 6]],
        ];
        for family in shapes {
            for (to, from) in family.iter().flat_map(|to| family.iter().map(move |from| (*to, *from))) {
                let cuts = |n: &usize| -> Vec<Interval> {
                    let n = *n as i64;
                    let mut cuts = vec![(0, n), (0, (n + 1) / 2), (n / 2, n), (n / 3, n - n / 3)];
                    cuts.retain(|v| v.0 < v.1);
                    cuts
                };
                let mut boxes: Vec<Region> = vec![Region::new()];
                for n in to {
                    let own = cuts(n);
                    boxes = boxes
                        .iter()
                        .flat_map(|b| own.iter().map(move |v| [&b[..], &[*v]].concat()))
                        .collect();
                }
                for b in boxes {
                    let (mut found, mut exact) = (Vec::new(), true);
                    reshape_boxes(to, from, &b, &mut found, &mut exact);
                    let mut regions = Vec::new();
                    expand_boxes(&found, &mut regions);
                    let (read, wanted) = (linear(from, &regions), linear(to, std::slice::from_ref(&b)));
                    assert!(exact && read.len() == wanted.len(), "{to:?} of {from:?}, {b:?}: {found:?}");
                    let [read, wanted] = [read, wanted].map(BTreeSet::from_iter);
                    assert_eq!(read, wanted, "{to:?} of {from:?}, {b:?}: {found:?}");
                    assert_eq!(union_volume(&found).elements, volume(&b));
                }
            }
        }
    }

    /// A split of the last dimension reads one strided box, whatever the number of rows.
    #[test]
    fn a_split_of_the_last_dimension_is_one_box() {
        for rows in [4, 4096] {
            let (to, from) = ([rows, 16, 16, 16], [rows, 2, 8, 16, 16]);
            let b = vec![(0, rows as i64 / 2), (0, 16), (0, 16), (8, 16)];
            let mut found = Vec::new();
            reshape_boxes(&to, &from, &b, &mut found, &mut true);
            assert_eq!(found.len(), 1);
        }
        let mut found = Vec::new();
        reshape_boxes(&[1 << 20, 3], &[3, 1 << 20], &[(0, 1 << 20), (1, 2)], &mut found, &mut true);
        assert_eq!(found.len(), 3);
    }
}
