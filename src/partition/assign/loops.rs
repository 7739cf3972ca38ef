//! Chooses the layout of each local step's loops, by cost.
//!
//! The candidates are the layout of the result, those of the operands, and combinations of them.
//! Data that a step needs may be fetched for another step anyway, so the cost of a candidate counts
//! only the data that it moves in addition. All steps choose at the same time, based on the choices
//! of the previous iteration; the iteration with the lowest total cost wins. The choice therefore
//! depends on which steps read a value, not on which of them comes first in the program.
//!
//! The unit of cost is one computed element. The cost is the number of elements that the busiest
//! device computes times the number of devices, plus, for each received byte, the number of
//! elements that the machine could compute in the time in which it receives a byte
//! ([`TransferPrices`]).

use super::candidates::{combined_layout, loop_layout, split_options};
use super::defer_reduction::{DeferredReduction, Sums};
use super::free_step::{Candidate, FreeStep};
use super::reads::{MAX_NEAR_READS, ReadNeighbours};
use super::reduction::{elements_moved, reduction_plan};
use super::{region_graph::follows_result, scatter};
use crate::core::sharding::sub_axes::{in_device_order, num_shards, truncate_to_free};
use crate::core::{SubAxes, util::small_sort};
use crate::ir::program::{Access, Compute, LoopNest, Source};
use crate::partition::cost::compute::{CostEstimate, computed_elements};
use crate::partition::draft::{self, Draft};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, StoredValue};
use crate::partition::{cost::cache, cost::consumer::Consumer, work};
use std::collections::BTreeMap;

/// The cost of one extra step, in bytes.
///
/// It breaks ties: of the layouts that move equally many bytes, the one with fewer steps wins.
const STEP_COST_BYTES: f64 = 1.0;
/// The maximum number of candidates that are searched exhaustively.
/// Larger spaces are searched one loop at a time.
const MAX_EXHAUSTIVE_CANDIDATES: usize = 64;
/// The maximum number of iterations.
const MAX_ITERATIONS: usize = 4;

/// The layouts chosen for all steps, and their cost.
pub(super) struct Assignment {
    /// The layout of each candidate's loops.
    /// Empty for final steps.
    pub(super) loops: Vec<Vec<DimLayout>>,
    /// The cost of all steps together.
    pub(super) cost: CostEstimate,
}

/// Assigns a layout to the loops of all steps.
pub(super) fn assign_loops(d: &Draft, entries: &[Candidate]) -> Assignment {
    let known = |e: &Candidate| match e {
        Candidate::Free(FreeStep { fixed_loops: Some(loops), .. }) => loops.clone(),
        _ => Vec::new(),
    };
    let (reads, sums) = (ReadNeighbours::new(d, nests(entries)), Sums::new(d, entries));
    let first = Iteration::new(d, entries, (&reads, &sums), entries.iter().map(known).collect());
    iterate(first, vec![true; entries.len()])
}

/// Improves given loop layouts by small changes.
/// Steps that are not `due` keep theirs.
pub(super) fn refine_loops(
    d: &Draft,
    entries: &[Candidate],
    loops: Vec<Vec<DimLayout>>,
    due: Vec<bool>,
) -> Assignment {
    let (reads, sums) = (ReadNeighbours::new(d, nests(entries)), Sums::new(d, entries));
    let mut first = Iteration::new(d, entries, (&reads, &sums), loops);
    first.local_search = true;
    iterate(first, due)
}

/// Returns the layout of the result of loops with this layout.
fn result_layout(s: &LoopNest, loops: &[DimLayout]) -> Layout {
    let partials = in_device_order(loops[s.rank..].iter().flat_map(|l| l.sub_axes.iter().copied()).collect());
    Layout {
        dims: loops[..s.rank].to_vec(),
        partial: (!partials.is_empty()).then_some((s.partial_reducer(), partials)),
    }
}

/// Returns the loop nests of the candidates that need a layout.
fn nests(entries: &[Candidate]) -> impl Iterator<Item = (usize, &LoopNest)> {
    entries.iter().enumerate().filter_map(|(k, e)| match e {
        Candidate::Free(open) => Some((k, &open.nest)),
        Candidate::Fixed(_) => None,
    })
}

