//! Region search: changes the placement of values where only a joint change pays off.
//!
//! In auto mode, values are placed like their neighbours. This may move more than necessary, as in
//! attention over a sharded sequence, where every device needs all keys. Changing one value does
//! not help, because it is then exchanged with its neighbours. So values whose dimensions run along
//! the same loops form a region (`region_graph`), in which dimensions along one loop are split over
//! the same axes. For each region, hill climbing searches for a cheap split. The cost of a split is
//! that of the steps that compute and read the region's values, and of other steps that read the
//! same operands. A new split is used only if it both costs less and moves fewer bytes than the
//! current one.
//!
//! Only values whose types do not fix their placement and that only local steps use are moved:
//! neither the user nor a surrounding loop determines where they are. No split may increase a
//! device's memory for the region by much.

use super::region_graph::{PlacementRegion, RegionGraph, follows_result};
use super::{loops::Assignment, place};
use crate::core::sharding::sub_axes::{canonicalize, from_axes, num_shards, overlap};
use crate::core::{AxisType, SubAxes, SubAxis, util::small_sort};
use crate::ir::program::Source;
use crate::partition::cost::cache::{
    CostCache, KeyMap, write_layouts, write_piece, write_sizes, write_sub_axes,
};
use crate::partition::draft::{Draft, DraftStep};
use crate::partition::layout::DimLayout;
use crate::partition::program::{LocalStep, Slot, Step, StepOrigin, StoredValue};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The maximum number of outside consumers of a value in the cost of a region.
/// Those of a value with more consumers are ignored.
const MAX_EVALUATED_CONSUMERS: usize = 8;
/// The reciprocal of the fraction by which a device's memory for a region may grow.
/// Growth is necessary because sums of moved values may be replicated.
const EXTRA_BYTES_DIVISOR: usize = 16;
/// The maximum number of passes over the regions.
/// Moving one region may make it worth moving another.
const MAX_PASSES: usize = 2;

/// Places the regions of a draft, and returns the former layouts of the values that moved.
pub(crate) fn place_regions(d: &mut Draft) -> BTreeMap<Slot, Vec<DimLayout>> {
    let mut moved = BTreeMap::new();
    let axes = auto_sub_axes(d);
    if axes.is_empty() || d.unconstrained.is_empty() {
        return moved;
    }
    let graph = RegionGraph::new(d);
    let together = graph.regions(d, true);
    // the result of a reduction may be placed differently from its operand
    let known: HashSet<&[Slot]> = together.iter().map(|r| &r.members[..]).collect();
    let mut apart = graph.regions(d, false);
    apart.retain(|r| !known.contains(&r.members[..]));
    let mut known = RegionSearchCache { found: KeyMap::default(), search_costs: CostCache::for_search() };
    // returns whether any region moved
    let mut pass = |regions: &[PlacementRegion]| {
        let mut changed = false;
        // go from the end; regions at the same distance are independent
        for alike in regions.chunk_by(|a, b| a.distance == b.distance) {
            let found: Vec<_> = alike.iter().map(|r| r.cheapest(d, &graph, &axes, &mut known)).collect();
            for (region, dims) in alike.iter().zip(found) {
                let Some(dims) = dims else { continue };
                changed = true;
                for (slot, dims) in region.members.iter().zip(dims) {
                    let before = std::mem::replace(&mut d.slots[*slot].layout.dims, dims);
                    moved.entry(*slot).or_insert(before);
                }
            }
        }
        changed
    };
    let _ = (0..MAX_PASSES).all(|_| pass(&together));
    pass(&apart);
    moved
}

/// Returns the sub-axes of the mesh's auto axes, one for each axis.
fn auto_sub_axes(d: &Draft) -> Vec<SubAxis> {
    let Some(mesh) = &d.mesh else { return Vec::new() };
    let auto = mesh.axis_names().iter().filter(|a| mesh.axis_type(**a) == Some(AxisType::Auto));
    auto.flat_map(|a| from_axes(mesh, [*a])).filter(|a| a.size > 1).collect()
}

