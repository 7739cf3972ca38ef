//! Computes how many elements a fetch moves, in time that does not depend on the number of devices.
//!
//! Three methods are tried in order. *Aligned* (`aligned`): if all blocks are even, the count
//! follows from a comparison of the sub-axes of held and needed blocks. *Linear* (`linear`): if
//! every end of an interval is linear in one device coordinate, the count is a piecewise
//! polynomial, and a few devices of each piece determine it. *Irregular*: the combinations of
//! relevant sub-axes are enumerated, or sampled if there are too many.

use crate::core::sharding::sub_axes::{num_shards, overlap};
use crate::core::{SubAxes, util::small_sort};
use crate::partition::cost::aligned::{AlignedCount, count_aligned};
use crate::partition::cost::linear::{DeviceCoordinate, linear_ends};
use crate::partition::strided_box::{ElementCount, StridedBox, missing_volume, union_volume};
use crate::partition::{access::access_sets, boxes::loop_box, cost::consumer::FetchQuery, layout::DimLayout};

/// The cost of a fetch, in elements received.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub(crate) struct TransferCost {
    /// The elements that the busiest device receives.
    pub(crate) max: i64,
    /// The elements that all devices receive together.
    pub(crate) total: i64,
    /// True if both figures are exact.
    pub(crate) exact: bool,
}

/// The maximum number of combinations of irregular sub-axes that are evaluated.
pub(crate) const MAX_SAMPLED_COMBINATIONS: usize = 512;

/// The maximum number of pieces that are counted by the linear method where the combinations of
/// sub-axes are few enough to be evaluated.
const MAX_LINEAR_PIECES: usize = 8;
/// The maximum number of pieces that are counted by the linear method.
const MAX_DISTRIBUTED_PIECES: usize = 128;