/// Assigns layouts to the steps that are `due`, and iterates.
/// A step is due again if the demand of other steps for its operands changed.
fn iterate(mut round: Iteration, mut due: Vec<bool>) -> Assignment {
    let (entries, movable) = (round.candidates, due.clone());
    let mut best =
        round.local_search.then(|| Assignment { cost: round.total_cost(), loops: round.loops.clone() });
    for _ in 0..if round.local_search { MAX_ITERATIONS / 2 } else { MAX_ITERATIONS } {
        let mut next = round.loops.clone();
        for (k, entry) in entries.iter().enumerate() {
            if let (Candidate::Free(open @ FreeStep { fixed_loops: None, .. }), true) = (entry, due[k]) {
                next[k] = round.best_layout(k, open);
            }
        }
        let after = Iteration {
            local_search: round.local_search,
            ..Iteration::new(round.d, entries, (round.reads, round.sums), next)
        };
        due = after.changed_from(&round, entries);
        due.iter_mut().zip(&movable).for_each(|(due, movable)| *due &= movable);
        let price = after.total_cost();
        // sums of costs differ in their last bits depending on the order of steps
        if best.as_ref().is_none_or(|b| price.total < b.cost.total * (1.0 - 1e-9)) {
            best = Some(Assignment { cost: price, loops: after.loops.clone() });
        }
        if !due.contains(&true) {
            break;
        }
        round = after;
    }
    best.unwrap_or_else(|| Assignment { loops: Vec::new(), cost: CostEstimate { bytes: 0.0, total: 0.0 } })
}

/// Accesses that need the same boxes of one value, some of which their devices may not hold.
struct SharedRequest<'a> {
    /// One of the accesses, as (candidate, access).
    example: (usize, usize),
    /// The loop nest of that candidate.
    nest: &'a LoopNest,
    /// The node of the accesses in the graph of reads.
    node: usize,
    /// The candidates that have such an access.
    consumers: Vec<usize>,
}

/// The layouts of all steps in one iteration, and the fetches that they need.
struct Iteration<'a> {
    d: &'a Draft,
    candidates: &'a [Candidate],
    reads: &'a ReadNeighbours,
    sums: &'a Sums,
    loops: Vec<Vec<DimLayout>>,
    /// For each step, the partial layout in which its result could stay until it has been added to
    /// another one.
    partial_layouts: Vec<Option<Layout>>,
    /// For each partial scatter, the layout in which its operand is read.
    scatter_layouts: Vec<Option<Vec<DimLayout>>>,
    /// For each value, the accesses that need a fetch, in the order of their nodes.
    requests: Vec<Vec<SharedRequest<'a>>>,
    /// True if steps are improved locally, starting from their current layouts.
    local_search: bool,
}

