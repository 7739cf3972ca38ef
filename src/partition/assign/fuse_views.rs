//! Fuses views: consumers of structural operations read through them.
//! The result of such an operation is stored only if some consumer cannot read through it.

use crate::core::{DType, util::small_sort};
use crate::ir::ops::windows::picked_step;
use crate::ir::program::{Access, AccessPiece, LoopNest, Source};
use crate::partition::draft::{Draft, DraftStep, FusedView};
use crate::partition::program::{LocalStep, Slot, Step};
use crate::partition::{access::compose_access, collective::CollectiveKind, layout::Layout};

/// The maximum number of pieces of a composed access.
/// A view that would exceed it is stored.
const MAX_ACCESS_PIECES: usize = 64;

/// Removes dead local steps and composes the accesses of the others through views.
/// Returns the removed views by slot.
pub(crate) fn fuse_views(d: &mut Draft) -> Vec<Option<FusedView>> {
    remove_dead_steps(d);
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); d.slots.len()];
    let mut fixed = vec![false; d.slots.len()];
    for (k, item) in d.steps.iter().enumerate() {
        let composes =
            item.step.loop_nest().is_some_and(|s| s.compute.has_affine_accesses() && !places_elements(s));
        for s in item.step.inputs() {
            readers[s].push(k);
            fixed[s] |= !composes;
        }
    }
    d.outs.iter().for_each(|s| fixed[*s] = true);
    let summed = only_summed(d);
    let mut vias: Vec<Option<FusedView>> = vec![None; d.slots.len()];
    let mut items = std::mem::take(&mut d.steps);
    let mut kept = Vec::with_capacity(items.len());
    for k in 0..items.len() {
        let Step::Local { out, nest: ref mut loop_nest, .. } = items[k].step else {
            kept.push(k);
            continue;
        };
        let passed = if loop_nest.compute.has_affine_accesses() {
            compose_views(d, loop_nest, &vias)
        } else {
            Vec::new()
        };
        let loop_nest = loop_nest.clone();
        items[k].info.fused_views = passed;
        // reading a full value as one partial value and summing it gives the full value again
        let full = summed[out] && loop_nest.accesses.iter().flat_map(Access::sources).all(|s| is_full(d, s));
        let in_place = !items[k].info.constrained || full && keeps_layout(d, &loop_nest, out);
        if !fixed[out] && in_place && is_view(d, &loop_nest, out, full) {
            let inner = &loop_nest.accesses[0];
            let exchanges = exchanges_read(&items[k], &vias);
            let all = readers[out].iter().all(|u| {
                keeps_exchanges(&items[*u], out, &exchanges)
                    && can_read_through(d, &items[*u].step, out, inner, &loop_nest.extents)
            });
            if all {
                let (read, extents) = (inner.clone(), loop_nest.extents.clone());
                vias[out] = Some(FusedView { step: items[k].clone(), access: read, extents });
                continue;
            }
        }
        kept.push(k);
    }
    let mut keep = kept.into_iter().peekable();
    d.steps =
        items.into_iter().enumerate().filter_map(|(k, item)| keep.next_if_eq(&k).map(|_| item)).collect();
    vias
}

/// Returns true if a loop nest is a view that can be read through.
/// It must be a copy without strided ranges that is partial over the same sub-axes as its source.
fn is_view(d: &Draft, s: &LoopNest, out: Slot, full: bool) -> bool {
    let Some(code) = s.compute.elementwise() else { return false };
    let [read] = &s.accesses[..] else { return false };
    *code == crate::ir::program::loop_nest::ScalarCode::copy(s.dtype)
        && read.dtype == s.dtype
        && read.pieces.iter().all(|p| p.ranges.iter().all(|v| v.step == 1))
        && (full
            || read.sources().iter().all(|s| d.slots[*s].layout.partial == d.slots[out].layout.partial))
        // a partial view must not have constants, which would be added once per partial value
        && (d.slots[out].layout.partial.is_none() || read.pieces.len() == 1)
}

fn is_full(d: &Draft, slot: Slot) -> bool {
    d.slots[slot].layout.partial.is_none()
}

