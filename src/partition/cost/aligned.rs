//! Counts the elements that fetches move if all blocks are even, by comparing sub-axes.
//!
//! A *box* is a set of elements, given by equations: each equation sets a sub-axis of the elements'
//! indices equal to a sub-axis of the device's position. With even blocks, the elements that a
//! device holds form a box, and the elements that a consumer needs form another. The intersection
//! of two boxes is a box too. It is empty on devices where two equations give different values to
//! one index sub-axis. Union-find solves the equations. Inclusion-exclusion then gives the number
//! of elements in the union of the boxes, in time that depends only on the numbers of sub-axes and
//! of consumers (at most six).

use crate::core::{SubAxes, SubAxis, sharding::sub_axes::split_into_primes, util::small_sort};
use crate::partition::cost::consumer::FetchQuery;
use crate::partition::cost::factorize::{IndexFactor, factorize};
use std::collections::BTreeMap;

/// The maximum number of distinct consumers.
///
/// With more of them, the elements are counted by another method.
const MAX_DISTINCT_CONSUMERS: usize = 6;

/// A sub-axis of an index: the dimension, and its stride and size.
type IndexSubAxis = (usize, SubAxis);
/// A box: pairs of an index sub-axis and the sub-axis of the device position that it equals.
type AlignedBox = Vec<(IndexSubAxis, SubAxis)>;

/// The number of elements that a fetch moves.
pub(super) struct AlignedCount {
    /// The elements that all devices receive.
    /// `None` if it is not known.
    pub(super) total: Option<i64>,
    /// The elements that the busiest device receives.
    /// `None` if it is not known.
    pub(super) max: Option<i64>,
}

/// Counts a fetch by its sub-axes, `None` if they do not determine it.
pub(super) fn count_aligned(f: &FetchQuery) -> Option<AlignedCount> {
    let factorized = f.consumers.iter().map(|r| factorize(f.slot, f.stored, r, true));
    let mut factorized: Vec<Vec<IndexFactor>> = factorized.collect::<Option<_>>()?;
    let mut stored: Vec<SubAxes> = f.stored.layout.dims.iter().map(|l| l.sub_axes.clone()).collect();
    let needed = factorized.iter_mut().flatten().flat_map(IndexFactor::sub_axes_mut);
    split_into_primes(&mut needed.chain(&mut stored).collect::<Vec<_>>());
    let mut requested: Vec<AlignedBox> = Vec::new();
    for factors in &factorized {
        let mut own = AlignedBox::new();
        let (mut dim, mut step) = (usize::MAX, 1);
        // go from minor to major sub-axes
        for x in factors.iter().rev() {
            if x.dim != dim {
                (dim, step) = (x.dim, 1);
            }
            own.extend(index_sub_axes(dim, step, x.size as usize, &x.wanted));
            step *= x.size as usize;
        }
        small_sort::sort(&mut own);
        requested.push(own);
    }
    let dims = stored.iter().zip(&f.stored.shape[..]).enumerate();
    let held = |(dim, (split, n)): (usize, (&SubAxes, &usize))| index_sub_axes(dim, 1, *n, split);
    let mut held: AlignedBox = dims.flat_map(held).collect();
    small_sort::sort(&mut held);
    let all: Vec<&(IndexSubAxis, SubAxis)> = requested.iter().flatten().chain(&held).collect();
    let apart = |x: SubAxis, y: SubAxis| x == y || !x.overlaps(y);
    for (i, (place, sub_axis)) in all.iter().enumerate() {
        let others = all[..i].iter();
        if others.clone().any(|o| !apart(o.1, *sub_axis) || o.0.0 == place.0 && !apart(o.0.1, place.1)) {
            return None;
        }
    }
    // a consumer adds nothing if another one needs all of its elements
    small_sort::sort_by_key(&mut requested, Vec::len);
    let mut distinct: Vec<AlignedBox> = Vec::new();
    for own in requested {
        if !distinct.iter().any(|more| is_subset(&own, more)) {
            distinct.push(own);
        }
    }
    if distinct.len() > MAX_DISTINCT_CONSUMERS {
        return None;
    }
    let elements = f.stored.shape.iter().fold(1i128, |n, d| n.saturating_mul(*d as i128));
    let devices = f.devices as i128;
    let (mut total, mut everywhere) = (0i128, true);
    for subset in 1u32..1 << distinct.len() {
        let chosen = || distinct.iter().enumerate().filter(|(k, _)| subset >> k & 1 == 1).map(|(_, own)| own);
        let (both, own) = (intersection_ratios(chosen().chain([&held])), intersection_ratios(chosen()));
        let count = |(parts, ways): (i128, i128)| (devices / ways) * (elements / parts);
        let n = i128::from(f.num_partials).saturating_mul(count(own)) - count(both);
        total += if subset.count_ones() % 2 == 1 { n } else { -n };
        everywhere &= both.1 == 1;
    }
    let max = match distinct.len() {
        // all devices receive the same number
        _ if everywhere => Some(total / devices),
        // some device holds nothing that it needs
        1 => Some(i128::from(f.num_partials) * elements / intersection_ratios([&distinct[0]]).0),
        _ => None,
    };
    let max = max.map(|m| i64::try_from(m).unwrap_or(i64::MAX));
    Some(AlignedCount { total: i64::try_from(total).ok(), max })
}

/// Returns the index sub-axes that `digits` split, each paired with its element of `digits`, major
/// first.
///
/// The index ranges over `size` blocks of `step` elements.
fn index_sub_axes(dim: usize, step: usize, size: usize, sub_axes: &[SubAxis]) -> AlignedBox {
    let mut left = size;
    let one = |a: &SubAxis| {
        left /= a.size;
        ((dim, SubAxis { stride: step * left, size: a.size }), *a)
    };
    sub_axes.iter().map(one).collect()
}

/// Returns true if all elements of a box are in another one on every device.
fn is_subset(own: &AlignedBox, other: &AlignedBox) -> bool {
    other.iter().all(|x| own.binary_search(x).is_ok())
}

/// Returns the size of an intersection of boxes, as two reciprocals.
/// The first is that of the fraction of elements in it, the second that of the fraction of devices
/// on which it is not empty.
fn intersection_ratios<'a>(boxes: impl IntoIterator<Item = &'a AlignedBox>) -> (i128, i128) {
    let mut fixed: BTreeMap<IndexSubAxis, SubAxis> = BTreeMap::new();
    let mut equal: BTreeMap<SubAxis, SubAxis> = BTreeMap::new();
    let (mut parts, mut ways) = (1, 1);
    for (place, sub_axis) in boxes.into_iter().flatten() {
        let Some(first) = fixed.get(place) else {
            fixed.insert(*place, *sub_axis);
            parts *= sub_axis.size as i128;
            continue;
        };
        let root = |mut a: SubAxis| {
            while let Some(b) = equal.get(&a) {
                a = *b;
            }
            a
        };
        let (a, b) = (root(*first), root(*sub_axis));
        if a != b {
            equal.insert(a, b);
            ways *= a.size as i128;
        }
    }
    (parts, ways)
}
