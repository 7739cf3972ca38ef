//! Inserts the fetches that make remote elements readable.
//!
//! The consumers of a value share a fetch, which is held until the last of them has run. There are
//! three exceptions. What the backward pass of a checkpoint reads is fetched again, because the
//! checkpoint asks to hold nothing from the forward to the backward pass. What the program
//! exchanges by different calls is fetched by different exchanges: one for each permute, and one
//! for the gathers over the same axes. And large disjoint parts of a value, such as the layers in
//! one array of weights, are fetched one by one.

use crate::core::util::small_sort;
use crate::ir::program::{AccessPiece, Source};
use crate::partition::boxes::{Interval, Region, full};
use crate::partition::collective::CollectiveKind;
use crate::partition::cost::cache::distinct_consumers;
use crate::partition::cost::consumer::{Consumer, FetchQuery};
use crate::partition::cost::projection::Projections;
use crate::partition::draft::{Draft, DraftStep, FusedView, UserExchange};
use crate::partition::program::{FetchRequest, LocalStep, Slot, Step, StepOrigin};

/// Disjoint parts of a value share a fetch up to this number of bytes per device.
/// Below it, one more message costs more than the memory that it saves.
const MAX_JOINED_BYTES: i64 = 1 << 20;

/// Inserts one fetch for each value, or each part of it, that some device reads and does not fully
/// hold. It precedes the first step that reads remote elements.
pub(crate) fn insert_fetches(d: &mut Draft, vias: &[Option<FusedView>]) {
    let mut needs: Vec<Vec<FetchRequest>> = vec![Vec::new(); d.slots.len()];
    let nests = d.steps.iter().enumerate().filter_map(|(k, item)| Some((k, item.step.loop_nest()?)));
    let projections = Projections::new(nests);
    for (k, item) in d.steps.iter().enumerate() {
        let Some(LocalStep { nest, layout, .. }) = item.step.local() else { continue };
        for (read, r) in nest.accesses.iter().enumerate() {
            for src in r.sources() {
                if d.needs_fetch(src, projections.consumer(k, (nest, read), src, layout)) {
                    needs[src].push(FetchRequest { consumer_step: k, access: read });
                }
            }
        }
    }
    // collect the fetches first, because inserting one shifts the indices of later steps
    let mut before: Vec<Vec<(Slot, StepOrigin, Vec<FetchRequest>)>> = vec![Vec::new(); d.steps.len()];
    let called = |item: &DraftStep| item.info.user_collective.is_some();
    let any = d.steps.iter().any(called) || vias.iter().flatten().any(|via| called(&via.step));
    for (src, list) in needs.into_iter().enumerate() {
        let calls = by_checkpoint(d, list)
            .into_iter()
            .flat_map(|of_pass| if any { by_call(d, src, of_pass, vias) } else { vec![(None, of_pass)] });
        for (called, of_call) in calls {
            let parts = if called == Some(CollectiveKind::Permute) {
                vec![of_call]
            } else {
                by_part(d, src, of_call)
            };
            for mut list in parts {
                let Some(first) = list.iter().map(|n| n.consumer_step).min() else { continue };
                // attribute the fetch to the consumer with the first source location, so that the
                // result does not depend on the order of steps
                small_sort::sort_by(&mut list, |a, b| {
                    let of = |n: &FetchRequest| {
                        let why = &d.steps[n.consumer_step].origin;
                        (why.location, &why.op, &why.scope)
                    };
                    of(a).cmp(&of(b))
                });
                before[first].push((src, d.steps[list[0].consumer_step].origin.clone(), list));
            }
        }
    }
    let mut shift = 0;
    let mut moved = Vec::with_capacity(before.len());
    for (k, fetches) in before.iter().enumerate() {
        shift += fetches.len();
        moved.push(k + shift);
    }
    for (item, fetches) in std::mem::take(&mut d.steps).into_iter().zip(before) {
        for (src, why, list) in fetches {
            let requests = list
                .into_iter()
                .map(|n| FetchRequest { consumer_step: moved[n.consumer_step], ..n })
                .collect();
            d.steps.push(DraftStep::new(Step::Fetch { src, requests }, why));
        }
        d.steps.push(item);
    }
}

/// Divides the consumers of a value by the backward pass of a checkpoint that they belong to.
fn by_checkpoint(d: &Draft, mut list: Vec<FetchRequest>) -> Vec<Vec<FetchRequest>> {
    let pass = |n: &FetchRequest| d.steps[n.consumer_step].origin.checkpoint;
    small_sort::sort_by_key(&mut list, pass);
    list.chunk_by(|a, b| pass(a) == pass(b)).map(<[FetchRequest]>::to_vec).collect()
}