impl FetchQuery<'_> {
    /// Returns the cost of the fetch.
    /// At most `most` combinations of irregular sub-axes are evaluated.
    pub(crate) fn cost(&self, most: usize) -> TransferCost {
        let c = self.symbolic(most);
        #[cfg(test)]
        if c.exact && crate::partition::tests::verifies() {
            let each: Vec<i64> = (0..self.devices).map(|d| self.elements_received(d).elements).collect();
            let max = each.iter().copied().max().unwrap_or(0);
            let (stored, readers) = (self.stored, self.consumers);
            assert_eq!((c.max, c.total), (max, each.iter().sum()), "{stored:?}\n{readers:?}");
        }
        c
    }
    /// Returns the elements that all devices receive, and whether that is exact.
    /// This is known more often than the maximum.
    pub(crate) fn total(&self, most: usize) -> (i64, bool) {
        match count_aligned(self) {
            Some(AlignedCount { total: Some(total), .. }) => {
                #[cfg(test)]
                if crate::partition::tests::verifies() {
                    let sum: i64 = (0..self.devices).map(|d| self.elements_received(d).elements).sum();
                    assert_eq!(total, sum, "{:?}\n{:?}", self.stored, self.consumers);
                }
                (total, true)
            }
            _ => {
                let c = self.cost(most);
                (c.total, c.exact)
            }
        }
    }

    /// Computes the cost without enumerating devices where possible.
    fn symbolic(&self, most: usize) -> TransferCost {
        let FetchQuery { devices, stored, consumers: readers, .. } = *self;
        let counted = count_aligned(self);
        if let Some(AlignedCount { total, max: Some(max) }) = counted {
            return TransferCost { max, total: total.unwrap_or(i64::MAX), exact: total.is_some() };
        }
        let mut lists: Vec<SubAxes> = Vec::new();
        for l in stored.layout.dims.iter().chain(readers.iter().flat_map(|r| r.layout)) {
            if !l.sub_axes.is_empty() && !lists.contains(&l.sub_axes) {
                lists.push(l.sub_axes.clone());
            }
        }
        let clean = lists.iter().enumerate().all(|(i, a)| lists[..i].iter().all(|b| !overlap(a, b)));
        // the pieces of the count grow with the square of the pieces that are read
        let pieces: usize = readers.iter().map(|r| r.nest.accesses[r.access].pieces.len()).sum();
        let combinations = lists.iter().map(|l| num_shards(l)).fold(1, usize::saturating_mul);
        let few = pieces <= MAX_LINEAR_PIECES || pieces <= MAX_DISTRIBUTED_PIECES && combinations > most;
        if clean
            && few
            && let Some(vars) = linear_ends(self.slot, stored, readers, &lists)
        {
            let mut c = TransferCost { exact: true, ..TransferCost::default() };
            // the last coordinate may have an interior maximum, the others only if that is not exact
            let mut vars = vars;
            small_sort::sort_by_key(&mut vars, |v| v.degree);
            let spare = devices / lists.iter().map(|l| num_shards(l)).product::<usize>().max(1);
            c.total = (spare as i64).saturating_mul(sum_polynomial(
                &vars,
                0,
                &|d| self.elements_received(d),
                &mut c,
            ));
            c.exact |= c.total == 0;
            return c;
        }
        let mut sub_axis_list: SubAxes = lists.into_iter().flatten().collect();
        small_sort::sort(&mut sub_axis_list);
        sub_axis_list.dedup();
        let apart =
            sub_axis_list.iter().enumerate().all(|(i, a)| sub_axis_list[..i].iter().all(|b| !a.overlaps(*b)));
        let all = DimLayout { sub_axes: sub_axis_list, block: 1, origin: 0 };
        let n = if apart { all.num_shards() } else { devices };
        let sample = n.min(most);
        let mut c = TransferCost { exact: sample == n, ..TransferCost::default() };
        for k in 0..sample {
            let r = k * n / sample;
            let x = self.elements_received(if apart { all.nearest_position(0, r) } else { r });
            c.max = c.max.max(x.elements);
            c.total = c.total.saturating_add(x.elements);
            c.exact &= x.exact;
        }
        let total = i128::from(c.total) * devices as i128 / sample.max(1) as i128;
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        c.total = counted.and_then(|c| c.total).unwrap_or(total);
        c
    }

    /// Returns the strided boxes that the consumers read on a device.
    ///
    /// They may overlap. The flag is false if they have elements that are not read.
    pub(crate) fn requested(&self, device: usize) -> (Vec<StridedBox>, bool) {
        let (mut requested, mut exact) = (Vec::new(), true);
        for r in self.consumers {
            let loops = loop_box(r.layout, &r.nest.extents, device);
            let of = (self.slot, &self.stored.shape[..]);
            access_sets(r.nest, r.access, of, &loops, &mut requested, &mut exact);
        }
        (requested, exact)
    }
    /// Returns the number of elements that a device receives.
    fn elements_received(&self, device: usize) -> ElementCount {
        let FetchQuery { stored, num_partials: copies, .. } = *self;
        let (requested, mut exact) = self.requested(device);
        let mut count = missing_volume(&requested, &stored.layout.region(&stored.shape, device));
        if copies > 1 {
            let all = union_volume(&requested);
            count.elements = count.elements.saturating_add(all.elements.saturating_mul(copies - 1));
            exact &= all.exact;
        }
        ElementCount { exact: exact && count.exact, ..count }
    }
}

/// Returns the sum over all coordinates of a piecewise polynomial, by forward differences.
fn sum_polynomial(
    vars: &[DeviceCoordinate],
    device: usize,
    f: &dyn Fn(usize) -> ElementCount,
    c: &mut TransferCost,
) -> i64 {
    let Some((v, rest)) = vars.split_first() else {
        let x = f(device);
        c.max = c.max.max(x.elements);
        c.exact &= x.exact;
        return x.elements;
    };
    let mut total = 0i64;
    for w in v.nodes.windows(2) {
        let m = w[1] - w[0];
        let mut at = |r: i64| sum_polynomial(rest, v.layout.nearest_position(device, r as usize), f, c);
        let mut d: Vec<i64> = (0..m.min(v.degree + 1)).map(|k| at(w[0] + k)).collect();
        if m > v.degree + 1 {
            // the maximum of a linear piece is at either end
            at(w[1] - 1);
            if v.degree > 1 && rest.is_empty() {
                c.max = c.max.max(polynomial_max(&d, m));
            } else if v.degree > 1 {
                c.exact = false;
            }
        }
        let mut binomial = 1i128;
        for k in 0..d.len() as i64 {
            binomial = binomial * i128::from(m - k) / i128::from(k + 1);
            let term = binomial.saturating_mul(i128::from(d[0]));
            total = total.saturating_add(term.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64);
            d = d.windows(2).map(|p| p[1] - p[0]).collect();
        }
    }
    total
}