/// Returns true if a copy has the layout of its source, except for the sub-axes it is partial over.
fn keeps_layout(d: &Draft, s: &LoopNest, out: Slot) -> bool {
    d.is_copy(s)
        && s.copied_operand().is_some_and(|slot| d.slots[slot].layout.dims == d.slots[out].layout.dims)
}

/// Returns, for each partial value, whether only its sum is used.
///
/// Each consumer must copy it: to a full value, or to another partial one that is only summed.
fn only_summed(d: &Draft) -> Vec<bool> {
    let mut summed: Vec<bool> = (0..d.slots.len()).map(|s| !is_full(d, s)).collect();
    d.outs.iter().for_each(|s| summed[*s] = false);
    for item in d.steps.iter().rev() {
        let copies = match &item.step {
            Step::Local { out, nest: loop_nest, .. } => {
                let source = loop_nest.copied_operand().filter(|_| loop_nest.accesses.len() == 1);
                let moved = source.and_then(|s| copy_permutation(loop_nest, &d.slots[s].shape));
                moved.is_some() && item.info.user_collective.is_none() && (is_full(d, *out) || summed[*out])
            }
            _ => false,
        };
        if !copies {
            item.step.inputs().into_iter().for_each(|s| summed[s] = false);
        }
    }
    summed
}

/// Returns the exchanges that the user called and that a step implements or reads through.
fn exchanges_read(item: &DraftStep, vias: &[Option<FusedView>]) -> Vec<CollectiveKind> {
    let through = item.info.fused_views.iter().filter_map(|(_, s)| vias[*s].as_ref()?.step.exchange());
    item.exchange().into_iter().chain(through).collect()
}

/// Returns true if the reports list these exchanges one by one when a step reads through the slot
/// that depends on them.
///
/// So the result of an exchange is stored if another exchange reads it. The result of a permute is
/// also stored if it is joined with other values, because a step fetches all that one of its
/// accesses reads of a value together.
fn keeps_exchanges(reader: &DraftStep, slot: Slot, exchanges: &[CollectiveKind]) -> bool {
    let alone = |r: &Access| {
        let of = |p: &AccessPiece| p.source == Source::Value(slot);
        !r.pieces.iter().any(of) || r.pieces.iter().all(of)
    };
    let joins = || !reader.step.loop_nest().is_some_and(|s| s.accesses.iter().all(alone));
    exchanges.is_empty()
        || reader.exchange().is_none() && !(exchanges.contains(&CollectiveKind::Permute) && joins())
}

/// Returns true if a step can read a slot through the access `inner` that defines it.
fn can_read_through(d: &Draft, step: &Step, slot: Slot, inner: &Access, extents: &[usize]) -> bool {
    let Some(loop_nest) = step.loop_nest() else { return false };
    let most = if loop_nest.compute.needs_whole_blocks() { 1 } else { MAX_ACCESS_PIECES };
    loop_nest.accesses.iter().all(|r| {
        // an access with many pieces is not searched to its end
        let others = r.pieces.iter().filter(|p| p.source != Source::Value(slot)).take(most + 1).count();
        let reads = || r.pieces.iter().any(|p| p.source == Source::Value(slot));
        if others == r.pieces.len() || others > most && loop_nest.accesses.len() > 1 && !reads() {
            return true;
        }
        // do not duplicate an access with many pieces into each piece of the outer one
        let composed = if others > most {
            None
        } else {
            compose_access(r, slot, inner, extents, &|s| &d.slots[s].shape)
        };
        composed.is_some_and(|c| {
            c.pieces.len() <= most
                && !stacks_reduced_loop(loop_nest, &c)
                && (!loop_nest.compute.needs_whole_blocks() || covers_loops(&c, &loop_nest.extents))
        })
    })
}

/// Returns true if a nest places elements of strided windows, which is an operation with its own
/// order of addition if it is in this form. So its operands are stored, and its result is.
fn places_elements(nest: &LoopNest) -> bool {
    let strided = |read: &Access| read.pieces.iter().any(|p| p.ranges.iter().any(|range| range.step != 1));
    matches!(nest.dtype, DType::F32 | DType::F64) && picked_step(nest).is_some() && strided(&nest.accesses[1])
}

