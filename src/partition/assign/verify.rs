//! Verifies the invariants of per-device programs, in debug builds.

use crate::core::sharding::sub_axes::{in_device_order, subtract};
use crate::core::{DType, SubAxes, SubAxis};
use crate::ir::program::{AccessPiece, Compute, LoopNest, Source};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::nested::{InputBinding, NestedProgram, ResultBinding};
use crate::partition::program::{FetchRequest, Slot, SpmdProgram, Step, StoredValue};
use crate::partition::progression::{IndexSet, hull};
use crate::partition::strided_box::{missing_volume, strided, union_volume};
use crate::partition::{access::piece_sets, boxes::full};
use std::collections::HashSet;

/// Returns an error with the first invariant that the program violates.
pub(crate) fn verify(p: &SpmdProgram) -> Result<(), String> {
    if p.steps.len() != p.origins.len() {
        return Err("each step has its origin".into());
    }
    for (s, stored) in p.slots.iter().enumerate() {
        check_layout(&stored.layout, &stored.shape).map_err(|e| format!("slot {s}: {e}"))?;
    }
    let mut made = vec![false; p.slots.len()];
    p.ins.iter().for_each(|s| made[*s] = true);
    let mut served = ServedAccesses { by_slot: vec![Vec::new(); p.slots.len()], all: HashSet::new() };
    for (k, step) in p.steps.iter().enumerate() {
        let at = |e: String| format!("step {k} ({}): {e}", p.origins[k].op);
        if let Some(s) = step.inputs().into_iter().find(|s| !made[*s]) {
            return Err(at(format!("slot {s} is read before it is made")));
        }
        for s in step.outputs() {
            if std::mem::replace(&mut made[s], true) {
                return Err(at(format!("slot {s} is made twice")));
            }
        }
        check_step(p, k, step, &mut served).map_err(at)?;
    }
    let Some(s) = p.outs.iter().find(|s| !made[**s]) else { return Ok(()) };
    Err(format!("the result, slot {s}, is not made"))
}

/// The accesses for which values have been fetched.
struct ServedAccesses {
    /// The accesses of each value.
    by_slot: Vec<Vec<FetchRequest>>,
    /// The accesses as (value, step, index of the access).
    all: HashSet<(Slot, usize, usize)>,
}

/// Checks one step.
fn check_step(p: &SpmdProgram, k: usize, step: &Step, served: &mut ServedAccesses) -> Result<(), String> {
    if let Some((src, requests)) = step.fetches() {
        check_fetch(p, k, src, requests)?;
        served.by_slot[src].extend(requests.iter().cloned());
        served.all.extend(requests.iter().map(|n| (src, n.consumer_step, n.access)));
    } else if let Some(local) = step.local() {
        check_local(p, local.out, local.nest, local.layout)?;
        check_held(p, k, local.nest, served)?;
    } else if let Some((src, out, _)) = step.reduction() {
        let (from, to) = (partial_axes(&p.slots[src]), partial_axes(&p.slots[out]));
        if from.is_empty() || subtract(&from, &to).is_none_or(|gone| gone.is_empty()) {
            return Err(format!("a value partial over {from:?} does not become partial over {to:?}"));
        }
    }
    let trip_count = if let Step::Loop { length, .. } = step { Some(*length) } else { None };
    step.nested_programs().iter().try_for_each(|nested| check_nested(p, nested, trip_count))
}

/// Checks that the accesses which a fetch serves are in later steps and read the fetched value.
fn check_fetch(p: &SpmdProgram, k: usize, src: Slot, requests: &[FetchRequest]) -> Result<(), String> {
    for n in requests {
        let nest = p.steps.get(n.consumer_step).and_then(Step::loop_nest);
        let read = nest.and_then(|s| s.accesses.get(n.access));
        let from = |p: &AccessPiece| p.source == Source::Value(src);
        let reads = read.is_some_and(|r| r.pieces.iter().any(from));
        if n.consumer_step <= k || !reads {
            return Err(format!("step {} does not read slot {src}", n.consumer_step));
        }
    }
    Ok(())
}