impl<'a> Iteration<'a> {
    fn new(
        d: &'a Draft,
        entries: &'a [Candidate],
        (reads, sums): (&'a ReadNeighbours, &'a Sums),
        loops: Vec<Vec<DimLayout>>,
    ) -> Iteration<'a> {
        let base = |(e, loops): (&Candidate, &Vec<DimLayout>)| match e {
            Candidate::Free(open) if open.fixed_loops.is_none() && !loops.is_empty() => {
                scatter::scatter_base_layout(&open.nest, &d.slots[open.out].layout, loops)
            }
            _ => None,
        };
        let bases = entries.iter().zip(&loops).map(base).collect();
        let mut round = Iteration {
            d,
            candidates: entries,
            reads,
            sums,
            partial_layouts: sums.partial_layouts(d, entries, &loops),
            loops,
            scatter_layouts: bases,
            requests: Vec::new(),
            local_search: false,
        };
        round.requests = round.shared_requests();
        round
    }
    /// Returns, for each value, the accesses that need a fetch.
    fn shared_requests(&self) -> Vec<Vec<SharedRequest<'a>>> {
        let mut needs: Vec<Vec<SharedRequest<'a>>> = (0..self.d.slots.len()).map(|_| Vec::new()).collect();
        // for each access, the request that it shares; `None` if it needs no fetch
        let mut known: cache::KeyMap<Option<usize>> = cache::KeyMap::default();
        let mut key = Vec::new();
        for (k, loop_nest) in nests(self.candidates).filter(|(k, s)| self.has_layout(*k, s)) {
            for (read, r) in loop_nest.accesses.iter().enumerate() {
                for src in r.sources() {
                    let reader = self.consumer(src, loop_nest, (k, read));
                    // most values are read once, and share nothing
                    let shared = self.reads.count(src) > 1;
                    let seen = shared.then(|| {
                        key.clear();
                        key.push(src as i64);
                        cache::write_consumer(&mut key, src, &reader);
                        known.get(&key[..]).copied()
                    });
                    match seen.flatten() {
                        Some(Some(need)) => needs[src][need].consumers.push(k),
                        Some(None) => {}
                        None => {
                            let request = self.d.needs_fetch(src, reader).then(|| {
                                let node = self.reads.node(src, (k, read));
                                let (example, nest) = ((k, read), loop_nest);
                                needs[src].push(SharedRequest { example, nest, node, consumers: vec![k] });
                                needs[src].len() - 1
                            });
                            if shared {
                                known.insert(key.as_slice().into(), request);
                            }
                        }
                    }
                }
            }
        }
        needs.iter_mut().for_each(|list| small_sort::sort_by_key(list, |n| n.node));
        needs
    }
    /// Returns true if the step has a loop layout.
    /// A scalar step has no loops.
    fn has_layout(&self, k: usize, s: &LoopNest) -> bool {
        self.loops[k].len() == s.extents.len()
    }
    /// Returns the access of one value by a candidate that needs a layout.
    fn consumer<'s>(&'s self, src: Slot, nest: &'s LoopNest, (k, read): (usize, usize)) -> Consumer<'s> {
        self.reads.projections.consumer(k, (nest, read), src, self.layout(k, read))
    }
    /// Returns the loop layout in which a step performs one of its accesses.
    fn layout(&self, k: usize, read: usize) -> &[DimLayout] {
        self.scatter_layouts[k].as_deref().filter(|_| read == 0).unwrap_or(&self.loops[k])
    }
    /// Returns the consumers of a value in steps other than `but`.
    /// If the value has many, only those are returned that may need elements that `but` needs.
    fn other_consumers(&self, src: Slot, but: usize) -> Vec<Consumer<'_>> {
        let is_other = |n: &&SharedRequest<'_>| n.consumers.iter().any(|k| *k != but);
        let all = &self.requests[src];
        let Some(near) = self.reads.near(src, but) else {
            return all.iter().filter(is_other).map(|n| self.consumer(src, n.nest, n.example)).collect();
        };
        let of = |node: usize| {
            let first = all.partition_point(|n| n.node < node);
            all[first..].iter().take_while(move |n| n.node == node).filter(is_other)
        };
        near.into_iter()
            .flat_map(of)
            .take(MAX_NEAR_READS)
            .map(|n| self.consumer(src, n.nest, n.example))
            .collect()
    }
    /// Returns the partial layout of the value that is added to the result of a step, if that value
    /// could stay partial.
    fn sibling_layout(&self, k: usize) -> Option<&Layout> {
        self.sums.sibling_layout(k, &self.partial_layouts)
    }
    /// Returns, for each step, true if it shares an operand with a step whose demand for it
    /// changed, or if the value changed that is added to its result.
    fn changed_from(&self, before: &Iteration, entries: &[Candidate]) -> Vec<bool> {
        let alike = |src: Slot, k: usize| {
            let (now, then) = (self.other_consumers(src, k), before.other_consumers(src, k));
            now.len() == then.len() && now.iter().all(|a| then.iter().any(|b| a.needs_same_boxes(b)))
        };
        let due = |(k, entry): (usize, &Candidate)| match entry {
            Candidate::Free(FreeStep { fixed_loops: None, nest: loop_nest, .. }) => {
                self.sibling_layout(k) != before.sibling_layout(k)
                    || !loop_nest.accesses.iter().flat_map(|r| r.sources()).all(|src| alike(src, k))
            }
            _ => false,
        };
        entries.iter().enumerate().map(due).collect()
    }
    /// Returns the cost of all steps together.
    fn total_cost(&self) -> CostEstimate {
        let (mut bytes, mut work) = (0.0, 0.0);
        for (src, needs) in self.requests.iter().enumerate().filter(|(_, needs)| !needs.is_empty()) {
            // groups of reads have no element in common
            let mut groups: BTreeMap<usize, Vec<Consumer>> = BTreeMap::new();
            for n in needs {
                let readers = groups.entry(self.reads.group(src, n.node)).or_default();
                readers.push(self.consumer(src, n.nest, n.example));
            }
            let moved: f64 = groups.values().map(|readers| self.d.weighted_bytes(src, readers)).sum();
            bytes += self.once_per_loop(src, moved);
        }
        let deferred = self.sums.deferred(&self.partial_layouts);
        for (k, s) in nests(self.candidates).filter(|(k, s)| self.has_layout(*k, s)) {
            let Candidate::Free(open) = &self.candidates[k] else { continue };
            bytes += match &deferred[k] {
                Some(DeferredReduction { stays_partial: true, .. }) => 0.0,
                Some(sum) => self.reduction_bytes(sum.layout.clone(), open.out),
                None => self.reduction_bytes(result_layout(s, &self.loops[k]), open.out),
            };
            work += self.work(s, &self.loops[k]);
        }
        self.d.per_byte.cost(bytes, work)
    }

    /// Returns the cheapest layout of one step, given the layouts of the others.
    fn best_layout(&self, k: usize, open: &FreeStep) -> Vec<DimLayout> {
        let own = &self.d.slots[open.out].layout;
        let known =
            |kind| self.d.costs.step_layout(self.cache_key(kind, k, open), || self.reduction(k, open, own));
        match open.nest.compute {
            // a step with one operand has only one sensible layout
            Compute::Map(_) if follows_result(&open.nest) => own.dims.clone(),
            Compute::Map(_) => {
                self.d.costs.step_layout(self.cache_key(0, k, open), || self.elementwise(k, open, own))
            }
            Compute::Reduce { .. } => known(1),
            Compute::Contract { .. } => known(2),
            Compute::RowKernel(_) | Compute::Gather { .. } | Compute::Scatter { .. } => {
                self.reduction(k, open, own)
            }
            Compute::Reshape => own.dims.clone(),
        }
    }
    /// Returns a cache key of everything the layout of a step depends on.
    /// Layers repeat, and so do their steps.
    fn cache_key(&self, kind: i64, k: usize, open: &FreeStep) -> Vec<i64> {
        let (s, stored) = (&open.nest, &self.d.slots[open.out]);
        let mut key = vec![
            kind,
            i64::from(self.local_search),
            i64::from(open.step.info.user_collective.is_some()),
            s.rank as i64,
        ];
        key.extend([
            s.dtype.size() as i64,
            i64::from(stored.layout.partial.is_some()),
            s.partial_reducer() as i64,
        ]);
        cache::write_sizes(&mut key, &s.extents);
        cache::write_layouts(&mut key, &stored.layout.dims);
        let sibling = self.sibling_layout(k);
        cache::write_layouts(&mut key, sibling.map_or(&[], |l| &l.dims));
        cache::write_sub_axes(&mut key, sibling.and_then(|l| l.partial.as_ref()).map_or(&[], |p| &p.1));
        if self.local_search {
            cache::write_layouts(&mut key, &self.loops[k]);
        }
        let mut sources: Vec<Slot> = Vec::new();
        for r in &s.accesses {
            key.push(r.pieces.len() as i64);
            for p in &r.pieces {
                if let Source::Value(slot) = p.source {
                    let known = sources.iter().position(|s| *s == slot);
                    key.push(known.unwrap_or_else(|| {
                        sources.push(slot);
                        sources.len() - 1
                    }) as i64);
                } else {
                    key.push(-1);
                }
                cache::write_piece(&mut key, p);
            }
        }
        for slot in sources {
            let stored = &self.d.slots[slot];
            key.extend([stored.dtype.size() as i64, i64::from(self.d.loop_invariant.contains(&slot))]);
            cache::write_sizes(&mut key, &stored.shape);
            cache::write_layouts(&mut key, &stored.layout.dims);
            let others = self.other_consumers(slot, k);
            key.push(others.len() as i64);
            others.iter().for_each(|r| cache::write_consumer(&mut key, slot, r));
        }
        key
    }

    /// Returns the bytes of each iteration, of the bytes that are fetched of a value.
    /// Loop-invariant values are fetched once, before the loop.
    fn once_per_loop(&self, src: Slot, bytes: f64) -> f64 {
        let bytes = bytes.max(0.0);
        if self.d.loop_invariant.contains(&src) { bytes / self.d.trip_count.max(1) as f64 } else { bytes }
    }
    /// Returns the bytes that step `k` fetches in addition to other steps' fetches.
    fn operand_bytes(&self, k: usize, open: &FreeStep, layout: &[DimLayout]) -> f64 {
        let s = &open.nest;
        let base = scatter::scatter_base_layout(s, &self.d.slots[open.out].layout, layout);
        let at = |read: usize| base.as_deref().filter(|_| read == 0).unwrap_or(layout);
        let mut seen: Vec<(Slot, usize)> = Vec::new();
        for (read, r) in s.accesses.iter().enumerate() {
            seen.extend(r.sources().into_iter().map(|src| (src, read)));
        }
        small_sort::sort(&mut seen);
        let mut bytes: Vec<f64> = Vec::new();
        for group in seen.chunk_by(|a, b| a.0 == b.0) {
            let src = group[0].0;
            let others = self.other_consumers(src, k);
            let projections = &self.reads.projections;
            let here = group.iter().map(|(_, read)| projections.consumer(k, (s, *read), src, at(*read)));
            let all = cache::distinct_consumers(src, others.iter().copied().chain(here));
            work::count(all.len());
            if all.len() == others.len() {
                continue;
            }
            let before = if others.is_empty() { 0.0 } else { self.d.weighted_bytes(src, &others) };
            let more = self.once_per_loop(src, self.d.weighted_bytes(src, &all) - before);
            if more > 0.0 {
                bytes.push(more + STEP_COST_BYTES);
            }
        }
        // sort, so that the sum does not depend on slot numbers
        small_sort::sort_by(&mut bytes, f64::total_cmp);
        bytes.iter().sum()
    }
    /// Returns the bytes needed to move a result from its loop layout to its requested layout.
    ///
    /// If it stays partial until it has been added to another partial value, the sum is reduced for
    /// that one anyway.
    fn result_bytes(&self, k: usize, open: &FreeStep, loops: &[DimLayout]) -> f64 {
        let layout = result_layout(&open.nest, loops);
        match self.sibling_layout(k) {
            Some(other) if *other == layout => 0.0,
            _ => self.reduction_bytes(layout, open.out),
        }
    }
    /// Returns the bytes needed to move a result from a layout to its requested layout.
    fn reduction_bytes(&self, layout: Layout, out: Slot) -> f64 {
        let stored = &self.d.slots[out];
        if stored.layout.partial.is_some() || layout == stored.layout {
            return 0.0;
        }
        reduction_plan(self.d, &StoredValue { layout, ..stored.clone() }, &stored.layout).0 + STEP_COST_BYTES
    }
    /// Returns the elements that the busiest device computes, times the number of devices.
    fn work(&self, s: &LoopNest, loops: &[DimLayout]) -> f64 {
        computed_elements(s, loops) * self.d.devices as f64
    }

    /// Chooses the layout of an elementwise step: that of the result or of an operand.
    fn elementwise(&self, k: usize, open: &FreeStep, own: &Layout) -> Vec<DimLayout> {
        let s = &open.nest;
        let here = self.operand_bytes(k, open, &own.dims);
        if here == 0.0 {
            return own.dims.clone();
        }
        let mut ways: Vec<(f64, &[DimLayout])> = Vec::new();
        for r in &s.accesses {
            let [src] = r.sources()[..] else { continue };
            let stored = &self.d.slots[src];
            let there = &stored.layout.dims;
            if *there == own.dims || !r.is_identity(&s.extents, &stored.shape) {
                continue;
            }
            let copy = draft::copy_nest(0, s.dtype, &s.extents);
            let made =
                StoredValue { layout: Layout { dims: there.clone(), partial: None }, ..stored.clone() };
            let reader = Consumer { nest: &copy, access: 0, layout: &own.dims };
            let back = elements_moved(self.d, &made, &reader, 1) * s.dtype.size() as f64;
            let back = back * self.d.per_byte.fetch_weight(0, &made, &[reader]);
            ways.push((self.operand_bytes(k, open, there) + back + STEP_COST_BYTES, there));
        }
        // ties are broken by layout: major sub-axes on leading dimensions first, whatever the
        // operand order
        let sub_axes =
            |dims: &[DimLayout]| -> Vec<SubAxes> { dims.iter().map(|l| l.sub_axes.clone()).collect() };
        small_sort::sort_by(&mut ways, |a, b| {
            a.0.total_cmp(&b.0).then_with(|| sub_axes(b.1).cmp(&sub_axes(a.1)))
        });
        match ways.first() {
            Some((price, there)) if *price < here => there.to_vec(),
            _ => own.dims.clone(),
        }
    }

    /// Chooses the layout of a reduction, contraction or row kernel.
    ///
    /// Each loop is unsplit, split as the result, or split as an operand; the cheapest combination
    /// wins. A collective that the user called keeps its default layout.
    fn reduction(&self, k: usize, open: &FreeStep, own: &Layout) -> Vec<DimLayout> {
        let s = &open.nest;
        let options: Vec<Vec<SubAxes>> =
            (0..s.extents.len()).map(|l| split_options(self.d, s, own, l)).collect();
        let price = |loops: &[DimLayout]| {
            let bytes = self.operand_bytes(k, open, loops) + self.result_bytes(k, open, loops);
            self.d.per_byte.cost(bytes, self.work(s, loops))
        };
        let way = |pick: &[usize]| {
            let loops = combined_layout(s, own, &options, pick);
            (price(&loops), loops)
        };
        let mut pick = vec![0; options.len()];
        let mut best = way(&pick);
        if open.step.info.user_collective.is_some() {
            return best.1;
        }
        if self.local_search {
            let now = (price(&self.loops[k]), self.loops[k].clone());
            let nearest = if now.0.total < best.0.total { now } else { best };
            return self.with_exchanges(s, own, nearest, &price);
        }
        let combinations = options.iter().map(Vec::len).fold(1, usize::saturating_mul);
        if combinations <= MAX_EXHAUSTIVE_CANDIDATES {
            for mut c in 1..combinations {
                for (p, o) in pick.iter_mut().zip(&options).rev() {
                    *p = c % o.len();
                    c /= o.len();
                }
                let other = way(&pick);
                if other.0.total < best.0.total {
                    best = other;
                }
            }
        } else {
            let mut stable = false;
            while !stable {
                stable = true;
                for l in 0..options.len() {
                    for o in 0..options[l].len() {
                        let before = std::mem::replace(&mut pick[l], o);
                        let other = way(&pick);
                        if other.0.total < best.0.total {
                            (best, stable) = (other, false);
                        } else {
                            pick[l] = before;
                        }
                    }
                }
            }
        }
        self.with_exchanges(s, own, best, &price)
    }

    /// Improves the layout of a reduction or contraction by moving sub-axes between loops.
    ///
    /// A loop may be split over sub-axes that split other loops of operands or the result; an
    /// all-to-all then moves the data. The new layout never moves more bytes, even if it would save
    /// computation.
    fn with_exchanges(
        &self,
        s: &LoopNest,
        own: &Layout,
        mut best: (CostEstimate, Vec<DimLayout>),
        price: &dyn Fn(&[DimLayout]) -> CostEstimate,
    ) -> Vec<DimLayout> {
        if !s.compute.reduces() {
            return best.1;
        }
        let read = s.accesses.iter().flat_map(Access::sources).flat_map(|src| &self.d.slots[src].layout.dims);
        let mut sub_axes: Vec<&SubAxes> = own.dims.iter().chain(read).map(|l| &l.sub_axes).collect();
        small_sort::sort(&mut sub_axes);
        sub_axes.dedup();
        sub_axes.retain(|a| self.local_search || !a.is_empty());
        let mut stable = false;
        while !stable {
            stable = true;
            for l in 0..s.extents.len() {
                for a in sub_axes.iter().filter(|a| s.extents[l] >= num_shards(a)) {
                    if best.1[l].sub_axes == **a {
                        continue;
                    }
                    let split = |k: usize| {
                        if k == l { (*a).clone() } else { truncate_to_free(&best.1[k].sub_axes, a) }
                    };
                    let loops: Vec<DimLayout> =
                        (0..s.extents.len()).map(|k| loop_layout(s, own, k, split(k))).collect();
                    let other = price(&loops);
                    let less = other.total < best.0.total * (1.0 - 1e-9);
                    if less && other.bytes <= best.0.bytes * (1.0 + 1e-9) {
                        (best, stable) = ((other, loops), false);
                    }
                }
            }
        }
        best.1
    }
}
