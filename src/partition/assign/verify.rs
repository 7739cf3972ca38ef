//! Verifies the invariants of per-device programs, in debug builds.

use crate::core::sharding::sub_axes::{SubAxes, SubAxis, in_device_order, subtract};
use crate::core::types::DType;
use crate::ir::program::loop_nest::{AccessPiece, Compute, LoopNest, Source};
use crate::partition::access::piece_sets;
use crate::partition::boxes::full;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{FetchRequest, Slot, SpmdProgram, Step, StoredValue};
use crate::partition::progression::{IndexSet, hull};
use crate::partition::strided_box::{missing_volume, strided, union_volume};
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
    // the accesses for which each value was fetched
    let mut fetched: Vec<Vec<FetchRequest>> = vec![Vec::new(); p.slots.len()];
    let mut served: HashSet<(Slot, usize, usize)> = HashSet::new();
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
        match step {
            Step::Fetch { src, requests: needs } => {
                for n in needs {
                    let sentence = p.steps.get(n.consumer_step).and_then(Step::loop_nest);
                    let read = sentence.and_then(|s| s.accesses.get(n.access));
                    let from = |p: &AccessPiece| p.source == Source::Value(*src);
                    let reads = read.is_some_and(|r| r.pieces.iter().any(from));
                    if n.consumer_step <= k || !reads {
                        return Err(at(format!("step {} does not read slot {src}", n.consumer_step)));
                    }
                }
                fetched[*src].extend(needs.iter().cloned());
                served.extend(needs.iter().map(|n| (*src, n.consumer_step, n.access)));
            }
            Step::Local { out, nest: sentence, layout } => {
                check_local(p, *out, sentence, layout).map_err(at)?;
                check_held(p, k, sentence, &fetched, &served).map_err(at)?;
            }
            Step::Reduce { src, out, .. } => {
                let (from, to) = (partial_axes(&p.slots[*src]), partial_axes(&p.slots[*out]));
                if from.is_empty() || subtract(&from, &to).is_none_or(|gone| gone.is_empty()) {
                    return Err(at(format!(
                        "a value partial over {from:?} does not become partial over {to:?}"
                    )));
                }
            }
            Step::Loop { body, fixed, carry, xs, out, ys, length, .. } => {
                let n = 1 + fixed.len() + carry.len() + xs.len();
                if body.ins.len() != n || body.outs.len() != out.len() + ys.len() || out.len() != carry.len()
                {
                    return Err(at("the body has other inputs or results".into()));
                }
                let plain: Vec<Slot> = fixed.iter().chain(carry).copied().collect();
                check_same(p, &plain, body, &body.ins[1..1 + plain.len()]).map_err(at)?;
                check_same(p, out, body, &body.outs[..out.len()]).map_err(at)?;
                check_same(p, carry, body, &body.outs[..out.len()]).map_err(at)?;
                let slices =
                    xs.iter().zip(&body.ins[1 + plain.len()..]).chain(ys.iter().zip(&body.outs[out.len()..]));
                for (stack, slice) in slices {
                    let (w, s) = (&p.slots[*stack], &body.slots[*slice]);
                    let (first, rest) = (w.layout.dims.first(), w.layout.dims.get(1..));
                    if w.shape.first() != Some(length)
                        || w.shape[1..] != s.shape[..]
                        || first.is_none_or(|l| !l.sub_axes.is_empty())
                        || rest != Some(&s.layout.dims[..])
                    {
                        return Err(at(format!("slot {stack} is not a stack of what the body has")));
                    }
                }
            }
            Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
                let test = cond.outs.first().map(|s| &cond.slots[*s]);
                let split = |s: &StoredValue| {
                    let each = s.shape.iter().zip(&s.layout.dims);
                    s.layout.partial.is_none() && each.clone().all(|(n, d)| d.num_shards() == *n)
                };
                if !test.is_some_and(|s| s.dtype == DType::Bool && split(s)) {
                    return Err(at("the condition is not a bool of each device".into()));
                }
                let all = |fixed: &[Slot]| [fixed, carry].concat();
                check_same(p, &all(cond_fixed), cond, &cond.ins).map_err(at)?;
                check_same(p, &all(body_fixed), body, &body.ins).map_err(at)?;
                check_same(p, carry, body, &body.outs).map_err(at)?;
                check_same(p, out, body, &body.outs).map_err(at)?;
            }
            Step::Branch { branches, ins, out, .. } => {
                for b in branches {
                    check_same(p, ins, b, &b.ins).map_err(at)?;
                    check_same(p, out, b, &b.outs).map_err(at)?;
                }
            }
            Step::Print { .. } => {}
        }
    }
    match p.outs.iter().find(|s| !made[**s]) {
        Some(s) => Err(format!("the result, slot {s}, is not made")),
        None => Ok(()),
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
fn check_same(p: &SpmdProgram, outer: &[Slot], body: &SpmdProgram, inner: &[Slot]) -> Result<(), String> {
    if outer.len() != inner.len() {
        return Err(format!("{} values for {}", outer.len(), inner.len()));
    }
    match outer.iter().zip(inner).find(|(a, b)| p.slots[**a] != body.slots[**b]) {
        Some((a, b)) => Err(format!("slot {a} is {:?}, inside {:?}", p.slots[*a], body.slots[*b])),
        None => Ok(()),
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
/// `served` has the accesses for which a value was fetched.
fn check_held(
    p: &SpmdProgram,
    k: usize,
    s: &LoopNest,
    fetched: &[Vec<FetchRequest>],
    served: &HashSet<(Slot, usize, usize)>,
) -> Result<(), String> {
    for (access, src) in
        s.accesses.iter().enumerate().flat_map(|(a, r)| r.sources().into_iter().map(move |s| (a, s)))
    {
        if served.contains(&(src, k, access)) {
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
            let mut have = p.requested_boxes(src, &fetched[src], device).0;
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
