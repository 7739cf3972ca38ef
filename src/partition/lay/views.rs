//! Structural operations as views: their readers read through them, and only what must be stored is stored.

use crate::partition::draft::{Draft, Item, Via};
use crate::partition::program::{Slot, Step};
use crate::partition::reads::through;
use crate::program::sentence::{Body, Read, Sentence, Source};
use crate::sorted;

/// More parts than this are stored rather than composed further.
const PARTS: usize = 64;

/// Removes local steps whose results nobody reads, and composes the reads of the others through views. What was composed is
/// returned, by slot.
pub(crate) fn resolve(d: &mut Draft) -> Vec<Option<Via>> {
    prune(d);
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); d.slots.len()];
    let mut fixed = vec![false; d.slots.len()];
    for (k, item) in d.items.iter().enumerate() {
        let composes = item.step.sentence().is_some_and(|s| s.body.reads_by_position());
        for s in item.step.inputs() {
            readers[s].push(k);
            fixed[s] |= !composes;
        }
    }
    d.outs.iter().for_each(|s| fixed[*s] = true);
    let summed = summed(d);
    let mut vias: Vec<Option<Via>> = vec![None; d.slots.len()];
    let mut items = std::mem::take(&mut d.items);
    let mut kept = Vec::with_capacity(items.len());
    for k in 0..items.len() {
        let Step::Local { out, ref mut sentence, .. } = items[k].step else {
            kept.push(k);
            continue;
        };
        let passed = if sentence.body.reads_by_position() { compose(d, sentence, &vias) } else { Vec::new() };
        let sentence = sentence.clone();
        items[k].through = passed;
        // a whole value that is taken as one part, to be summed again, is that value
        let whole = summed[out] && sentence.reads.iter().flat_map(Read::sources).all(|s| is_whole(d, s));
        let in_place = !items[k].pinned || whole && stays(d, &sentence, out);
        if !fixed[out] && in_place && is_view(d, &sentence, out, whole) {
            let inner = &sentence.reads[0];
            let all =
                readers[out].iter().all(|u| readable(d, &items[*u].step, out, inner, &sentence.extents));
            if all {
                let (read, extents) = (inner.clone(), sentence.extents.clone());
                vias[out] = Some(Via { item: items[k].clone(), read, extents });
                continue;
            }
        }
        kept.push(k);
    }
    let mut keep = kept.into_iter().peekable();
    d.items =
        items.into_iter().enumerate().filter_map(|(k, item)| keep.next_if_eq(&k).map(|_| item)).collect();
    vias
}

/// Whether a sentence is a view that can be read through: a copy of the same parts, without steps in its spans.
fn is_view(d: &Draft, s: &Sentence, out: Slot, whole: bool) -> bool {
    let Some(code) = s.body.elementwise() else { return false };
    let [read] = &s.reads[..] else { return false };
    *code == crate::program::sentence::Code::copy(s.dtype)
        && read.dtype == s.dtype
        && read.parts.iter().all(|p| p.span.iter().all(|v| v.step == 1))
        && (whole
            || read.sources().iter().all(|s| d.slots[*s].layout.partial == d.slots[out].layout.partial))
        // a partial value is zero in all but one of them where it is a constant
        && (d.slots[out].layout.partial.is_none() || read.parts.len() == 1)
}

fn is_whole(d: &Draft, slot: Slot) -> bool {
    d.slots[slot].layout.partial.is_none()
}

/// Whether a copy is laid out as what it reads, but for parts.
fn stays(d: &Draft, s: &Sentence, out: Slot) -> bool {
    d.is_copy(s) && s.copied().is_some_and(|slot| d.slots[slot].layout.dims == d.slots[out].layout.dims)
}

/// Unreduced values of which there are only sums: each reader copies them, reduced or again unreduced with nothing but sums read of it.
fn summed(d: &Draft) -> Vec<bool> {
    let mut summed: Vec<bool> = (0..d.slots.len()).map(|s| !is_whole(d, s)).collect();
    d.outs.iter().for_each(|s| summed[*s] = false);
    for item in d.items.iter().rev() {
        let copies = match &item.step {
            Step::Local { out, sentence, .. } => {
                let source = sentence.copied().filter(|_| sentence.reads.len() == 1);
                let moved = source.and_then(|s| permutation(sentence, &d.slots[s].shape));
                moved.is_some() && item.user.is_none() && (is_whole(d, *out) || summed[*out])
            }
            _ => false,
        };
        if !copies {
            item.step.inputs().into_iter().for_each(|s| summed[s] = false);
        }
    }
    summed
}

/// Whether a step can read a slot through this read of other slots.
fn readable(d: &Draft, step: &Step, slot: Slot, inner: &Read, extents: &[usize]) -> bool {
    let Step::Local { sentence, .. } = step else { return false };
    let most = if sentence.body.reads_blocks() { 1 } else { PARTS };
    sentence.reads.iter().all(|r| {
        let others = r.parts.iter().filter(|p| p.from != Source::Value(slot)).count();
        if others == r.parts.len() {
            return true;
        }
        // what has many parts is not made anew for each of them
        let composed =
            if others > most { None } else { through(r, slot, inner, extents, &|s| &d.slots[s].shape) };
        composed.is_some_and(|c| {
            c.parts.len() <= most && (!sentence.body.reads_blocks() || covers(&c, &sentence.extents))
        })
    })
}

/// Whether the one part of a read covers all its loops.
fn covers(read: &Read, extents: &[usize]) -> bool {
    read.parts.iter().all(|p| p.span.iter().zip(extents).all(|(s, n)| s.lo == 0 && s.hi >= *n as i64))
}