/// Checks that the inputs and results of a nested program have the types and layouts of the values
/// that they stand for. A loop with a known trip count slices and stacks along its iterations.
fn check_nested(p: &SpmdProgram, nested: &NestedProgram<'_>, trips: Option<usize>) -> Result<(), String> {
    let body = nested.program;
    if body.ins.len() != nested.inputs.len() || body.outs.len() != nested.results.len() {
        return Err("a nested program has other inputs or results".into());
    }
    let carries: Vec<Slot> = (nested.inputs.iter())
        .filter_map(|input| if let InputBinding::Carry(slot) = input { Some(*slot) } else { None })
        .collect();
    for (input, inner) in nested.inputs.iter().zip(&body.ins) {
        match input {
            InputBinding::Iteration => {}
            InputBinding::Fixed(slot) | InputBinding::Carry(slot) => check_same(p, *slot, body, *inner)?,
            InputBinding::Slice(slot) => check_stack(p, *slot, body, *inner, trips)?,
        }
    }
    let mut last_carries = 0;
    for (result, inner) in nested.results.iter().zip(&body.outs) {
        match result {
            ResultBinding::Condition => return check_condition(&body.slots[*inner]),
            ResultBinding::Value(slot) => check_same(p, *slot, body, *inner)?,
            ResultBinding::Carry(slot) => {
                check_same(p, *slot, body, *inner)?;
                if let Some(first) = carries.get(last_carries) {
                    check_same(p, *first, body, *inner)?;
                }
                last_carries += 1;
            }
            ResultBinding::Stack(slot) => check_stack(p, *slot, body, *inner, trips)?,
        }
    }
    match last_carries == carries.len() {
        true => Ok(()),
        false => Err(format!("{last_carries} final carries for {}", carries.len())),
    }
}

/// Checks that the condition of a loop is a bool, of which each device has one element.
fn check_condition(test: &StoredValue) -> Result<(), String> {
    let mut dims = test.shape.iter().zip(&test.layout.dims);
    let split = test.layout.partial.is_none() && dims.all(|(n, d)| d.num_shards() == *n);
    match test.dtype == DType::Bool && split {
        true => Ok(()),
        false => Err("the condition is not a bool of each device".into()),
    }
}

/// Checks that `outer` stacks values like `inner` along a leading dimension that is not split.
fn check_stack(
    p: &SpmdProgram,
    outer: Slot,
    body: &SpmdProgram,
    inner: Slot,
    trips: Option<usize>,
) -> Result<(), String> {
    let (stack, slice) = (&p.slots[outer], &body.slots[inner]);
    let whole = stack.layout.dims.first().is_some_and(|l| l.sub_axes.is_empty());
    match whole
        && stack.shape.first().copied() == trips
        && stack.shape[1..] == slice.shape[..]
        && stack.layout.dims[1..] == slice.layout.dims[..]
    {
        true => Ok(()),
        false => Err(format!("slot {outer} is not a stack of what the body has")),
    }
}

fn partial_axes(s: &StoredValue) -> SubAxes {
    s.layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default()
}

/// Checks that the sub-axes of one layout do not overlap.
fn check_independent(sub_axes: &[SubAxis]) -> Result<(), String> {
    match sub_axes.iter().enumerate().find(|(i, a)| sub_axes[..*i].iter().any(|b| a.overlaps(*b))) {
        Some((_, a)) => Err(format!("the sub-axis {a:?} is used twice in one layout")),
        None => Ok(()),
    }
}

fn check_layout(l: &Layout, shape: &[usize]) -> Result<(), String> {
    if l.dims.len() != shape.len() {
        return Err(format!("{} dimensions have a layout, of {}", l.dims.len(), shape.len()));
    }
    let sub_axes = l.dims.iter().flat_map(|d| d.sub_axes.iter().copied());
    let partials = l.partial.iter().flat_map(|p| p.1.iter().copied());
    check_independent(&sub_axes.chain(partials).collect::<Vec<_>>())
}

/// Checks that values of two programs have equal types and layouts.
fn check_same(p: &SpmdProgram, outer: Slot, body: &SpmdProgram, inner: Slot) -> Result<(), String> {
    match p.slots[outer] == body.slots[inner] {
        true => Ok(()),
        false => Err(format!("slot {outer} is {:?}, inside {:?}", p.slots[outer], body.slots[inner])),
    }
}

