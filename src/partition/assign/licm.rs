//! Loop-invariant code motion for values that need communication.
//!
//! A value computed only from loop-invariant inputs is the same in every iteration. If computing it
//! needs communication, it is hoisted: computed once before the loop, and passed to the body as
//! another loop-invariant input. If a step reads elements of such a value that its device does not
//! hold (a halo), a copy of what the step reads is made before the loop, in the layout of the
//! step's loops, and passed to the body in the same way.

use super::{fuse_views, hoist_inputs::MAX_HOISTED_BYTES};
use crate::core::Shape;
use crate::ir::program::{Access, LoopNest, StridedRange};
use crate::partition::cost::projection::Projections;
use crate::partition::draft::{Draft, DraftStep, map_nest};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, Step};

/// Values and accesses to hoist out of a loop body.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    /// Values whose computation needs communication.
    values: Vec<Slot>,
    /// Accesses of loop-invariant values, as (result of the reading step, access, loop layout).
    reads: Vec<(Slot, usize, Vec<DimLayout>)>,
}

/// Returns the invariants of a body with layouts, `None` if there are none.
///
/// Slots from `n` on are not values of the draft, but intermediate results within one of its steps.
pub(super) fn find_invariants(d: &Draft, n: usize) -> Option<Invariants> {
    if d.trip_count < 2 {
        return None;
    }
    let mut same = vec![false; d.slots.len()];
    d.loop_invariant.iter().for_each(|s| same[*s] = true);
    let mut moves = vec![false; d.slots.len()];
    let mut found = Invariants::default();
    let nests = d.steps.iter().enumerate().filter_map(|(k, item)| Some((k, item.step.loop_nest()?)));
    let projections = Projections::new(nests);
    for (k, item) in d.steps.iter().enumerate() {
        let inputs = item.step.inputs();
        let fixed = item.step.is_pure() && inputs.iter().all(|s| same[*s]);
        let mut communicates = matches!(item.step, Step::Reduce { .. });
        if let Step::Local { nest: loop_nest, layout, .. } = &item.step {
            for read in 0..loop_nest.accesses.len() {
                let sources = loop_nest.accesses[read].sources();
                let prices = || {
                    sources.iter().map(|s| {
                        let reader = projections.consumer(k, (loop_nest, read), *s, layout);
                        d.weighted_bytes(*s, &[reader])
                    })
                };
                let bytes: f64 = prices().sum();
                communicates |= bytes > 0.0;
                let is_full = |s: &Slot| *s < n && same[*s] && d.slots[*s].layout.partial.is_none();
                if !fixed
                    && bytes > 0.0
                    && sources.iter().all(is_full)
                    && is_worth_hoisting(d, loop_nest, read, layout, bytes)
                {
                    found.reads.extend(original_value(d, k, n).map(|out| (out, read, layout.clone())));
                }
            }
        }
        if !fixed {
            continue;
        }
        communicates |= inputs.iter().any(|s| *s >= n && moves[*s]);
        for out in item.step.outputs() {
            (same[out], moves[out]) = (true, communicates);
            if communicates
                && out < n
                && !d.outs.contains(&out)
                && d.slots[out].block_bytes() <= MAX_HOISTED_BYTES
            {
                found.values.push(out);
            }
        }
    }
    (!found.values.is_empty() || !found.reads.is_empty()).then_some(found)
}

/// Returns true if hoisting the elements that an access fetches pays off.
/// If hoisted, they are read from memory in each iteration.
fn is_worth_hoisting(d: &Draft, s: &LoopNest, read: usize, layout: &[DimLayout], bytes: f64) -> bool {
    let used = loops_of(&s.accesses[read], &s.extents);
    let block = |l: &usize| {
        let v = layout[*l].range(0, s.extents[*l]);
        (v.1 - v.0) as f64
    };
    let elements: f64 = used.iter().map(block).product();
    let held = elements * s.accesses[read].dtype.size() as f64;
    held <= MAX_HOISTED_BYTES as f64 && bytes * d.per_byte.elements() > elements * d.devices as f64
}