/// The steps around a region, as a separate draft.
struct RegionDraft {
    /// The draft.
    draft: Draft,
    /// The slot of each member in this draft.
    members: Vec<Slot>,
    /// For each step, true if it computes or reads a member.
    movable: Vec<bool>,
}

/// The layouts of a region's members.
type MemberLayouts = Vec<Vec<DimLayout>>;
/// For each loop of a region, the sub-axes that split it, major first.
type LoopSplit = Vec<Vec<SubAxis>>;

/// A cache of search results by key, and of the approximate costs used in the search.
struct RegionSearchCache {
    found: KeyMap<Option<MemberLayouts>>,
    search_costs: CostCache,
}

/// Returns true if `a` is less than `b` beyond floating-point summation error.
fn is_strictly_less(a: f64, b: f64) -> bool {
    a < b * (1.0 - 1e-9)
}

impl PlacementRegion {
    /// Returns the steps that are evaluated with the region.
    ///
    /// The flag is true if the step computes or reads a member. The other steps share a split
    /// operand with those steps; operands with many consumers are ignored.
    fn evaluated_steps(&self, d: &Draft, graph: &RegionGraph) -> Vec<(usize, bool)> {
        let own = |v: &Slot| graph.producer[*v].into_iter().chain(graph.readers[*v].iter().copied());
        let mut steps: Vec<usize> = self.members.iter().flat_map(own).collect();
        small_sort::sort(&mut steps);
        steps.dedup();
        let mut sources: Vec<Slot> = self.members.clone();
        for k in steps.iter().filter(|k| !self.is_plain_reader(d, **k)) {
            sources.extend(d.steps[*k].step.inputs());
        }
        small_sort::sort(&mut sources);
        sources.dedup();
        let shared = sources.iter().filter(|s| {
            let split = d.slots[**s].layout.dims.iter().any(|l| !l.sub_axes.is_empty());
            split && graph.readers[**s].len() <= MAX_EVALUATED_CONSUMERS
        });
        let others = shared.flat_map(|s| graph.readers[*s].iter().copied());
        let mut others: Vec<usize> = others.filter(|k| graph.cost_driven[*k]).collect();
        small_sort::sort(&mut others);
        others.dedup();
        others.retain(|k| steps.binary_search(k).is_err());
        let mut all: Vec<(usize, bool)> = steps.iter().map(|k| (*k, true)).collect();
        all.extend(others.into_iter().map(|k| (k, false)));
        small_sort::sort(&mut all);
        all
    }

    /// Returns true if a step reads members, computes none, and follows its result.
    /// What it reads of other values costs the same wherever the members are.
    fn is_plain_reader(&self, d: &Draft, k: usize) -> bool {
        let Some(l) = d.steps[k].step.local() else { return false };
        follows_result(l.nest) && self.members.binary_search(&l.out).is_err()
    }

    /// Extracts the steps around the region into a separate draft.
    fn region_draft(&self, d: &Draft, graph: &RegionGraph) -> RegionDraft {
        let mut local: HashMap<Slot, Slot> = HashMap::new();
        let mut draft = d.empty_like();
        draft.trip_count = d.trip_count;
        let mut due = Vec::new();
        let steps = self.evaluated_steps(d, graph);
        // the values whose fetches depend on where the members are
        let mut priced: HashSet<Slot> = self.members.iter().copied().collect();
        for (k, _) in steps.iter().filter(|(k, own)| *own && !self.is_plain_reader(d, *k)) {
            priced.extend(d.steps[*k].step.inputs());
        }
        for (k, own) in steps {
            let Some(LocalStep { out, nest: loop_nest, layout }) = d.steps[k].step.local() else { continue };
            let mut here = |slot: Slot| {
                *local.entry(slot).or_insert_with(|| {
                    draft.slots.push(d.slots[slot].clone());
                    if d.loop_invariant.contains(&slot) {
                        draft.loop_invariant.push(draft.slots.len() - 1);
                    }
                    draft.slots.len() - 1
                })
            };
            let mut loop_nest = match self.is_plain_reader(d, k) {
                true => graph.projections.restricted(k, loop_nest, &priced),
                false => loop_nest.clone(),
            };
            for p in loop_nest.accesses.iter_mut().flat_map(|r| &mut r.pieces) {
                if let Source::Value(slot) = &mut p.source {
                    *slot = here(*slot);
                }
            }
            let step = Step::Local { out: here(out), nest: loop_nest, layout: layout.to_vec() };
            let mut item = DraftStep::new(step, StepOrigin::default());
            item.info.user_collective.clone_from(&d.steps[k].info.user_collective);
            draft.steps.push(item);
            due.push(own);
        }
        let members = self.members.iter().map(|v| local[v]).collect();
        RegionDraft { draft, members, movable: due }
    }