/// Checks that a local step has consistent loops, operands and result.
/// The result must have the layout of the loops, and be partial over exactly the sub-axes of
/// partial operands and of split reduction loops.
fn check_local(p: &SpmdProgram, out: Slot, s: &LoopNest, loops: &[DimLayout]) -> Result<(), String> {
    let stored = &p.slots[out];
    if loops.len() != s.extents.len() || s.rank > s.extents.len() {
        return Err("some loop has no layout".into());
    }
    if s.extents[..s.rank] != stored.shape[..] || s.dtype.storage() != stored.dtype {
        return Err(format!(
            "a {:?} of {:?} is stored as {:?} {}",
            s.dtype, s.extents, stored.dtype, stored.shape
        ));
    }
    if loops[..s.rank] != stored.layout.dims[..] {
        return Err(format!("slot {out} has another layout than its loops"));
    }
    check_independent(&loops.iter().flat_map(|l| l.sub_axes.iter().copied()).collect::<Vec<_>>())?;
    check_gather_scatter(p, s, loops)?;
    let mut made: SubAxes = loops[s.rank..].iter().flat_map(|l| l.sub_axes.iter().copied()).collect();
    for (k, r) in s.accesses.iter().enumerate() {
        for src in r.sources() {
            made.extend(partial_axes(&p.slots[src]));
        }
        for part in &r.pieces {
            let Source::Value(src) = part.source else { continue };
            let from = &p.slots[src];
            if part.map.len() != from.shape.rank() || part.ranges.len() != s.extents.len() {
                return Err(format!("read {k} has another rank than slot {src}"));
            }
            let sets = piece_sets(part, &from.shape, &full(&s.extents), &mut true);
            let within = |(set, n): (&IndexSet, &usize)| 0 <= hull(set).0 && hull(set).1 <= *n as i64;
            if s.compute.has_affine_accesses()
                && !sets.iter().all(|b| b.iter().zip(&from.shape[..]).all(within))
            {
                return Err(format!("read {k} goes beyond slot {src}, {}: {part:?}", from.shape));
            }
        }
    }
    let (wanted, made) = (in_device_order(partial_axes(stored)), in_device_order(made));
    if made != wanted {
        return Err(format!("slot {out} is partial over {wanted:?}, but made in {made:?}"));
    }
    Ok(())
}

/// Checks that a gather or scatter reads full values where partial ones are not allowed.
fn check_gather_scatter(p: &SpmdProgram, s: &LoopNest, loops: &[DimLayout]) -> Result<(), String> {
    for (k, r) in s.accesses.iter().enumerate().filter(|(k, _)| !s.accepts_partial(*k)) {
        if let Some(src) = r.sources().into_iter().find(|src| p.slots[*src].layout.partial.is_some()) {
            return Err(format!("read {k} is of slot {src}, which is partial"));
        }
    }
    let Compute::Scatter { reducer: combine, .. } = s.compute else { return Ok(()) };
    let split = loops[s.rank..].iter().any(|l| !l.sub_axes.is_empty());
    let neutral = combine.map(|c| c.neutral(s.dtype));
    if split && (neutral.is_none() || s.constant_value(0) != neutral) {
        return Err("updates are split, and overwrite the operand".into());
    }
    Ok(())
}

/// Returns the devices that are checked.
fn sampled_devices(n: usize) -> Vec<usize> {
    let mut devices = vec![0, 1 % n.max(1), n / 2, n.saturating_sub(1)];
    devices.dedup();
    devices
}

/// Checks on sampled devices that everything a local step reads is held or was fetched.
fn check_held(p: &SpmdProgram, k: usize, s: &LoopNest, served: &ServedAccesses) -> Result<(), String> {
    for (access, src) in
        s.accesses.iter().enumerate().flat_map(|(a, r)| r.sources().into_iter().map(move |s| (a, s)))
    {
        if served.all.contains(&(src, k, access)) {
            continue;
        }
        let stored = &p.slots[src];
        // on one device everything is held
        if p.devices == 1 {
            continue;
        }
        let own = [FetchRequest { consumer_step: k, access }];
        for device in sampled_devices(p.devices) {
            let (needed, exact) = p.requested_boxes(src, &own, device);
            let held = stored.layout.region(&stored.shape, device);
            if !exact || missing_volume(&needed, &held).elements == 0 {
                continue;
            }
            let mut have = p.requested_boxes(src, &served.by_slot[src], device).0;
            have.extend(strided(&held));
            let before = union_volume(&have);
            have.extend(needed);
            let after = union_volume(&have);
            if before.exact && after.exact && before != after {
                let loops = p.loops(k, device).unwrap_or_default();
                return Err(format!(
                    "device {device} does not hold all of slot {src} that loops {loops:?} read"
                ));
            }
        }
    }
    Ok(())
}
