//! Moves fetches of loop-invariant inputs out of loops.
//!
//! An input gets the layout that its consumers in the body need, so that it is fetched once, before
//! the loop.

use crate::core::{SubAxes, sharding::sub_axes::canonicalize};
use crate::partition::cost::consumer::{Consumer, FetchQuery};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{LocalStep, Slot, StepOrigin, StoredValue};
use crate::partition::{cost::factorize::factorize, draft::Draft};

/// The maximum number of bytes that a device holds of one value hoisted out of a loop.
pub(super) const MAX_HOISTED_BYTES: usize = 1 << 30;

/// A loop-invariant input whose layout was changed to what its consumers need.
#[derive(Clone, Debug)]
pub(crate) struct AdoptedInput {
    /// The slot of the input.
    pub(crate) slot: Slot,
    /// The origin of the consumer that needs the layout.
    pub(crate) origin: StepOrigin,
    /// True if the user requested the layout: every consumer that needs it is a reshard.
    pub(crate) requested: bool,
}

/// Gives loop-invariant inputs the layouts that their consumers need.
/// Returns the inputs that changed.
pub(crate) fn adopt_layouts(d: &mut Draft) -> Vec<AdoptedInput> {
    let mut adopted = Vec::new();
    for slot in d.loop_invariant.clone() {
        if let Some((layout, adoption)) = wanted_layout(d, slot) {
            d.slots[slot].layout = layout;
            adopted.push(adoption);
        }
    }
    if !adopted.is_empty() {
        drop_copies(d);
    }
    adopted
}

/// Returns the layout of an input for which the body fetches none of its elements.
fn wanted_layout(d: &Draft, slot: Slot) -> Option<(Layout, AdoptedInput)> {
    let stored = &d.slots[slot];
    if d.outs.contains(&slot) || stored.layout.partial.is_some() {
        return None;
    }
    let mut readers: Vec<Consumer> = Vec::new();
    let mut dims: Option<Vec<SubAxes>> = None;
    let (mut why, mut asked) = (None, true);
    for item in &d.steps {
        let Some(LocalStep { nest: loop_nest, layout, .. }) = item.step.local() else {
            // a step that is not local reads the input in its current layout
            if item.step.inputs().contains(&slot) {
                return None;
            }
            continue;
        };
        for read in (0..loop_nest.accesses.len()).filter(|r| loop_nest.accesses[*r].sources().contains(&slot))
        {
            let reader = Consumer { nest: loop_nest, access: read, layout };
            readers.push(reader);
            if d.elements_moved(slot, &[reader]) == 0 {
                continue;
            }
            let mut needed = vec![SubAxes::new(); stored.shape.rank()];
            for f in factorize(slot, stored, &reader, false)? {
                needed[f.dim].extend(f.wanted);
            }
            why.get_or_insert_with(|| item.origin.clone());
            asked &= item.info.constrained || item.info.requested;
            dims = Some(match dims {
                None => needed,
                // if consumers need different splits of a dimension, the dimension is left unsplit
                Some(before) => before
                    .into_iter()
                    .zip(needed)
                    .map(|(a, b)| if a == b { a } else { SubAxes::new() })
                    .collect(),
            });
        }
    }
    let dims = dims?.into_iter().zip(&stored.shape[..]).map(|(a, n)| DimLayout::new(*n, canonicalize(a)));
    let layout = Layout { dims: dims.collect(), partial: None };
    let held: i64 = layout.region(&stored.shape, 0).iter().map(|v| v.1 - v.0).product();
    let there = StoredValue { layout: layout.clone(), ..stored.clone() };
    let fetch = FetchQuery { devices: d.devices, slot, stored: &there, consumers: &readers, num_partials: 1 };
    let fits = held as usize * stored.dtype.size() <= MAX_HOISTED_BYTES;
    let adopted = AdoptedInput { slot, origin: why?, requested: asked };
    (d.costs.total(&fetch) == (0, true) && fits).then_some((layout, adopted))
}

/// Removes copies of values that already have the layout of the copy.
fn drop_copies(d: &mut Draft) {
    let mut renamed: Vec<(Slot, Slot)> = Vec::new();
    for mut item in std::mem::take(&mut d.steps) {
        for (from, to) in &renamed {
            item.step.replace_input(*from, *to);
        }
        if let Some(LocalStep { out, nest, .. }) = item.step.local()
            && d.is_copy(nest)
            && !d.outs.contains(&out)
            && let Some(src) = nest.accesses[0].sources().first().copied()
            && d.slots[src].layout == d.slots[out].layout
        {
            renamed.push((out, src));
            continue;
        }
        d.steps.push(item);
    }
}
