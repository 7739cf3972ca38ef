//! What is the same in every step of a loop, and has to be communicated, is made before it.
//!
//! A value that follows from fixed inputs alone is the same at each step. Where it takes communication to make one, or where a step reads of one
//! what its device does not hold (a halo), it is taken out of the body: made once before the loop, as it is read, and one more fixed input.

use super::hoist::LIMIT;
use super::views;
use crate::partition::draft::{Draft, Item, mapped};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::reader::Reader;
use crate::partition::program::{Slot, Step};
use crate::program::sentence::{Read, Sentence, Span};
use crate::types::Shape;

/// What is to be taken out of a body.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Values that take communication.
    values: Vec<Slot>,
    /// Reads of values that are the same in each step: of the step that makes this value, which, and where its loops run.
    reads: Vec<(Slot, usize, Vec<DimLayout>)>,
}

/// What is to be taken out of a body that is laid out, where values from `n` on are between the steps of a draft's item; `None` if nothing is.
pub(super) fn found(d: &Draft, n: usize) -> Option<Found> {
    if d.trips < 2 {
        return None;
    }
    let mut same = vec![false; d.slots.len()];
    d.once.iter().for_each(|s| same[*s] = true);
    let mut moves = vec![false; d.slots.len()];
    let mut found = Found::default();
    for (k, item) in d.items.iter().enumerate() {
        let inputs = item.step.inputs();
        let fixed = item.step.only_computes() && inputs.iter().all(|s| same[*s]);
        let mut communicates = matches!(item.step, Step::Reduce { .. });
        if let Step::Local { sentence, layout, .. } = &item.step {
            for read in 0..sentence.reads.len() {
                let sources = sentence.reads[read].sources();
                let prices =
                    || sources.iter().map(|s| (s, d.moved(*s, &[Reader { sentence, read, layout }])));
                let bytes: f64 = prices().map(|(s, c)| c as f64 * d.slots[*s].dtype.size() as f64).sum();
                communicates |= bytes > 0.0;
                let whole = |s: &Slot| *s < n && same[*s] && d.slots[*s].layout.partial.is_none();
                if !fixed
                    && bytes > 0.0
                    && sources.iter().all(whole)
                    && is_worth(d, sentence, read, layout, bytes)
                {
                    found.reads.extend(original(d, k, n).map(|out| (out, read, layout.clone())));
                }
            }
        }
        if !fixed {
            continue;
        }
        communicates |= inputs.iter().any(|s| *s >= n && moves[*s]);
        for out in item.step.outputs() {
            (same[out], moves[out]) = (true, communicates);
            if communicates && out < n && !d.outs.contains(&out) && d.slots[out].block_bytes() <= LIMIT {
                found.values.push(out);
            }
        }
    }
    (!found.values.is_empty() || !found.reads.is_empty()).then_some(found)
}

/// Whether it pays to have what a read brings as a value of its own: that is read again at each step, from memory.
fn is_worth(d: &Draft, s: &Sentence, read: usize, layout: &[DimLayout], bytes: f64) -> bool {
    let used = loops_of(&s.reads[read], &s.extents);
    let block = |l: &usize| {
        let v = layout[*l].range(0, s.extents[*l]);
        (v.1 - v.0) as f64
    };
    let elements: f64 = used.iter().map(block).product();
    let held = elements * s.reads[read].dtype.size() as f64;
    held <= LIMIT as f64 && bytes * d.per_byte.elements() > elements * d.devices as f64
}

/// The value of the draft that a laid out step is for: its own result, or what becomes of that.
fn original(d: &Draft, k: usize, n: usize) -> Option<Slot> {
    let mut out = d.items[k].step.outputs().first().copied()?;
    for item in &d.items[k + 1..] {
        if out < n {
            break;
        }
        if item.step.inputs().contains(&out) {
            out = item.step.outputs().first().copied()?;
        }
    }
    (out < n).then_some(out)
}

/// The loops that a read depends on.
fn loops_of(r: &Read, extents: &[usize]) -> Vec<usize> {
    let uses = |l: &usize| {
        r.parts.iter().any(|p| {
            p.span[*l] != Span::all(extents[*l]) || p.map.iter().any(|m| m.terms.iter().any(|t| t.0 == *l))
        })
    };
    (0..extents.len()).filter(uses).collect()
}

/// Takes these out of a body that is not laid out: the steps that make them, and how many fixed inputs it has more, behind the others.
pub(super) fn take_out(d: &mut Draft, found: Found) -> Vec<Item> {
    let mut given: Vec<Slot> = found.values;
    let mut copies: Vec<Item> = Vec::new();
    let mut known: Vec<(Read, Vec<DimLayout>, Slot)> = Vec::new();
    for (out, read, layout) in found.reads {
        let maker = d.items.iter().position(|i| i.step.local().is_some_and(|l| l.out == out));
        let Some(k) = maker else { continue };
        let Step::Local { sentence, .. } = &d.items[k].step else { continue };
        if sentence.extents.len() != layout.len() || read >= sentence.reads.len() {
            continue;
        }
        let (r, extents) = (sentence.reads[read].clone(), sentence.extents.clone());
        let used = loops_of(&r, &extents);
        let place = |l: usize| used.iter().position(|u| *u == l).unwrap_or(0);
        let mut own = r.clone();
        for p in &mut own.parts {
            p.span = used.iter().map(|l| p.span[*l]).collect();
            p.map.iter_mut().flat_map(|m| &mut m.terms).for_each(|t| t.0 = place(t.0));
        }
        let shape: Shape = used.iter().map(|l| extents[*l]).collect();
        let dims: Vec<DimLayout> = used.iter().map(|l| layout[*l].clone()).collect();
        let slot = match known.iter().find(|x| x.0 == own && x.1 == dims) {
            Some(x) => x.2,
            None => {
                let slot = d.slot(r.dtype, shape.clone(), Layout { dims: dims.clone(), partial: None });
                let sentence = mapped(own.clone(), &shape);
                let step = Step::Local { out: slot, sentence, layout: Vec::new() };
                copies.push(Item::new(step, d.items[k].why.clone()));
                known.push((own, dims, slot));
                given.push(slot);
                slot
            }
        };
        let loops: Vec<Option<usize>> = used.iter().copied().map(Some).collect();
        if let Step::Local { sentence, .. } = &mut d.items[k].step {
            sentence.reads[read] = Read::plain(slot, r.dtype, &extents, &loops);
        }
    }
    // what these need, outside too
    let mut needed = vec![false; d.slots.len()];
    given.iter().for_each(|s| needed[*s] = true);
    copies.iter().flat_map(|i| i.step.inputs()).for_each(|s| needed[s] = true);
    let mut outside: Vec<Item> = Vec::new();
    for item in d.items.iter().rev().filter(|i| i.step.only_computes()) {
        if item.step.outputs().iter().any(|s| needed[*s]) {
            item.step.inputs().into_iter().for_each(|s| needed[s] = true);
            outside.push(item.clone());
        }
    }
    outside.reverse();
    outside.extend(copies);
    d.items.retain(|i| !i.step.outputs().iter().any(|s| given.contains(s)));
    let last = d.once.last().and_then(|s| d.ins.iter().position(|i| i == s)).map_or(0, |k| k + 1);
    d.ins.splice(last..last, given.iter().copied());
    d.once.extend(given);
    views::prune(d);
    outside
}
