//! Inserts the fetches that make remote elements readable.

use crate::core::util::small_sort;
use crate::partition::cost::consumer::Consumer;
use crate::partition::draft::{Draft, DraftStep};
use crate::partition::program::{FetchRequest, Slot, Step, StepOrigin};

/// Inserts one fetch for each value that some device reads and does not fully hold.
/// It precedes the first step that reads remote elements.
pub(crate) fn insert_fetches(d: &mut Draft) {
    let mut needs: Vec<Vec<FetchRequest>> = vec![Vec::new(); d.slots.len()];
    for (k, item) in d.steps.iter().enumerate() {
        let Step::Local { nest: loop_nest, layout, .. } = &item.step else { continue };
        for (read, r) in loop_nest.accesses.iter().enumerate() {
            for src in r.sources() {
                if d.needs_fetch(src, Consumer { nest: loop_nest, access: read, layout }) {
                    needs[src].push(FetchRequest { consumer_step: k, access: read });
                }
            }
        }
    }
    // collect the fetches first, because inserting one shifts the indices of later steps
    let mut before: Vec<Vec<(Slot, StepOrigin)>> = vec![Vec::new(); d.steps.len()];
    for (src, list) in needs.iter_mut().enumerate() {
        let Some(first) = list.iter().map(|n| n.consumer_step).min() else { continue };
        // attribute the fetch to the consumer with the first source location, so that the result
        // does not depend on the order of steps
        small_sort::sort_by(list, |a, b| {
            let of = |n: &FetchRequest| {
                (d.steps[n.consumer_step].origin.location, &d.steps[n.consumer_step].origin.op)
            };
            of(a).cmp(&of(b))
        });
        before[first].push((src, d.steps[list[0].consumer_step].origin.clone()));
    }
    let mut shift = 0;
    let mut moved = Vec::with_capacity(before.len());
    for (k, fetches) in before.iter().enumerate() {
        shift += fetches.len();
        moved.push(k + shift);
    }
    for (item, fetches) in std::mem::take(&mut d.steps).into_iter().zip(before) {
        for (src, why) in fetches {
            let list = std::mem::take(&mut needs[src]);
            let needs = list
                .into_iter()
                .map(|n| FetchRequest { consumer_step: moved[n.consumer_step], ..n })
                .collect();
            d.steps.push(DraftStep::new(Step::Fetch { src, requests: needs }, why));
        }
        d.steps.push(item);
    }
}
