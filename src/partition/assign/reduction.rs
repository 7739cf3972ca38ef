//! Reductions of partial values: how partial values are combined, and how many bytes that moves.

use crate::core::sharding::sub_axes::{num_shards, subtract};
use crate::core::{SubAxes, SubAxis, types::gcd, util::small_sort};
use crate::partition::cost::consumer::{Consumer, FetchQuery};
use crate::partition::draft::{self, Draft};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::{collective::CollectiveKind, cost::cache, program::StoredValue, tree_reduce};
use std::cmp::Reverse;

/// Returns the bytes that all devices receive to combine a partial value into this layout, each by
/// its price relative to the slowest mesh axis.
///
/// Also returns the intermediate layout if it is better to reduce-scatter first and to fetch from
/// there. The best way minimises the sum of the busiest device's bytes and the average over
/// devices: a device that adds everything delays all others, and the messages of an all-to-all
/// congest the network.
pub(super) fn reduction_plan(d: &Draft, from: &StoredValue, to: &Layout) -> (f64, Option<Layout>) {
    let mut key = vec![from.dtype.size() as i64];
    cache::write_sizes(&mut key, &from.shape);
    for l in [&from.layout, to] {
        cache::write_layouts(&mut key, &l.dims);
        // addition and comparison move the same data, but equal partial values do not, so the
        // reducer is part of the key
        key.push(l.partial.as_ref().map_or(-1, |p| p.0 as i64));
        cache::write_sub_axes(&mut key, l.partial.as_ref().map_or(&[], |p| &p.1[..]));
    }
    d.costs.reduction_plan(key, || cheapest_reduction(d, from, to))
}

fn cheapest_reduction(d: &Draft, from: &StoredValue, to: &Layout) -> (f64, Option<Layout>) {
    let bytes = from.dtype.size() as f64;
    let stay = to.partial.clone().map(|p| p.1).unwrap_or_default();
    let partials = from.layout.partial.clone().map(|p| p.1).unwrap_or_default();
    let gone = subtract(&partials, &stay).unwrap_or(partials);
    // if all partial values are equal, each device uses its own
    let same = from.layout.has_equal_partials();
    let copies = if same { 1 } else { num_shards(&gone) as i64 };
    let s = draft::copy_nest(0, from.dtype, &from.shape);
    let to_reader = Consumer { nest: &s, access: 0, layout: &to.dims };
    let sums = |kind| d.per_byte.weight(kind, &gone);
    let cost = |from: &StoredValue, reader: &Consumer, copies: i64, weight: f64| {
        let fetch = FetchQuery {
            devices: d.devices,
            slot: 0,
            stored: from,
            consumers: &[*reader],
            num_partials: copies,
        };
        let cost = d.costs.transfer_cost(&fetch);
        [cost.total as f64 * weight, cost.max as f64 * weight]
    };
    let weight = |[total, busiest]: [f64; 2]| total / d.devices as f64 + busiest;
    let direct = match tree_reduce::tree_cost(d.devices, from, to) {
        Some(cost) => [cost.total, cost.max].map(|n| n as f64 * sums(CollectiveKind::AllReduce)),
        None => cost(from, &to_reader, copies, sums(CollectiveKind::AllGather)),
    };
    let mut best = (direct, None);
    let ways_there = if same { Vec::new() } else { scatter_layouts(from, to, &gone) };
    for dims in ways_there {
        let mid = Layout { dims, partial: to.partial.clone() };
        let there = StoredValue { layout: mid.clone(), ..from.clone() };
        let to_mid = Consumer { layout: &mid.dims, ..to_reader };
        let scatter = cost(from, &to_mid, copies, sums(CollectiveKind::ReduceScatter));
        let fetch = cost(&there, &to_reader, 1, d.per_byte.fetch_weight(0, &there, &[to_reader]));
        let both = [scatter[0] + fetch[0], scatter[1] + fetch[1]];
        // ties go to the plan with fewer steps
        if weight(both) * (1.0 + 1e-9) < weight(best.0) - 1.0 / d.devices as f64 {
            best = (both, Some(mid));
        }
    }
    (best.0[0] * bytes, best.1)
}

/// Returns layouts for a reduce-scatter of a value that is partial over these sub-axes.
///
/// They split one dimension, or several if none is evenly divisible. They are followed by
/// candidates that start with the sub-axes of the requested layout, as their blocks are contained
/// in the requested ones.
fn scatter_layouts(from: &StoredValue, to: &Layout, gone: &SubAxes) -> Vec<Vec<DimLayout>> {
    let shape = &from.shape;
    let held = from.layout.dims.clone();
    let (mut asked, mut rest) = (held.clone(), gone.clone());
    for (dim, goal) in to.dims.iter().enumerate() {
        let own = &held[dim].sub_axes;
        let more = goal.sub_axes.strip_prefix(&own[..]).filter(|more| !more.is_empty());
        if let Some(left) = more.and_then(|more| subtract(&rest, more)) {
            (asked[dim], rest) = (DimLayout::new(shape[dim], goal.sub_axes.iter().copied()), left);
        }
    }
    let mut ways_there = Vec::new();
    for (base, sub_axes) in [(&held, gone), (&asked, &rest)] {
        if sub_axes.is_empty() || ways_there.iter().any(|known: &Vec<DimLayout>| known == base) {
            continue;
        }
        for dim in 0..shape.rank() {
            let mut dims = base.clone();
            dims[dim] = DimLayout::new(shape[dim], dims[dim].sub_axes.iter().chain(sub_axes).copied());
            ways_there.push(dims);
        }
        ways_there.extend(spread_sub_axes(shape, base, sub_axes));
    }
    ways_there
}

/// Distributes sub-axes over the dimensions they divide evenly, largest first.
/// `None` if not all of them fit.
fn spread_sub_axes(shape: &[usize], base: &[DimLayout], sub_axes: &SubAxes) -> Option<Vec<DimLayout>> {
    let room = |dims: &[DimLayout], dim: usize| match shape[dim].is_multiple_of(dims[dim].num_shards()) {
        true => shape[dim] / dims[dim].num_shards(),
        false => 1,
    };
    let (mut dims, mut left) = (base.to_vec(), sub_axes.clone());
    let mut order: Vec<usize> = (0..shape.len()).collect();
    small_sort::sort_by_key(&mut order, |dim| Reverse(room(base, *dim)));
    for dim in order {
        let mut later = SubAxes::new();
        for a in left {
            let here = gcd(room(&dims, dim), a.size);
            let major = SubAxis { stride: a.stride * (a.size / here), size: here };
            let minor = SubAxis { size: a.size / here, ..a };
            let sub_axis_list: SubAxes = dims[dim].sub_axes.iter().copied().chain([major]).collect();
            dims[dim] = DimLayout::new(shape[dim], sub_axis_list);
            later.extend((minor.size > 1).then_some(minor));
        }
        left = later;
    }
    left.is_empty().then_some(dims)
}

/// Returns the elements that all devices receive for one consumer of a value.
/// `copies` is the number of partial values that are combined.
pub(super) fn elements_moved(d: &Draft, from: &StoredValue, reader: &Consumer, copies: i64) -> f64 {
    let fetch =
        FetchQuery { devices: d.devices, slot: 0, stored: from, consumers: &[*reader], num_partials: copies };
    d.costs.total(&fetch).0 as f64
}
