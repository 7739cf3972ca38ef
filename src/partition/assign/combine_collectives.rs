//! Combines small reductions that are ready at the same time into one exchange.
//!
//! Their steps become consecutive. Small reductions over the same sub-axes, with elements of the
//! same size, are combined if the longest chain of small reductions before each has the same
//! length; none of them can then depend on another. The result depends on the dataflow and not on
//! the order of equations. Within an exchange, reductions are sorted by source location.

use crate::core::{SubAxes, sharding::sub_axes::subtract, util::small_sort};
use crate::partition::draft::{Draft, DraftStep};
use crate::partition::program::{Slot, StepOrigin};
use crate::partition::tree_reduce;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Makes the steps of each exchange consecutive.
/// Other steps keep their order as far as dependencies allow.
pub(crate) fn combine_small_reductions(d: &mut Draft) {
    let node_of = exchange_groups(d);
    let Some(node_of) = node_of else { return };
    let n = d.steps.len();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); n];
    (0..n).for_each(|k| members[node_of[k]].push(k));
    sort_by_location(d, &mut members);
    // count the dependencies of each node
    let mut maker: Vec<Option<usize>> = vec![None; d.slots.len()];
    for (k, item) in d.steps.iter().enumerate() {
        item.step.outputs().into_iter().for_each(|s| maker[s] = Some(node_of[k]));
    }
    let (mut waits, mut then) = (vec![0usize; n], vec![Vec::new(); n]);
    let mut last_told = None;
    for (k, item) in d.steps.iter().enumerate() {
        let own = node_of[k];
        let mut before: Vec<usize> = item.step.inputs().into_iter().filter_map(|s| maker[s]).collect();
        if item.step.has_prints() {
            // prints stay in order
            before.extend(last_told.replace(own));
        }
        small_sort::sort(&mut before);
        before.dedup();
        for b in before.into_iter().filter(|b| *b != own) {
            waits[own] += 1;
            then[b].push(own);
        }
    }
    let is_node = |k: &usize| !members[*k].is_empty();
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..n).filter(|k| is_node(k) && waits[*k] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(n);
    while let Some(Reverse(node)) = ready.pop() {
        order.extend(&members[node]);
        for next in &then[node] {
            waits[*next] -= 1;
            if waits[*next] == 0 {
                ready.push(Reverse(*next));
            }
        }
    }
    debug_assert_eq!(order.len(), n, "no step waits for itself");
    let mut items: Vec<Option<DraftStep>> = std::mem::take(&mut d.steps).into_iter().map(Some).collect();
    d.steps = order.into_iter().filter_map(|k: usize| items[k].take()).collect();
}

/// Sorts the reductions of an exchange independently of the order of equations.
/// The keys are source location, operation, phase, scope, reducer, shape, and the origin of the
/// operand.
fn sort_by_location(d: &Draft, members: &mut [Vec<usize>]) {
    let mut maker: Vec<Option<usize>> = vec![None; d.slots.len()];
    for (k, item) in d.steps.iter().enumerate() {
        item.step.outputs().into_iter().for_each(|s| maker[s] = Some(k));
    }
    let why = |w: &StepOrigin| (w.location, w.op.clone(), w.phase, w.scope.clone());
    let key = |k: &usize| {
        let (src, _, combine) = d.steps[*k].step.reduction()?;
        let made = maker[src].map(|m| why(&d.steps[m].origin));
        Some((why(&d.steps[*k].origin), combine as u8, d.slots[src].shape.to_vec(), made))
    };
    for group in members.iter_mut().filter(|group| group.len() > 1) {
        small_sort::sort_by(group, |a, b| key(a).cmp(&key(b)));
    }
}

/// Returns, for each step, the last step in its exchange, or the step itself if it is in none.
/// `None` if there is no exchange.
fn exchange_groups(d: &Draft) -> Option<Vec<usize>> {
    let partials = |s: Slot| d.slots[s].layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
    // the maximum number of small reductions that a value depends on
    let mut depth = vec![0usize; d.slots.len()];
    let mut told = 0;
    let mut alike: BTreeMap<(SubAxes, usize, usize), Vec<usize>> = BTreeMap::new();
    for (k, item) in d.steps.iter().enumerate() {
        let mut far = item.step.inputs().into_iter().map(|s| depth[s]).max().unwrap_or(0);
        if let Some((src, out, _)) = item.step.reduction()
            && tree_reduce::tree_reduction(&d.slots[src], &d.slots[out].layout).is_some()
        {
            let gone = subtract(&partials(src), &partials(out)).unwrap_or_default();
            alike.entry((gone, d.slots[out].dtype.size(), far)).or_default().push(k);
            far += 1;
        }
        if item.step.has_prints() {
            far = far.max(told);
            told = far;
        }
        item.step.outputs().into_iter().for_each(|s| depth[s] = far);
    }
    let mut node_of: Vec<usize> = (0..d.steps.len()).collect();
    let groups = alike.into_values().filter(|g| g.len() > 1);
    let mut any = false;
    for group in groups {
        let last = group.iter().copied().max()?;
        group.into_iter().for_each(|k| node_of[k] = last);
        any = true;
    }
    any.then_some(node_of)
}
