//! A cache of fetch costs and layout decisions.
//! Layers repeat, and so do their fetches.

use crate::core::SubAxis;
use crate::ir::program::{AccessPiece, Source};
use crate::partition::cost::consumer::{Consumer, FetchQuery};
use crate::partition::cost::transfer::{MAX_SAMPLED_COMBINATIONS, TransferCost};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::Slot;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::HashSet;

/// The costs and decisions computed so far for one number of devices.
#[derive(Debug)]
pub(crate) struct CostCache {
    tables: RefCell<CostTables>,
    /// The maximum number of combinations of irregular sub-axes that are evaluated.
    max_combinations: usize,
}

/// A cache table.
/// Keys are lists of integers that determine the value.
pub(in crate::partition) type KeyMap<T> = FxHashMap<Box<[i64]>, T>;

impl Default for CostCache {
    fn default() -> CostCache {
        CostCache { tables: RefCell::default(), max_combinations: MAX_SAMPLED_COMBINATIONS }
    }
}

/// The cache tables.
#[derive(Debug, Default)]
struct CostTables {
    /// The costs of fetches.
    costs: KeyMap<TransferCost>,
    /// The totals of fetches whose maximum was not needed.
    totals: KeyMap<(i64, bool)>,
    /// The loop layouts chosen for steps.
    steps: KeyMap<Vec<DimLayout>>,
    /// The bytes moved by reductions, and the intermediate layout of those done in two halves.
    sums: KeyMap<(f64, Option<Layout>)>,
    /// A buffer for keys during lookup.
    key: Vec<i64>,
}

impl CostCache {
    /// Returns a cache for searches.
    ///
    /// Its costs are less precise if sub-axes are irregular.
    pub(crate) fn for_search() -> CostCache {
        CostCache { max_combinations: MAX_SAMPLED_COMBINATIONS / 16, ..CostCache::default() }
    }
    /// Returns the cost of a fetch.
    pub(crate) fn transfer_cost(&self, f: &FetchQuery) -> TransferCost {
        match f.is_replicated() {
            true => TransferCost { exact: true, ..TransferCost::default() },
            false => self.lookup(f, |k| &mut k.costs, || f.cost(self.max_combinations)),
        }
    }
    /// Returns the elements that all devices receive, and whether that is exact.
    /// Cheaper than the full cost.
    pub(crate) fn total(&self, f: &FetchQuery) -> (i64, bool) {
        match f.is_replicated() {
            true => (0, true),
            false => self.lookup(f, |k| &mut k.totals, || f.total(self.max_combinations)),
        }
    }
    /// Looks a fetch up in a table, and computes the value if it is missing.
    fn lookup<T: Copy>(
        &self,
        f: &FetchQuery,
        table: impl FnOnce(&mut CostTables) -> &mut KeyMap<T>,
        find: impl FnOnce() -> T,
    ) -> T {
        let mut known = self.tables.borrow_mut();
        let mut key = std::mem::take(&mut known.key);
        key.clear();
        write_fetch(&mut key, f);
        let table = table(&mut known);
        let found = table.get(&key[..]).copied();
        let answer = found.unwrap_or_else(find);
        if found.is_none() {
            table.insert(key.as_slice().into(), answer);
        }
        known.key = key;
        answer
    }
    /// Returns the layout of a step's loops, computed once for each key.
    pub(crate) fn step_layout(
        &self,
        key: Vec<i64>,
        decide: impl FnOnce() -> Vec<DimLayout>,
    ) -> Vec<DimLayout> {
        if let Some(loops) = self.tables.borrow().steps.get(&key[..]) {
            return loops.clone();
        }
        let loops = decide();
        self.tables.borrow_mut().steps.insert(key.into(), loops.clone());
        loops
    }
    /// Returns the bytes and the intermediate layout of a reduction, computed once for each key.
    pub(crate) fn reduction_plan(
        &self,
        key: Vec<i64>,
        decide: impl FnOnce() -> (f64, Option<Layout>),
    ) -> (f64, Option<Layout>) {
        if let Some(way) = self.tables.borrow().sums.get(&key[..]) {
            return way.clone();
        }
        let way = decide();
        self.tables.borrow_mut().sums.insert(key.into(), way.clone());
        way
    }
}

impl FetchQuery<'_> {
    /// Returns true if every device holds all of the value.
    fn is_replicated(&self) -> bool {
        self.num_partials == 1 && self.stored.layout.dims.iter().all(|l| l.sub_axes.is_empty())
    }
}

/// Appends everything a cost depends on to a key.
/// Lists are preceded by their length, so that keys are unambiguous.
pub(crate) fn write_fetch(key: &mut Vec<i64>, f: &FetchQuery) {
    let FetchQuery { devices, slot, stored, consumers: readers, num_partials: copies } = *f;
    key.extend([devices as i64, copies, readers.len() as i64]);
    write_sizes(key, &stored.shape);
    write_layouts(key, &stored.layout.dims);
    readers.iter().for_each(|r| write_consumer(key, slot, r));
}

/// Appends everything that determines the elements a consumer needs.
pub(crate) fn write_consumer(key: &mut Vec<i64>, slot: Slot, r: &Consumer) {
    let s = r.nest;
    key.push(i64::from(s.compute.has_affine_accesses()));
    write_sizes(key, &s.extents);
    write_layouts(key, r.layout);
    let pieces = &s.accesses[r.access].pieces;
    key.push(pieces.len() as i64);
    // pieces of other values do not affect a fetch
    pieces.iter().filter(|p| p.source == Source::Value(slot)).for_each(|p| write_piece(key, p));
}

/// Appends the ranges and the index map of an access piece.
pub(crate) fn write_piece(key: &mut Vec<i64>, p: &AccessPiece) {
    key.push(p.ranges.len() as i64);
    p.ranges.iter().for_each(|v| key.extend([v.lo, v.hi, v.step]));
    key.push(p.map.len() as i64);
    for m in &p.map {
        key.extend([m.constant, m.terms.len() as i64]);
        m.terms.iter().for_each(|t| key.extend([t.0 as i64, t.1]));
    }
}

/// Appends a list of sizes.
pub(crate) fn write_sizes(key: &mut Vec<i64>, list: &[usize]) {
    key.push(list.len() as i64);
    key.extend(list.iter().map(|n| *n as i64));
}

/// Appends a list of layouts.
pub(crate) fn write_layouts(key: &mut Vec<i64>, list: &[DimLayout]) {
    key.push(list.len() as i64);
    for l in list {
        key.extend([l.block, l.origin]);
        write_sub_axes(key, &l.sub_axes);
    }
}

/// Appends a list of sub-axes.
pub(crate) fn write_sub_axes(key: &mut Vec<i64>, list: &[SubAxis]) {
    key.push(list.len() as i64);
    list.iter().for_each(|a| key.extend([a.stride as i64, a.size as i64]));
}

/// Returns the consumers of a value without those that need the same boxes as an earlier one.
/// Repeated layers cause such duplicates.
pub(crate) fn distinct_consumers<'a>(
    slot: Slot,
    readers: impl IntoIterator<Item = Consumer<'a>>,
) -> Vec<Consumer<'a>> {
    let (mut list, mut known) = (Vec::<Consumer>::new(), HashSet::<Box<[i64]>>::new());
    let mut key = Vec::new();
    for r in readers {
        key.clear();
        write_consumer(&mut key, slot, &r);
        if !known.contains(&key[..]) {
            known.insert(key.as_slice().into());
            list.push(r);
        }
    }
    list
}
