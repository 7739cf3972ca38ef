//! Partial values: how the parts of a sum become the value, and what that moves.

use crate::partition::draft::{self, Draft};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::prices;
use crate::partition::price::reader::{Fetch, Reader};
use crate::partition::program::Stored;
use crate::partition::route;
use crate::sharding::atoms::{Atom, Atoms, ways, without};
use crate::sorted;
use crate::types::gcd;
use std::cmp::Reverse;

/// Bytes that all devices receive to combine the parts of a value into this layout, and the layout in between if it is better to
/// scatter the sum first and to fetch it from there.
///
/// What is best is the least for the busiest device and for one on average, together: who adds everything up holds all others up, and the
/// letters of all to all crowd the wires.
pub(super) fn reduce_way(d: &Draft, from: &Stored, to: &Layout) -> (f64, Option<Layout>) {
    let mut key = vec![from.dtype.size() as i64];
    prices::sizes(&mut key, &from.shape);
    for l in [&from.layout, to] {
        prices::layouts(&mut key, &l.dims);
        // what is added and what is compared moves alike, but where parts stay they are told by their combination
        key.push(l.partial.as_ref().map_or(-1, |p| p.0 as i64));
        prices::digits(&mut key, l.partial.as_ref().map_or(&[], |p| &p.1[..]));
    }
    d.prices.sum(key, || cheapest(d, from, to))
}

fn cheapest(d: &Draft, from: &Stored, to: &Layout) -> (f64, Option<Layout>) {
    let bytes = from.dtype.size() as f64;
    let stay = to.partial.clone().map(|p| p.1).unwrap_or_default();
    let parts = from.layout.partial.clone().map(|p| p.1).unwrap_or_default();
    let gone = without(&parts, &stay).unwrap_or(parts);
    // where all parts are the same each device takes its own
    let same = from.layout.has_same_parts();
    let copies = if same { 1 } else { ways(&gone) as i64 };
    let s = draft::copy(0, from.dtype, &from.shape);
    let to_reader = Reader { sentence: &s, read: 0, layout: &to.dims };
    let cost = |from: &Stored, reader: &Reader, copies: i64| {
        let fetch = Fetch { devices: d.devices, slot: 0, stored: from, readers: &[*reader], copies };
        let cost = d.prices.of(&fetch);
        [cost.total as f64, cost.max as f64]
    };
    let weight = |[total, busiest]: [f64; 2]| total / d.devices as f64 + busiest;
    let direct = match route::cost(d.devices, from, to) {
        Some(cost) => [cost.total as f64, cost.max as f64],
        None => cost(from, &to_reader, copies),
    };
    let mut best = (direct, None);
    let ways_there = if same { Vec::new() } else { scattered(from, to, &gone) };
    for dims in ways_there {
        let mid = Layout { dims, partial: to.partial.clone() };
        let there = Stored { layout: mid.clone(), ..from.clone() };
        let (scatter, fetch) =
            (cost(from, &Reader { layout: &mid.dims, ..to_reader }, copies), cost(&there, &to_reader, 1));
        let both = [scatter[0] + fetch[0], scatter[1] + fetch[1]];
        // of equal ways the one of fewer steps
        if weight(both) * (1.0 + 1e-9) < weight(best.0) - 1.0 / d.devices as f64 {
            best = (both, Some(mid));
        }
    }
    (best.0[0] * bytes, best.1)
}

/// The ways to scatter a sum of which these digits tell the parts apart: along one dimension, or, where none takes all digits evenly, along
/// several. The digits by which the value is wanted come first, as it is wanted by them: then blocks are within those that are asked for.
fn scattered(from: &Stored, to: &Layout, gone: &Atoms) -> Vec<Vec<DimLayout>> {
    let shape = &from.shape;
    let held = from.layout.dims.clone();
    let (mut asked, mut rest) = (held.clone(), gone.clone());
    for (dim, goal) in to.dims.iter().enumerate() {
        let own = &held[dim].atoms;
        let more = goal.atoms.strip_prefix(&own[..]).filter(|more| !more.is_empty());
        if let Some(left) = more.and_then(|more| without(&rest, more)) {
            (asked[dim], rest) = (DimLayout::new(shape[dim], goal.atoms.iter().copied()), left);
        }
    }
    let mut ways_there = Vec::new();
    for (base, digits) in [(&held, gone), (&asked, &rest)] {
        if digits.is_empty() || ways_there.iter().any(|known: &Vec<DimLayout>| known == base) {
            continue;
        }
        for dim in 0..shape.rank() {
            let mut dims = base.clone();
            dims[dim] = DimLayout::new(shape[dim], dims[dim].atoms.iter().chain(digits).copied());
            ways_there.push(dims);
        }
        ways_there.extend(spread(shape, base, digits));
    }
    ways_there
}

/// Digits put into several dimensions, as far as each of them is divisible, the largest first; none if they do not all find a place.
fn spread(shape: &[usize], base: &[DimLayout], digits: &Atoms) -> Option<Vec<DimLayout>> {
    let room = |dims: &[DimLayout], dim: usize| match shape[dim].is_multiple_of(dims[dim].ways()) {
        true => shape[dim] / dims[dim].ways(),
        false => 1,
    };
    let (mut dims, mut left) = (base.to_vec(), digits.clone());
    let mut order: Vec<usize> = (0..shape.len()).collect();
    sorted::sort_by_key(&mut order, |dim| Reverse(room(base, *dim)));
    for dim in order {
        let mut later = Atoms::new();
        for a in left {
            let here = gcd(room(&dims, dim), a.size);
            let major = Atom { stride: a.stride * (a.size / here), size: here };
            let minor = Atom { size: a.size / here, ..a };
            let atoms: Atoms = dims[dim].atoms.iter().copied().chain([major]).collect();
            dims[dim] = DimLayout::new(shape[dim], atoms);
            later.extend((minor.size > 1).then_some(minor));
        }
        left = later;
    }
    left.is_empty().then_some(dims)
}

/// Elements that all devices receive for one reader of a value of which `copies` parts are combined.
pub(super) fn moved(d: &Draft, from: &Stored, reader: &Reader, copies: i64) -> f64 {
    let fetch = Fetch { devices: d.devices, slot: 0, stored: from, readers: &[*reader], copies };
    d.prices.total(&fetch).0 as f64
}