/// Returns the maximum at 0, 1, .. `n` − 1 of the polynomial with these values at 0, 1, ..
fn polynomial_max(values: &[i64], n: i64) -> i64 {
    // the forward differences at 0, of each order
    let mut differences: Vec<i128> = Vec::new();
    let mut row: Vec<i128> = values.iter().map(|x| i128::from(*x)).collect();
    while let Some(first) = row.first() {
        differences.push(*first);
        row = row.windows(2).map(|p| p[1] - p[0]).collect();
    }
    let ends = [0, n - 1];
    let at = ends.into_iter().chain(turning_points(&differences, n)).filter(|r| (0..n).contains(r));
    let most = at.map(|r| polynomial_at(&differences, r)).max().unwrap_or(0);
    most.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

/// Returns the value at `r` of the polynomial with these forward differences at 0.
fn polynomial_at(differences: &[i128], r: i64) -> i128 {
    let (mut value, mut binomial) = (0i128, 1i128);
    for (k, d) in differences.iter().enumerate() {
        value = value.saturating_add(binomial.saturating_mul(*d));
        binomial = binomial.saturating_mul(i128::from(r) - k as i128) / (k as i128 + 1);
    }
    value
}

/// Returns the points in 0, 1, .. `n` − 1 at which the polynomial with these forward differences
/// stops to rise or to fall.
fn turning_points(differences: &[i128], n: i64) -> Vec<i64> {
    if differences.len() < 3 {
        return Vec::new();
    }
    // between the points where the slope turns, it is monotone and has at most one zero
    let slope = &differences[1..];
    let mut bounds = vec![0];
    bounds.extend(turning_points(slope, n - 1));
    bounds.push(n - 1);
    let rises = |r: i64| polynomial_at(slope, r) > 0;
    let zero = |w: &[i64]| {
        let (mut low, mut high) = (w[0], w[1]);
        if rises(low) == rises(high) {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            *if rises(middle) == rises(low) { &mut low } else { &mut high } = middle;
        }
        Some(high)
    };
    bounds.windows(2).filter_map(zero).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::sharding::sub_axes::SubAxis;

    /// Returns a coordinate of this stride and pieces.
    fn coordinate(stride: usize, nodes: &[i64], degree: i64) -> DeviceCoordinate {
        let size = *nodes.last().unwrap() as usize;
        let sub_axes = SubAxes::from_iter([SubAxis { stride, size }]);
        DeviceCoordinate {
            layout: DimLayout { sub_axes, block: 1, origin: 0 },
            nodes: nodes.to_vec(),
            degree,
        }
    }
    fn cost_of(vars: &[DeviceCoordinate], f: &dyn Fn(usize) -> i64) -> TransferCost {
        let mut c = TransferCost { exact: true, ..TransferCost::default() };
        let count = |d: usize| ElementCount { elements: f(d), exact: true };
        c.total = sum_polynomial(vars, 0, &count, &mut c);
        c
    }

    #[test]
    fn an_interior_maximum_is_found() {
        let n = 1000;
        let f = |d: usize| (d * (n - 1 - d)) as i64;
        let c = cost_of(&[coordinate(1, &[0, n as i64], 2)], &f);
        assert_eq!((c.max, c.total), (f(499), (0..n).map(f).sum::<i64>()));
        assert!(c.exact);
        // of two coordinates, the last may have one
        let g = |d: usize| f(d % n) * (1 + (d / n) as i64);
        let two = |degrees: [i64; 2]| {
            cost_of(&[coordinate(n, &[0, 7], degrees[0]), coordinate(1, &[0, n as i64], degrees[1])], &g)
        };
        let c = two([1, 2]);
        assert_eq!((c.max, c.exact), (7 * f(499), true));
        assert!(!two([2, 2]).exact, "the maximum of two such coordinates is not certain");
    }

    /// The law: the maximum of any polynomial up to degree 4 is that of all its values.
    #[test]
    fn a_maximum_is_that_of_all_values() {
        let mut seed = 36u64;
        let mut next = |n: i64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as i64 % (2 * n + 1) - n
        };
        for _ in 0..4000 {
            let degree = 1 + next(2).unsigned_abs() as usize + next(1).unsigned_abs() as usize;
            let zeros: Vec<i64> = (0..degree).map(|_| 20 + next(40)).collect();
            let (scale, n) = (next(5), 3 + degree as i64 + next(2).abs() * 15);
            let p = |r: i64| zeros.iter().fold(scale, |y, z| y * (r - z));
            let values: Vec<i64> = (0..=degree as i64).map(p).collect();
            let all = (0..n).map(p).max().unwrap();
            assert_eq!(polynomial_max(&values, n), all, "{scale} · Π(r − {zeros:?}) for {n} values");
        }
    }
}
