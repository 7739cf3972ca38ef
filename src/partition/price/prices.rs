//! Prices of fetches, each worked out once: layers repeat, and so do their fetches.

use crate::partition::layout::DimLayout;
use crate::partition::price::cost::{Cost, SAMPLE, cost};
use crate::partition::price::reader::Reader;
use crate::partition::program::{Slot, Stored};
use crate::program::sentence::Source;
use crate::sharding::atoms::Atom;
use std::cell::RefCell;
use std::collections::HashMap;

/// What is known of the fetches of a program over so many devices.
#[derive(Debug)]
pub(crate) struct Prices {
    known: RefCell<Known>,
    /// How many combinations of irregular digits are looked at.
    sample: usize,
}

impl Default for Prices {
    fn default() -> Prices {
        Prices { known: RefCell::default(), sample: SAMPLE }
    }
}

#[derive(Debug, Default)]
struct Known {
    costs: HashMap<Box<[i64]>, Cost>,
    /// Where keys are written before they are looked up.
    key: Vec<i64>,
}

impl Prices {
    /// Prices to look for better ways by: where digits are irregular they are nearer to a guess.
    pub(crate) fn rough() -> Prices {
        Prices { sample: SAMPLE / 16, ..Prices::default() }
    }
    /// What fetching `slot` for these readers moves; see [`cost`].
    pub(crate) fn of(
        &self,
        devices: usize,
        slot: Slot,
        stored: &Stored,
        readers: &[Reader],
        copies: i64,
    ) -> Cost {
        if copies == 1 && stored.layout.dims.iter().all(|l| l.atoms.is_empty()) {
            // every device holds all of it
            return Cost { exact: true, ..Cost::default() };
        }
        let mut known = self.known.borrow_mut();
        let Known { costs, key } = &mut *known;
        key.clear();
        write(key, devices, slot, stored, readers, copies);
        if let Some(c) = costs.get(&key[..]) {
            return *c;
        }
        let c = cost(devices, slot, stored, readers, copies, self.sample);
        costs.insert(key.as_slice().into(), c);
        c
    }
}

/// All that a cost depends on, as numbers, each list with its length: equal keys are equal questions.
pub(crate) fn write(
    key: &mut Vec<i64>,
    devices: usize,
    slot: Slot,
    stored: &Stored,
    readers: &[Reader],
    copies: i64,
) {
    key.extend([devices as i64, copies, readers.len() as i64]);
    sizes(key, &stored.shape);
    layouts(key, &stored.layout.dims);
    for r in readers {
        let s = r.sentence;
        key.push(i64::from(s.body.reads_by_position()));
        sizes(key, &s.extents);
        layouts(key, r.layout);
        let parts = &s.reads[r.read].parts;
        key.push(parts.len() as i64);
        // a fetch of one value has nothing to do with parts of others, which may be many
        for p in parts.iter().filter(|p| p.from == Source::Value(slot)) {
            key.push(p.span.len() as i64);
            p.span.iter().for_each(|v| key.extend([v.lo, v.hi, v.step]));
            key.push(p.map.len() as i64);
            for m in &p.map {
                key.extend([m.at, m.terms.len() as i64]);
                m.terms.iter().for_each(|t| key.extend([t.0 as i64, t.1]));
            }
        }
    }
}

pub(crate) fn sizes(key: &mut Vec<i64>, list: &[usize]) {
    key.push(list.len() as i64);
    key.extend(list.iter().map(|n| *n as i64));
}

pub(crate) fn layouts(key: &mut Vec<i64>, list: &[DimLayout]) {
    key.push(list.len() as i64);
    for l in list {
        key.extend([l.block, l.origin]);
        digits(key, &l.atoms);
    }
}

pub(crate) fn digits(key: &mut Vec<i64>, list: &[Atom]) {
    key.push(list.len() as i64);
    list.iter().for_each(|a| key.extend([a.stride as i64, a.size as i64]));
}