/// Divides the consumers of a value by the user's exchange that they need it for.
///
/// Each permute that the user called is an exchange, and so are the calls of another kind over the
/// same axes. Returns the kind of each exchange, `None` if the user called none.
fn by_call(
    d: &Draft,
    src: Slot,
    list: Vec<FetchRequest>,
    vias: &[Option<FusedView>],
) -> Vec<(Option<CollectiveKind>, Vec<FetchRequest>)> {
    let key = |n: &FetchRequest| {
        let item = &d.steps[n.consumer_step];
        let own = (&item.info.user_collective, item.step.local()?.out, &item.origin);
        let called = UserExchange::find(own, item.views_of(n.access), vias, src)?;
        let out = (called.kind == CollectiveKind::Permute).then_some(called.out);
        Some((called.kind, called.axes, out))
    };
    let mut calls: Vec<(Option<_>, Vec<FetchRequest>)> = Vec::new();
    for n in list {
        let by = key(&n);
        match calls.iter_mut().find(|c| c.0 == by) {
            Some(call) => call.1.push(n),
            None => calls.push((by, vec![n])),
        }
    }
    calls.into_iter().map(|(by, list)| (by.map(|by| by.0), list)).collect()
}

/// Divides the consumers of a value into those of disjoint parts.
///
/// Parts share a fetch if together they are small, or if separate fetches move more bytes to the
/// busiest device.
fn by_part(d: &Draft, src: Slot, list: Vec<FetchRequest>) -> Vec<Vec<FetchRequest>> {
    let parts = if list.len() > 1 { disjoint_parts(d, src, &list) } else { Vec::new() };
    if parts.len() < 2 {
        return vec![list];
    }
    let size = d.slots[src].dtype.size() as i64;
    let bytes = |list: &[FetchRequest]| busiest(d, src, list).saturating_mul(size);
    let each: Vec<i64> = parts.iter().map(|p| bytes(p)).collect();
    let all = bytes(&list);
    if all <= MAX_JOINED_BYTES || each.iter().copied().fold(0, i64::saturating_add) > all {
        return vec![list];
    }
    let mut joined: Vec<(i64, Vec<FetchRequest>)> = Vec::new();
    for (part, n) in parts.into_iter().zip(each) {
        match joined.last_mut() {
            Some((held, list)) if held.saturating_add(n) <= MAX_JOINED_BYTES => {
                *held += n;
                list.extend(part);
            }
            _ => joined.push((n, part)),
        }
    }
    joined.into_iter().map(|j| j.1).collect()
}

/// Returns how many elements the busiest device receives if these consumers share a fetch.
fn busiest(d: &Draft, src: Slot, list: &[FetchRequest]) -> i64 {
    let consumer = |n: &FetchRequest| {
        let l = d.steps[n.consumer_step].step.local()?;
        Some(Consumer { nest: l.nest, access: n.access, layout: l.layout })
    };
    let consumers = &distinct_consumers(src, list.iter().filter_map(consumer))[..];
    let stored = &d.slots[src];
    d.costs
        .transfer_cost(&FetchQuery { devices: d.devices, slot: src, stored, consumers, num_partials: 1 })
        .max
}

/// Divides consumers so that different groups read disjoint ranges of the first dimension along
/// which there is more than one group. The groups are in the order of these ranges.
fn disjoint_parts(d: &Draft, src: Slot, list: &[FetchRequest]) -> Vec<Vec<FetchRequest>> {
    let shape = &d.slots[src].shape;
    let bounds: Vec<Region> = list.iter().map(|n| bounding_box(d, src, shape, n)).collect();
    let along = |dim: usize| {
        let mut order: Vec<usize> = (0..list.len()).collect();
        small_sort::sort_by_key(&mut order, |k| bounds[*k][dim]);
        let mut parts: Vec<(i64, Vec<FetchRequest>)> = Vec::new();
        for k in order {
            let (lo, hi) = bounds[k][dim];
            match parts.last_mut() {
                Some((end, part)) if lo < *end => {
                    *end = hi.max(*end);
                    part.push(list[k].clone());
                }
                _ => parts.push((hi, vec![list[k].clone()])),
            }
        }
        (parts.len() > 1).then(|| parts.into_iter().map(|p| p.1).collect())
    };
    (0..shape.rank()).find_map(along).unwrap_or_default()
}

/// Returns a box that contains everything that all devices read of `src` by one access.
fn bounding_box(d: &Draft, src: Slot, shape: &[usize], n: &FetchRequest) -> Region {
    let Some(nest) = d.steps[n.consumer_step].step.loop_nest().filter(|s| s.compute.has_affine_accesses())
    else {
        return full(shape);
    };
    let pieces = nest.accesses[n.access].pieces.iter().filter(|p| p.source == Source::Value(src));
    let boxes = pieces.map(|p| (0..shape.len()).map(|dim| piece_range(p, dim)).collect::<Region>());
    let hull = |a: Region, b: Region| a.iter().zip(&b).map(|(x, y)| (x.0.min(y.0), x.1.max(y.1))).collect();
    boxes.reduce(hull).unwrap_or_else(|| full(shape))
}

/// Returns the range of positions along a dimension that a piece reads.
fn piece_range(p: &AccessPiece, dim: usize) -> Interval {
    let map = &p.map[dim];
    map.terms.iter().fold((map.constant, map.constant + 1), |(lo, hi), (l, c)| {
        let last = c * (p.ranges[*l].len() - 1).max(0);
        (lo + last.min(0), hi + last.max(0))
    })
}
