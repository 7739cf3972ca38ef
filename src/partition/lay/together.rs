//! Small sums that are ready at once go in one exchange: their steps follow one another.
//!
//! Of small sums over the same parts those are one exchange that wait for as many small sums before them; none of these can need another. So it is
//! decided by what depends on what, and not by the order of equations. Within an exchange they stand in the order of the user's lines.

use crate::partition::draft::{Draft, Item};
use crate::partition::program::{Slot, Step, Why};
use crate::partition::route;
use crate::sharding::atoms::{Atoms, without};
use crate::sorted;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Puts the steps of such sums behind one another; all other steps stay in order as far as what they read lets them.
pub(crate) fn gather(d: &mut Draft) {
    let node_of = exchanges(d);
    let Some(node_of) = node_of else { return };
    let n = d.items.len();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); n];
    (0..n).for_each(|k| members[node_of[k]].push(k));
    by_line(d, &mut members);
    // what each node waits for
    let mut maker: Vec<Option<usize>> = vec![None; d.slots.len()];
    for (k, item) in d.items.iter().enumerate() {
        item.step.outputs().into_iter().for_each(|s| maker[s] = Some(node_of[k]));
    }
    let (mut waits, mut then) = (vec![0usize; n], vec![Vec::new(); n]);
    let mut last_told = None;
    for (k, item) in d.items.iter().enumerate() {
        let own = node_of[k];
        let mut before: Vec<usize> = item.step.inputs().into_iter().filter_map(|s| maker[s]).collect();
        if item.step.prints() {
            // what is printed stays in order
            before.extend(last_told.replace(own));
        }
        sorted::sort(&mut before);
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
    let mut items: Vec<Option<Item>> = std::mem::take(&mut d.items).into_iter().map(Some).collect();
    d.items = order.into_iter().filter_map(|k: usize| items[k].take()).collect();
}

/// Sums of one exchange in an order that is not that of equations: by lines, operations, what is combined how, and what made it.
fn by_line(d: &Draft, members: &mut [Vec<usize>]) {
    let mut maker: Vec<Option<usize>> = vec![None; d.slots.len()];
    for (k, item) in d.items.iter().enumerate() {
        item.step.outputs().into_iter().for_each(|s| maker[s] = Some(k));
    }
    let why = |w: &Why| (w.place, w.op.clone(), w.phase);
    let key = |k: &usize| match d.items[*k].step {
        Step::Reduce { src, combine, .. } => {
            let made = maker[src].map(|m| why(&d.items[m].why));
            Some((why(&d.items[*k].why), combine as u8, d.slots[src].shape.to_vec(), made))
        }
        _ => None,
    };
    for group in members.iter_mut().filter(|group| group.len() > 1) {
        sorted::sort_by(group, |a, b| key(a).cmp(&key(b)));
    }
}

/// For each step the last one that is in its exchange, itself if it is no small sum; `None` if no two are.
fn exchanges(d: &Draft) -> Option<Vec<usize>> {
    let parts = |s: Slot| d.slots[s].layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
    // how many small sums a value waits for, at most
    let mut depth = vec![0usize; d.slots.len()];
    let mut told = 0;
    let mut alike: BTreeMap<(Atoms, usize, usize), Vec<usize>> = BTreeMap::new();
    for (k, item) in d.items.iter().enumerate() {
        let mut far = item.step.inputs().into_iter().map(|s| depth[s]).max().unwrap_or(0);
        if let Step::Reduce { src, out, .. } = item.step
            && route::small(&d.slots[src], &d.slots[out].layout).is_some()
        {
            let gone = without(&parts(src), &parts(out)).unwrap_or_default();
            alike.entry((gone, d.slots[out].dtype.size(), far)).or_default().push(k);
            far += 1;
        }
        if item.step.prints() {
            far = far.max(told);
            told = far;
        }
        item.step.outputs().into_iter().for_each(|s| depth[s] = far);
    }
    let mut node_of: Vec<usize> = (0..d.items.len()).collect();
    let groups = alike.into_values().filter(|g| g.len() > 1);
    let mut any = false;
    for group in groups {
        let last = group.iter().copied().max()?;
        group.into_iter().for_each(|k| node_of[k] = last);
        any = true;
    }
    any.then_some(node_of)
}