    /// Returns the cheapest layouts of the members, `None` if the current ones win.
    fn cheapest(
        &self,
        d: &mut Draft,
        graph: &RegionGraph,
        axes: &[SubAxis],
        known: &mut RegionSearchCache,
    ) -> Option<MemberLayouts> {
        let mut around = self.region_draft(d, graph);
        let key = around.cache_key();
        if let Some(found) = known.found.get(&key[..]) {
            return found.clone();
        }
        std::mem::swap(&mut around.draft.costs, &mut known.search_costs);
        let found = self.search(&mut around, axes);
        std::mem::swap(&mut around.draft.costs, &mut known.search_costs);
        // confirm with exact costs and layouts chosen from scratch
        std::mem::swap(&mut around.draft.costs, &mut d.costs);
        let found = found.filter(|way| {
            let now = around.current_layouts();
            let (before, after) =
                (around.assignment_cost(&now, None).cost, around.assignment_cost(way, None).cost);
            is_strictly_less(after.bytes, before.bytes) && is_strictly_less(after.total, before.total)
        });
        std::mem::swap(&mut around.draft.costs, &mut d.costs);
        known.found.insert(key.into(), found.clone());
        found
    }

    /// Searches by hill climbing over splits of the region's loops.
    fn search(&self, around: &mut RegionDraft, axes: &[SubAxis]) -> Option<MemberLayouts> {
        let here = &around.draft.slots;
        let used =
            |a: &&SubAxis| here.iter().flat_map(|s| &s.layout.dims).any(|l| overlap(&l.sub_axes, &[**a]));
        let axes: Vec<SubAxis> = axes.iter().filter(used).copied().collect();
        let now = around.current_layouts();
        let stored: Vec<StoredValue> = around.members.iter().map(|s| here[*s].clone()).collect();
        let held = |p: &MemberLayouts| -> usize {
            let bytes = stored.iter().zip(p).map(|(s, dims)| {
                let mut s = s.clone();
                s.layout.dims.clone_from(dims);
                s.block_bytes()
            });
            bytes.fold(0, usize::saturating_add)
        };
        // a row kernel holds full rows of its result wherever it runs, so count those
        let made: MemberLayouts =
            around.members.iter().zip(&now).map(|(s, dims)| around.layout_when_made(*s, dims)).collect();
        let most = held(&made) + held(&now) / EXTRA_BYTES_DIVISOR;
        let before = around.assignment_cost(&now, None);
        if before.cost.bytes == 0.0 {
            return None;
        }
        // ties go to major sub-axes on leading dimensions
        let canonical = |p: &MemberLayouts| -> Vec<(Vec<usize>, Vec<SubAxes>)> {
            let of = |(s, dims): (&StoredValue, &Vec<DimLayout>)| {
                (s.shape.to_vec(), dims.iter().map(|l| l.sub_axes.clone()).collect())
            };
            let mut list: Vec<_> = stored.iter().zip(p).map(of).collect();
            small_sort::sort(&mut list);
            list.reverse();
            list
        };
        let mut best: Option<(f64, MemberLayouts, LoopSplit)> = None;
        let mut seen: Vec<LoopSplit> = Vec::new();
        let mut from = self.current_split(&stored, &axes);
        loop {
            let mut next: Option<(f64, MemberLayouts, LoopSplit)> = None;
            for split in std::iter::once(from.clone()).chain(neighbours(&from, &axes)) {
                if seen.contains(&split) {
                    continue;
                }
                seen.push(split.clone());
                let Some(way) = self.member_layouts(&stored, &split) else { continue };
                if way == now || held(&way) > most {
                    continue;
                }
                let after = around.assignment_cost(&way, Some(&before.loops)).cost;
                if !is_strictly_less(after.bytes, before.cost.bytes)
                    || !is_strictly_less(after.total, before.cost.total)
                {
                    continue;
                }
                let better = next.as_ref().or(best.as_ref()).is_none_or(|(price, than, _)| {
                    let alike =
                        !is_strictly_less(after.total, *price) && !is_strictly_less(*price, after.total);
                    if alike { canonical(&way) > canonical(than) } else { after.total < *price }
                });
                if better {
                    next = Some((after.total, way, split));
                }
            }
            let Some(next) = next else { break };
            from.clone_from(&next.2);
            best = Some(next);
        }
        best.map(|b| b.1)
    }