/// Returns true if a reduction reads, along a loop, one piece after another without a position in
/// any of them.
///
/// The pieces do not say where the loop is among the dimensions of the stacked value, which
/// determines the order of addition. So the stacked value is stored.
fn stacks_reduced_loop(s: &LoopNest, read: &Access) -> bool {
    let stacked = |l: usize| {
        let part = |p: &AccessPiece| p.ranges[l].lo > 0 || p.ranges[l].hi < s.extents[l] as i64;
        let moves = |p: &AccessPiece| p.map.iter().any(|m| m.terms.iter().any(|t| t.0 == l));
        read.pieces.iter().any(part) && !read.pieces.iter().any(moves)
    };
    s.compute.reduces() && !s.compute.contracts() && (0..s.extents.len()).any(stacked)
}

/// Returns true if the pieces of an access cover all loops.
fn covers_loops(read: &Access, extents: &[usize]) -> bool {
    read.pieces.iter().all(|p| p.ranges.iter().zip(extents).all(|(s, n)| s.lo == 0 && s.hi >= *n as i64))
}

/// Composes the accesses of a loop nest with the views they read.
/// Returns these views, each with the index of the access.
fn compose_views(d: &Draft, s: &mut LoopNest, vias: &[Option<FusedView>]) -> Vec<(usize, Slot)> {
    let mut passed = Vec::new();
    for (k, r) in s.accesses.iter_mut().enumerate() {
        for slot in r.sources() {
            let Some(via) = &vias[slot] else { continue };
            if let Some(c) = compose_access(r, slot, &via.access, &via.extents, &|s| &d.slots[s].shape) {
                *r = c;
                passed.push((k, slot));
                passed.extend(via.step.info.fused_views.iter().map(|(_, s)| (k, *s)));
            }
        }
    }
    passed
}

/// Removes local steps and reductions whose results are not used.
pub(super) fn remove_dead_steps(d: &mut Draft) {
    let mut wanted = vec![false; d.slots.len()];
    d.outs.iter().for_each(|s| wanted[*s] = true);
    let mut keep = vec![true; d.steps.len()];
    for (k, item) in d.steps.iter().enumerate().rev() {
        let pure = item.step.is_pure();
        keep[k] = !pure || item.step.outputs().iter().any(|s| wanted[*s]);
        if keep[k] {
            item.step.inputs().iter().for_each(|s| wanted[*s] = true);
        }
    }
    let mut keep = keep.into_iter();
    d.steps.retain(|_| keep.next().unwrap_or(true));
}

/// Merges permuting copies into the steps that compute their sources.
///
/// The copy must be the only consumer of its source. A reduction is merged even if the copy is
/// constrained to split the sum further: the sum is then reduce-scattered. The same holds for a
/// row kernel whose result would be split along its rows, if the copy is not: rows that are
/// computed whole are then stored whole.
pub(crate) fn absorb_permutations(d: &mut Draft) {
    let mut readers = vec![0usize; d.slots.len()];
    let mut maker = vec![None; d.slots.len()];
    for (k, item) in d.steps.iter().enumerate() {
        item.step.inputs().into_iter().for_each(|s| readers[s] += 1);
        if let Some(l) = item.step.local() {
            maker[l.out] = Some(k);
        }
    }
    d.outs.iter().for_each(|s| readers[*s] += 1);
    let mut gone = vec![false; d.steps.len()];
    for (k, gone) in gone.iter_mut().enumerate() {
        let Some(LocalStep { out, nest: loop_nest, .. }) = d.steps[k].step.local() else { continue };
        let asked = d.steps[k].info.user_collective.is_some();
        let Some(slot) = loop_nest.copied_operand().filter(|s| readers[*s] == 1 && !asked) else { continue };
        let Some(to) = copy_permutation(loop_nest, &d.slots[slot].shape) else { continue };
        let (from, layout) = (&d.slots[slot].layout, &d.slots[out].layout);
        let alike = from.partial == layout.partial;
        let Some(m) = maker[slot].filter(|m| alike && can_permute(&d.steps[*m])) else { continue };
        let further = || {
            let mut dims = from.dims.iter().zip(&to);
            from.partial.is_none() && dims.all(|(l, to)| layout.dims[*to].sub_axes.starts_with(&l.sub_axes))
        };
        let absorbs = (is_reduction(&d.steps[m]) && further()) || keeps_rows(&d.steps[m], from, layout, &to);
        if d.steps[k].info.constrained && !absorbs {
            continue;
        }
        let copy = d.steps[k].clone();
        let (held, item) = (from != layout, &mut d.steps[m]);
        item.info.requested |= copy.info.constrained || copy.info.requested;
        item.info.for_consumer =
            copy.info.for_consumer.or_else(|| held.then_some(copy.origin)).or(item.info.for_consumer.take());
        item.info.hoisted_from = copy.info.hoisted_from.or(item.info.hoisted_from.take());
        // the former layout does not matter, because no other step sees the source of the copy
        let Step::Local { out: made, nest: loop_nest, .. } = &mut d.steps[m].step else { continue };
        *made = out;
        permute(loop_nest, &to);
        maker[out] = Some(m);
        *gone = true;
    }
    let mut gone = gone.into_iter();
    d.steps.retain(|_| !gone.next().unwrap_or(false));
}