/// Reads through every view that the sentence reads; which they were.
fn compose(d: &Draft, s: &mut Sentence, vias: &[Option<Via>]) -> Vec<Slot> {
    let mut passed = Vec::new();
    for r in &mut s.reads {
        for slot in r.sources() {
            let Some(via) = &vias[slot] else { continue };
            if let Some(c) = through(r, slot, &via.read, &via.extents, &|s| &d.slots[s].shape) {
                *r = c;
                passed.push(slot);
                passed.extend(via.item.through.iter().copied());
            }
        }
    }
    passed
}

/// Removes local steps and reductions whose results nobody reads.
pub(super) fn prune(d: &mut Draft) {
    let mut wanted = vec![false; d.slots.len()];
    d.outs.iter().for_each(|s| wanted[*s] = true);
    let mut keep = vec![true; d.items.len()];
    for (k, item) in d.items.iter().enumerate().rev() {
        let pure = item.step.only_computes();
        keep[k] = !pure || item.step.outputs().iter().any(|s| wanted[*s]);
        if keep[k] {
            item.step.inputs().iter().for_each(|s| wanted[*s] = true);
        }
    }
    let mut keep = keep.into_iter();
    d.items.retain(|_| keep.next().unwrap_or(true));
}

/// Computes values in the order of the one copy that reads them: where a stored copy only permutes the dimensions of a value that
/// nobody else reads, the value's step makes the copy itself. A sum that is only wanted split further is made there: it is scattered.
pub(crate) fn absorb(d: &mut Draft) {
    let mut readers = vec![0usize; d.slots.len()];
    let mut maker = vec![None; d.slots.len()];
    for (k, item) in d.items.iter().enumerate() {
        item.step.inputs().into_iter().for_each(|s| readers[s] += 1);
        if let Step::Local { out, .. } = item.step {
            maker[out] = Some(k);
        }
    }
    d.outs.iter().for_each(|s| readers[*s] += 1);
    let mut gone = vec![false; d.items.len()];
    for (k, gone) in gone.iter_mut().enumerate() {
        let Step::Local { out, sentence, .. } = &d.items[k].step else { continue };
        let (out, asked) = (*out, d.items[k].user.is_some());
        let Some(slot) = sentence.copied().filter(|s| readers[*s] == 1 && !asked) else { continue };
        let Some(to) = permutation(sentence, &d.slots[slot].shape) else { continue };
        let (from, layout) = (&d.slots[slot].layout, &d.slots[out].layout);
        let alike = from.partial == layout.partial;
        let Some(m) = maker[slot].filter(|m| alike && movable(&d.items[*m])) else { continue };
        let further = || {
            let mut dims = from.dims.iter().zip(&to);
            from.partial.is_none() && dims.all(|(l, to)| layout.dims[*to].atoms.starts_with(&l.atoms))
        };
        if d.items[k].pinned && !(sums(&d.items[m]) && further()) {
            continue;
        }
        let copy = d.items[k].clone();
        let (held, item) = (from != layout, &mut d.items[m]);
        item.asked |= copy.pinned || copy.asked;
        item.sake = copy.sake.or_else(|| held.then_some(copy.why)).or(item.sake.take());
        item.before = copy.before.or(item.before.take());
        // where the value was to be is no matter: it is the copy that others see
        let Step::Local { out: made, sentence, .. } = &mut d.items[m].step else { continue };
        *made = out;
        permute(sentence, &to);
        maker[out] = Some(m);
        *gone = true;
    }
    let mut gone = gone.into_iter();
    d.items.retain(|_| !gone.next().unwrap_or(false));
}

/// Whether a step may make its result in another order of dimensions.
fn movable(item: &Item) -> bool {
    let permutes = item.step.sentence().is_some_and(|s| s.body.may_permute());
    permutes && !item.pinned && item.user.is_none()
}

/// Whether a step adds up along dimensions, or folds them otherwise.
fn sums(item: &Item) -> bool {
    item.step.sentence().is_some_and(|s| matches!(s.body, Body::Fold { .. } | Body::Product { .. }))
}

/// For each dimension of what a copy reads, the loop that runs over it, if the copy does nothing but permute dimensions.
pub(super) fn permutation(s: &Sentence, shape: &[usize]) -> Option<Vec<usize>> {
    let [part] = &s.reads[0].parts[..] else { return None };
    let whole = part.span.iter().zip(&s.extents).all(|(v, n)| v.lo == 0 && v.step == 1 && v.hi >= *n as i64);
    let of = |(m, n): (&crate::program::sentence::Affine, &usize)| match m.terms[..] {
        [(l, 1)] if m.at == 0 && s.extents[l] == *n => Some(l),
        _ => None,
    };
    let to: Vec<usize> = part.map.iter().zip(shape).map(of).collect::<Option<_>>()?;
    let mut seen = to.clone();
    sorted::sort(&mut seen);
    (whole && seen.iter().copied().eq(0..s.extents.len())).then_some(to)
}

/// The sentence with result loop d at place `to[d]`.
fn permute(s: &mut Sentence, to: &[usize]) {
    let place = |l: usize| to.get(l).copied().unwrap_or(l);
    let moved = |list: &mut [usize]| {
        let old = list.to_vec();
        old.into_iter().enumerate().for_each(|(l, x)| list[place(l)] = x);
    };
    moved(&mut s.extents);
    for p in s.reads.iter_mut().flat_map(|r| &mut r.parts) {
        let old = p.span.clone();
        old.into_iter().enumerate().for_each(|(l, x)| p.span[place(l)] = x);
        p.map.iter_mut().flat_map(|m| &mut m.terms).for_each(|t| t.0 = place(t.0));
    }
    s.body.rename(place);
}
