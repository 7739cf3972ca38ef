//! Prices of fetches, each worked out once: layers repeat, and so do their fetches.

use crate::digest::Digest;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::cost::{Cost, SAMPLE};
use crate::partition::price::reader::{Fetch, Reader};
use crate::partition::program::Slot;
use crate::program::sentence::{Part, Source};
use crate::sharding::atoms::Atom;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// What is known of the fetches of a program over so many devices.
#[derive(Debug)]
pub(crate) struct Prices {
    known: RefCell<Known>,
    /// How many combinations of irregular digits are looked at.
    sample: usize,
}

type Map<T> = HashMap<Box<[i64]>, T, BuildHasherDefault<Digest>>;

impl Default for Prices {
    fn default() -> Prices {
        Prices { known: RefCell::default(), sample: SAMPLE }
    }
}

#[derive(Debug, Default)]
struct Known {
    costs: Map<Cost>,
    /// Of those alone of which no more was asked.
    totals: Map<(i64, bool)>,
    /// Where the loops of steps run, by all that it depends on.
    steps: Map<Vec<DimLayout>>,
    /// What it takes to combine parts, and where they are scattered.
    sums: Map<(f64, Option<Layout>)>,
    /// Where keys are written before they are looked up.
    key: Vec<i64>,
}

impl Prices {
    /// Prices to look for better ways by: where digits are irregular they are nearer to a guess.
    pub(crate) fn rough() -> Prices {
        Prices { sample: SAMPLE / 16, ..Prices::default() }
    }
    /// What a fetch moves.
    pub(crate) fn of(&self, f: &Fetch) -> Cost {
        match f.is_everywhere() {
            true => Cost { exact: true, ..Cost::default() },
            false => self.known(f, |k| &mut k.costs, || f.cost(self.sample)),
        }
    }
    /// What it moves in all, and whether that is exact: less to find out.
    pub(crate) fn total(&self, f: &Fetch) -> (i64, bool) {
        match f.is_everywhere() {
            true => (0, true),
            false => self.known(f, |k| &mut k.totals, || f.total(self.sample)),
        }
    }
    fn known<T: Copy>(
        &self,
        f: &Fetch,
        table: impl FnOnce(&mut Known) -> &mut Map<T>,
        find: impl FnOnce() -> T,
    ) -> T {
        let mut known = self.known.borrow_mut();
        let mut key = std::mem::take(&mut known.key);
        key.clear();
        write(&mut key, f);
        let table = table(&mut known);
        let found = table.get(&key[..]).copied();
        let answer = found.unwrap_or_else(find);
        if found.is_none() {
            table.insert(key.as_slice().into(), answer);
        }
        known.key = key;
        answer
    }
    /// Where the loops of a step run, decided once for all steps of which this key says everything.
    pub(crate) fn step(&self, key: Vec<i64>, decide: impl FnOnce() -> Vec<DimLayout>) -> Vec<DimLayout> {
        if let Some(loops) = self.known.borrow().steps.get(&key[..]) {
            return loops.clone();
        }
        let loops = decide();
        self.known.borrow_mut().steps.insert(key.into(), loops.clone());
        loops
    }
    /// How parts are combined, decided once likewise.
    pub(crate) fn sum(
        &self,
        key: Vec<i64>,
        decide: impl FnOnce() -> (f64, Option<Layout>),
    ) -> (f64, Option<Layout>) {
        if let Some(way) = self.known.borrow().sums.get(&key[..]) {
            return way.clone();
        }
        let way = decide();
        self.known.borrow_mut().sums.insert(key.into(), way.clone());
        way
    }
}

impl Fetch<'_> {
    /// Whether every device holds all of the value.
    fn is_everywhere(&self) -> bool {
        self.copies == 1 && self.stored.layout.dims.iter().all(|l| l.atoms.is_empty())
    }
}

/// All that a cost depends on, as numbers, each list with its length: equal keys are equal questions.
pub(crate) fn write(key: &mut Vec<i64>, f: &Fetch) {
    let Fetch { devices, slot, stored, readers, copies } = *f;
    key.extend([devices as i64, copies, readers.len() as i64]);
    sizes(key, &stored.shape);
    layouts(key, &stored.layout.dims);
    readers.iter().for_each(|r| reader(key, slot, r));
}

/// All that a reader asks of a value.
pub(crate) fn reader(key: &mut Vec<i64>, slot: Slot, r: &Reader) {
    let s = r.sentence;
    key.push(i64::from(s.body.reads_by_position()));
    sizes(key, &s.extents);
    layouts(key, r.layout);
    let parts = &s.reads[r.read].parts;
    key.push(parts.len() as i64);
    // a fetch of one value has nothing to do with parts of others, which may be many
    parts.iter().filter(|p| p.from == Source::Value(slot)).for_each(|p| part(key, p));
}

/// Where a part is read, and at which indices.
pub(crate) fn part(key: &mut Vec<i64>, p: &Part) {
    key.push(p.span.len() as i64);
    p.span.iter().for_each(|v| key.extend([v.lo, v.hi, v.step]));
    key.push(p.map.len() as i64);
    for m in &p.map {
        key.extend([m.at, m.terms.len() as i64]);
        m.terms.iter().for_each(|t| key.extend([t.0 as i64, t.1]));
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