/// Returns the value of the original draft that a step helps to compute: its result, or a value
/// computed from it.
fn original_value(d: &Draft, k: usize, n: usize) -> Option<Slot> {
    let mut out = d.steps[k].step.outputs().first().copied()?;
    for item in &d.steps[k + 1..] {
        if out < n {
            break;
        }
        if item.step.inputs().contains(&out) {
            out = item.step.outputs().first().copied()?;
        }
    }
    (out < n).then_some(out)
}

/// Returns the loops that an access depends on.
fn loops_of(r: &Access, extents: &[usize]) -> Vec<usize> {
    let uses = |l: &usize| {
        r.pieces.iter().any(|p| {
            p.ranges[*l] != StridedRange::full(extents[*l])
                || p.map.iter().any(|m| m.terms.iter().any(|t| t.0 == *l))
        })
    };
    (0..extents.len()).filter(uses).collect()
}

/// Removes invariants from a body without layouts, and returns the steps that compute them.
///
/// The new inputs are appended to the loop-invariant inputs.
pub(super) fn hoist_out(d: &mut Draft, found: Invariants) -> Vec<DraftStep> {
    let mut given: Vec<Slot> = found.values;
    let mut copies: Vec<DraftStep> = Vec::new();
    let mut known: Vec<(Access, Vec<DimLayout>, Slot)> = Vec::new();
    for (out, read, layout) in found.reads {
        let maker = d.steps.iter().position(|i| i.step.local().is_some_and(|l| l.out == out));
        let Some(k) = maker else { continue };
        let Some(loop_nest) = d.steps[k].step.loop_nest() else { continue };
        if loop_nest.extents.len() != layout.len() || read >= loop_nest.accesses.len() {
            continue;
        }
        let (r, extents) = (loop_nest.accesses[read].clone(), loop_nest.extents.clone());
        let used = loops_of(&r, &extents);
        let position = |l: usize| used.iter().position(|u| *u == l).unwrap_or(0);
        let mut own = r.clone();
        for p in &mut own.pieces {
            p.ranges = used.iter().map(|l| p.ranges[*l]).collect();
            p.map.iter_mut().flat_map(|m| &mut m.terms).for_each(|t| t.0 = position(t.0));
        }
        let shape: Shape = used.iter().map(|l| extents[*l]).collect();
        let dims: Vec<DimLayout> = used.iter().map(|l| layout[*l].clone()).collect();
        let slot = match known.iter().find(|x| x.0 == own && x.1 == dims) {
            Some(x) => x.2,
            None => {
                let slot = d.add_slot(r.dtype, shape.clone(), Layout { dims: dims.clone(), partial: None });
                let loop_nest = map_nest(own.clone(), &shape);
                let step = Step::Local { out: slot, nest: loop_nest, layout: Vec::new() };
                copies.push(DraftStep::new(step, d.steps[k].origin.clone()));
                known.push((own, dims, slot));
                given.push(slot);
                slot
            }
        };
        let loops: Vec<Option<usize>> = used.iter().copied().map(Some).collect();
        if let Step::Local { nest: loop_nest, .. } = &mut d.steps[k].step {
            loop_nest.accesses[read] = Access::from_loops(slot, r.dtype, &extents, &loops);
        }
    }
    // the steps that they depend on are needed outside the loop too
    let mut needed = vec![false; d.slots.len()];
    given.iter().for_each(|s| needed[*s] = true);
    copies.iter().flat_map(|i| i.step.inputs()).for_each(|s| needed[s] = true);
    let mut outside: Vec<DraftStep> = Vec::new();
    for item in d.steps.iter().rev().filter(|i| i.step.is_pure()) {
        if item.step.outputs().iter().any(|s| needed[*s]) {
            item.step.inputs().into_iter().for_each(|s| needed[s] = true);
            outside.push(item.clone());
        }
    }
    outside.reverse();
    outside.extend(copies);
    d.steps.retain(|i| !i.step.outputs().iter().any(|s| given.contains(s)));
    let last = d.loop_invariant.last().and_then(|s| d.ins.iter().position(|i| i == s)).map_or(0, |k| k + 1);
    d.ins.splice(last..last, given.iter().copied());
    d.loop_invariant.extend(given);
    fuse_views::remove_dead_steps(d);
    outside
}
