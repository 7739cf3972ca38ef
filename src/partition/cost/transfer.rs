//! Computes how many elements a fetch moves, in time that does not depend on the number of devices.
//!
//! Three methods are tried in order. *Aligned* (`aligned`): if all blocks are even, the count
//! follows from a comparison of the sub-axes of held and needed blocks. *Linear* (`linear`): if
//! every end of an interval is linear in one device coordinate, the count is a piecewise
//! polynomial, and a few devices of each piece determine it. *Irregular*: the combinations of
//! relevant sub-axes are enumerated, or sampled if there are too many.

use crate::core::sharding::sub_axes::{SubAxes, num_shards, overlap};
use crate::core::util::small_sort;
use crate::partition::access::access_boxes;
use crate::partition::boxes::{loop_box, take_missing, volume};
use crate::partition::cost::aligned::{AlignedCount, count_aligned};
use crate::partition::cost::consumer::FetchQuery;
use crate::partition::cost::linear::{DeviceCoordinate, linear_ends};
use crate::partition::layout::DimLayout;

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

impl FetchQuery<'_> {
    /// Returns the cost of the fetch.
    /// At most `most` combinations of irregular sub-axes are evaluated.
    pub(crate) fn cost(&self, most: usize) -> TransferCost {
        let c = self.symbolic(most);
        #[cfg(test)]
        if c.exact && crate::partition::tests::verifies() {
            let each: Vec<i64> = (0..self.devices).map(|d| self.elements_received(d)).collect();
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
                    let sum: i64 = (0..self.devices).map(|d| self.elements_received(d)).sum();
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
        if clean && let Some(vars) = linear_ends(self.slot, stored, readers, &lists) {
            let mut c = TransferCost { exact: true, ..TransferCost::default() };
            let spare = devices / lists.iter().map(|l| num_shards(l)).product::<usize>().max(1);
            c.total = (spare as i64).saturating_mul(sum_polynomial(
                &vars,
                0,
                &|d| self.elements_received(d),
                &mut c,
            ));
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
            c.max = c.max.max(x);
            c.total = c.total.saturating_add(x);
        }
        let total = i128::from(c.total) * devices as i128 / sample.max(1) as i128;
        let total = i64::try_from(total).unwrap_or(i64::MAX);
        c.total = counted.and_then(|c| c.total).unwrap_or(total);
        c
    }

    /// Returns the number of elements that a device receives.
    fn elements_received(&self, device: usize) -> i64 {
        let FetchQuery { slot, stored, consumers: readers, num_partials: copies, .. } = *self;
        let mut requested = Vec::new();
        for r in readers {
            let loops = loop_box(r.layout, &r.nest.extents, device);
            access_boxes(r.nest, r.access, slot, &stored.shape, &loops, &mut requested);
        }
        let others = if copies > 1 {
            (copies - 1)
                * take_missing(requested.clone(), &mut Vec::new()).iter().map(|b| volume(b)).sum::<i64>()
        } else {
            0
        };
        let mut held = vec![stored.layout.region(&stored.shape, device)];
        others + take_missing(requested, &mut held).iter().map(|b| volume(b)).sum::<i64>()
    }
}

/// Returns the sum over all coordinates of a piecewise polynomial, by forward differences.
fn sum_polynomial(
    vars: &[DeviceCoordinate],
    device: usize,
    f: &dyn Fn(usize) -> i64,
    c: &mut TransferCost,
) -> i64 {
    let Some((v, rest)) = vars.split_first() else {
        let x = f(device);
        c.max = c.max.max(x);
        return x;
    };
    let mut total = 0i64;
    for w in v.nodes.windows(2) {
        let m = w[1] - w[0];
        let mut at = |r: i64| sum_polynomial(rest, v.layout.nearest_position(device, r as usize), f, c);
        let mut d: Vec<i64> = (0..m.min(v.degree + 1)).map(|k| at(w[0] + k)).collect();
        if m > v.degree + 1 {
            // the maximum may be at either end of a piece
            at(w[1] - 1);
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
