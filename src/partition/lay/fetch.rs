//! Where fetches go: each value's before the first step that reads of it what its device does not hold.

use crate::partition::draft::{Draft, Item};
use crate::partition::price::reader::Reader;
use crate::partition::program::{Need, Slot, Step, Why};
use crate::sorted;

/// Puts one fetch for each value before the first step that reads of it what its device does not hold.
pub(crate) fn insert(d: &mut Draft) {
    let mut needs: Vec<Vec<Need>> = vec![Vec::new(); d.slots.len()];
    for (k, item) in d.items.iter().enumerate() {
        let Step::Local { sentence, layout, .. } = &item.step else { continue };
        for (read, r) in sentence.reads.iter().enumerate() {
            for src in r.sources() {
                if d.brings(src, Reader { sentence, read, layout }) {
                    needs[src].push(Need { reader: k, read });
                }
            }
        }
    }
    // steps move by the fetches before them
    let mut before: Vec<Vec<(Slot, Why)>> = vec![Vec::new(); d.items.len()];
    for (src, list) in needs.iter_mut().enumerate() {
        let Some(first) = list.iter().map(|n| n.reader).min() else { continue };
        // the one that asks is that of the first line: which one runs first is as the program happens to be written
        sorted::sort_by(list, |a, b| {
            let of = |n: &Need| (d.items[n.reader].why.place, &d.items[n.reader].why.op);
            of(a).cmp(&of(b))
        });
        before[first].push((src, d.items[list[0].reader].why.clone()));
    }
    let mut shift = 0;
    let mut moved = Vec::with_capacity(before.len());
    for (k, fetches) in before.iter().enumerate() {
        shift += fetches.len();
        moved.push(k + shift);
    }
    for (item, fetches) in std::mem::take(&mut d.items).into_iter().zip(before) {
        for (src, why) in fetches {
            let list = std::mem::take(&mut needs[src]);
            let needs = list.into_iter().map(|n| Need { reader: moved[n.reader], ..n }).collect();
            d.items.push(Item::new(Step::Fetch { src, needs }, why));
        }
        d.items.push(item);
    }
}