    /// Returns the current split of the region's loops, according to its largest values.
    fn current_split(&self, stored: &[StoredValue], axes: &[SubAxis]) -> LoopSplit {
        let mut split: LoopSplit = vec![Vec::new(); self.num_loops];
        let size = |s: &StoredValue| s.shape.iter().product::<usize>();
        let sub_axes =
            |s: &StoredValue| -> Vec<SubAxes> { s.layout.dims.iter().map(|l| l.sub_axes.clone()).collect() };
        let mut order: Vec<usize> = (0..stored.len()).collect();
        small_sort::sort_by_key(&mut order, |k| {
            std::cmp::Reverse((size(&stored[*k]), sub_axes(&stored[*k])))
        });
        for k in order {
            for (l, held) in self.dim_loops[k].iter().zip(&stored[k].layout.dims) {
                let Some(l) = l.filter(|l| split[*l].is_empty()) else { continue };
                let free =
                    |a: &&SubAxis| !split.iter().any(|s| s.contains(a)) && overlap(&held.sub_axes, &[**a]);
                let mut more: Vec<SubAxis> = axes.iter().filter(free).copied().collect();
                // within a sub-axis that spans several axes, the axis with the larger stride is
                // major
                let at = |a: &SubAxis| held.sub_axes.iter().position(|h| h.overlaps(*a));
                small_sort::sort_by_key(&mut more, |a| (at(a), std::cmp::Reverse(a.stride)));
                split[l] = more;
            }
        }
        split
    }

    /// Returns the layouts of the members for a split, `None` if blocks would be uneven.
    fn member_layouts(&self, stored: &[StoredValue], split: &LoopSplit) -> Option<MemberLayouts> {
        let of = |(s, along): (&StoredValue, &Vec<Option<usize>>)| -> Option<Vec<DimLayout>> {
            let dims = along.iter().zip(&s.shape[..]).map(|(l, n)| {
                let sub_axes = l.map_or(SubAxes::new(), |l| canonicalize(split[l].iter().copied()));
                n.is_multiple_of(num_shards(&sub_axes)).then(|| DimLayout::new(*n, sub_axes))
            });
            dims.collect()
        };
        stored.iter().zip(&self.dim_loops).map(of).collect()
    }
}

/// Returns the splits that one move leads to.
/// A move appends an axis to another loop, removes it, or exchanges two axes.
fn neighbours(split: &LoopSplit, axes: &[SubAxis]) -> Vec<LoopSplit> {
    let mut all = Vec::new();
    for (i, a) in axes.iter().enumerate() {
        let mut base = split.clone();
        base.iter_mut().for_each(|l| l.retain(|x| x != a));
        for l in 0..base.len() {
            let mut more = base.clone();
            more[l].push(*a);
            all.push(more);
        }
        all.push(base);
        for b in &axes[..i] {
            let mut other = split.clone();
            for x in other.iter_mut().flatten() {
                *x = if x == a {
                    *b
                } else if x == b {
                    *a
                } else {
                    *x
                };
            }
            all.push(other);
        }
    }
    all
}

