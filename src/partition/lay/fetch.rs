//! Where fetches go: each value's before the first step that reads of it what its device does not hold.

use crate::partition::draft::{Draft, Item};
use crate::partition::price::reader::Reader;
use crate::partition::program::{Need, Slot, Step};

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
    let mut before: Vec<Vec<Slot>> = vec![Vec::new(); d.items.len()];
    for (src, list) in needs.iter().enumerate() {
        if let Some(first) = list.first() {
            before[first.reader].push(src);
        }
    }
    let mut shift = 0;
    let mut moved = Vec::with_capacity(before.len());
    for (k, fetches) in before.iter().enumerate() {
        shift += fetches.len();
        moved.push(k + shift);
    }
    for (k, item) in std::mem::take(&mut d.items).into_iter().enumerate() {
        for src in &before[k] {
            let list = std::mem::take(&mut needs[*src]);
            let needs = list.into_iter().map(|n| Need { reader: moved[n.reader], ..n }).collect();
            d.items.push(Item::new(Step::Fetch { src: *src, needs }, item.why.clone()));
        }
        d.items.push(item);
    }
}