/// Returns true if a step can compute its result with permuted dimensions.
fn can_permute(item: &DraftStep) -> bool {
    let permutes =
        item.step.loop_nest().is_some_and(|s| s.compute.can_permute_loops() && !places_elements(s));
    permutes && !item.info.constrained && item.info.user_collective.is_none()
}

/// Returns true if a step is a reduction or a contraction.
fn is_reduction(item: &DraftStep) -> bool {
    item.step.loop_nest().is_some_and(|s| s.compute.reduces())
}

/// Returns true if a step is a row kernel whose result is split along its rows, and the copy of it
/// is not. Dimension `d` of the result is dimension `to[d]` of the copy.
fn keeps_rows(item: &DraftStep, from: &Layout, copy: &Layout, to: &[usize]) -> bool {
    let rows = item.step.loop_nest().map_or(&[][..], |nest| nest.compute.row_loops());
    rows.iter().any(|d| from.dims[*d].num_shards() > 1)
        && rows.iter().all(|d| copy.dims[to[*d]].num_shards() == 1)
}

/// Returns the loop over each dimension of the source, if a copy only permutes dimensions.
pub(super) fn copy_permutation(s: &LoopNest, shape: &[usize]) -> Option<Vec<usize>> {
    let [part] = &s.accesses[0].pieces[..] else { return None };
    let full = part.ranges.iter().zip(&s.extents).all(|(v, n)| v.lo == 0 && v.step == 1 && v.hi >= *n as i64);
    let of = |(m, n): (&crate::ir::program::loop_nest::AffineExpr, &usize)| match m.terms[..] {
        [(l, 1)] if m.constant == 0 && s.extents[l] == *n => Some(l),
        _ => None,
    };
    let to: Vec<usize> = part.map.iter().zip(shape).map(of).collect::<Option<_>>()?;
    let mut seen = to.clone();
    small_sort::sort(&mut seen);
    (full && seen.iter().copied().eq(0..s.extents.len())).then_some(to)
}

/// Moves result loop `d` of a loop nest to position `to[d]`.
fn permute(s: &mut LoopNest, to: &[usize]) {
    let position = |l: usize| to.get(l).copied().unwrap_or(l);
    let moved = |list: &mut [usize]| {
        let old = list.to_vec();
        old.into_iter().enumerate().for_each(|(l, x)| list[position(l)] = x);
    };
    moved(&mut s.extents);
    for p in s.accesses.iter_mut().flat_map(|r| &mut r.pieces) {
        let old = p.ranges.clone();
        old.into_iter().enumerate().for_each(|(l, x)| p.ranges[position(l)] = x);
        p.map.iter_mut().flat_map(|m| &mut m.terms).for_each(|t| t.0 = position(t.0));
    }
    s.compute.rename_loops(position);
}