impl RegionDraft {
    fn current_layouts(&self) -> MemberLayouts {
        self.members.iter().map(|s| self.draft.slots[*s].layout.dims.clone()).collect()
    }
    /// Returns the layout of a member at the step that computes it, where rows are unsplit.
    fn layout_when_made(&self, member: Slot, dims: &[DimLayout]) -> Vec<DimLayout> {
        let mut local = self.draft.steps.iter().filter_map(|i| i.step.local());
        let row_loops = local.find(|l| l.out == member).map(|l| l.nest.compute.row_loops());
        let unsharded = |k: usize, l: &DimLayout| match row_loops.is_some_and(|along| along.contains(&k)) {
            true => DimLayout { sub_axes: SubAxes::new(), ..l.clone() },
            false => l.clone(),
        };
        dims.iter().enumerate().map(|(k, l)| unsharded(k, l)).collect()
    }
    /// Returns the cost of the draft with these member layouts, and its loop layouts.
    fn assignment_cost(&mut self, placed: &MemberLayouts, from: Option<&[Vec<DimLayout>]>) -> Assignment {
        let prices = std::mem::take(&mut self.draft.costs);
        let (slots, items) = (self.draft.slots.clone(), self.draft.steps.clone());
        let mut draft = Draft {
            slots,
            steps: items,
            costs: prices,
            loop_invariant: self.draft.loop_invariant.clone(),
            ..Draft::default()
        };
        (draft.devices, draft.trip_count, draft.per_byte) =
            (self.draft.devices, self.draft.trip_count, self.draft.per_byte.clone());
        for (slot, dims) in self.members.iter().zip(placed) {
            draft.slots[*slot].layout.dims.clone_from(dims);
        }
        let (chosen, prices) = place::assignment_cost(draft, from.map(|loops| (loops, &self.movable[..])));
        self.draft.costs = prices;
        chosen
    }

    /// Returns a cache key of everything the search depends on.
    /// Layers repeat, and so do their regions.
    fn cache_key(&self) -> Vec<i64> {
        let mut key = Vec::new();
        write_sizes(&mut key, &self.members);
        write_sizes(&mut key, &self.draft.loop_invariant);
        key.push(self.draft.slots.len() as i64);
        for s in &self.draft.slots {
            key.push(s.dtype.size() as i64);
            write_sizes(&mut key, &s.shape);
            write_layouts(&mut key, &s.layout.dims);
            let partial = s.layout.partial.as_ref();
            write_sub_axes(&mut key, partial.map_or(&[], |p| &p.1[..]));
        }
        for (item, due) in self.draft.steps.iter().zip(&self.movable) {
            let Some(LocalStep { out, nest: s, layout }) = item.step.local() else { continue };
            let body = match (s.compute.elementwise(), s.compute.reduces() && !s.compute.contracts()) {
                (Some(_), _) => 0,
                (None, true) => 1,
                (None, false) => 2,
            };
            write_sizes(&mut key, s.compute.row_loops());
            key.extend([
                out as i64,
                body,
                s.rank as i64,
                s.dtype.size() as i64,
                i64::from(item.info.user_collective.is_some()),
                i64::from(*due),
            ]);
            write_sizes(&mut key, &s.extents);
            write_layouts(&mut key, layout);
            key.push(s.accesses.len() as i64);
            for r in &s.accesses {
                key.push(r.pieces.len() as i64);
                for p in &r.pieces {
                    key.push(if let Source::Value(slot) = p.source { slot as i64 } else { -1 });
                    write_piece(&mut key, p);
                }
            }
        }
        key
    }
}
