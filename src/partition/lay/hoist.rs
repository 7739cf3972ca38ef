//! What is the same in every step of a loop is fetched before it: a fixed input is laid out as its readers inside need it.

use crate::partition::draft::Draft;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::factors::factored;
use crate::partition::price::reader::{Fetch, Reader};
use crate::partition::program::{Slot, Step, Stored, Why};
use crate::sharding::atoms::{Atoms, canonical};

/// The most bytes that a device holds of one value for the sake of a loop.
pub(super) const LIMIT: usize = 1 << 30;

/// A fixed input of a loop's body that is laid out as its readers need it.
#[derive(Clone, Debug)]
pub(crate) struct Adopted {
    pub(crate) slot: Slot,
    /// For whose sake.
    pub(crate) why: Why,
    /// Whether the user asks for it: all who need it so reshard it.
    pub(crate) asked: bool,
}

/// Lays the fixed inputs of a loop's body out as their readers need them, where they can agree; which, and for whom.
pub(crate) fn adopt(d: &mut Draft) -> Vec<Adopted> {
    let mut adopted = Vec::new();
    for slot in d.once.clone() {
        if let Some((layout, adoption)) = wanted(d, slot) {
            d.slots[slot].layout = layout;
            adopted.push(adoption);
        }
    }
    if !adopted.is_empty() {
        drop_copies(d);
    }
    adopted
}

/// How a fixed input is to be laid out so that nothing of it is fetched inside.
fn wanted(d: &Draft, slot: Slot) -> Option<(Layout, Adopted)> {
    let stored = &d.slots[slot];
    if d.outs.contains(&slot) || stored.layout.partial.is_some() {
        return None;
    }
    let mut readers: Vec<Reader> = Vec::new();
    let mut dims: Option<Vec<Atoms>> = None;
    let (mut why, mut asked) = (None, true);
    for item in &d.items {
        let Step::Local { sentence, layout, .. } = &item.step else {
            // others take it as it is
            if item.step.inputs().contains(&slot) {
                return None;
            }
            continue;
        };
        for read in (0..sentence.reads.len()).filter(|r| sentence.reads[*r].sources().contains(&slot)) {
            let reader = Reader { sentence, read, layout };
            readers.push(reader);
            if d.moved(slot, &[reader]) == 0 {
                continue;
            }
            let mut needed = vec![Atoms::new(); stored.shape.rank()];
            for f in factored(slot, stored, &reader, false)? {
                needed[f.dim].extend(f.wanted);
            }
            why.get_or_insert_with(|| item.why.clone());
            asked &= item.pinned || item.asked;
            dims = Some(match dims {
                None => needed,
                // where readers differ, all of it
                Some(before) => before
                    .into_iter()
                    .zip(needed)
                    .map(|(a, b)| if a == b { a } else { Atoms::new() })
                    .collect(),
            });
        }
    }
    let dims = dims?.into_iter().zip(&stored.shape[..]).map(|(a, n)| DimLayout::new(*n, canonical(a)));
    let layout = Layout { dims: dims.collect(), partial: None };
    let held: i64 = layout.region(&stored.shape, 0).iter().map(|v| v.1 - v.0).product();
    let there = Stored { layout: layout.clone(), ..stored.clone() };
    let fetch = Fetch { devices: d.devices, slot, stored: &there, readers: &readers, copies: 1 };
    let fits = held as usize * stored.dtype.size() <= LIMIT;
    let adopted = Adopted { slot, why: why?, asked };
    (d.prices.total(&fetch) == (0, true) && fits).then_some((layout, adopted))
}

/// Removes copies of values that are where the copy is to be.
fn drop_copies(d: &mut Draft) {
    let mut renamed: Vec<(Slot, Slot)> = Vec::new();
    for mut item in std::mem::take(&mut d.items) {
        for (from, to) in &renamed {
            rename(&mut item.step, *from, *to);
        }
        if let Step::Local { out, sentence, .. } = &item.step
            && d.is_copy(sentence)
            && !d.outs.contains(out)
            && let Some(src) = sentence.reads[0].sources().first().copied()
            && d.slots[src].layout == d.slots[*out].layout
        {
            renamed.push((*out, src));
            continue;
        }
        d.items.push(item);
    }
}

/// A step that reads `to` where it read `from`.
fn rename(step: &mut Step, from: Slot, to: Slot) {
    let each = |list: &mut Vec<Slot>| list.iter_mut().filter(|s| **s == from).for_each(|s| *s = to);
    match step {
        Step::Local { sentence, .. } => sentence.replace(from, to),
        Step::Fetch { src, .. } | Step::Reduce { src, .. } => {
            if *src == from {
                *src = to;
            }
        }
        Step::Loop { fixed, carry, xs, .. } => [fixed, carry, xs].map(each).into_iter().collect(),
        Step::While { cond_fixed, body_fixed, carry, .. } => {
            [cond_fixed, body_fixed, carry].map(each).into_iter().collect()
        }
        Step::Branch { which, ins, .. } => {
            if *which == from {
                *which = to;
            }
            each(ins);
        }
        Step::Print { values, .. } => {
            values.iter_mut().filter(|v| v.slot == from).for_each(|v| v.slot = to);
        }
    }
}
