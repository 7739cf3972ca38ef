//! The region graph: groups values whose dimensions run along the same loops.
//!
//! Elementwise steps, row kernels and reductions link their result to each operand that they read
//! completely and along plain loops: each dimension at the index of one loop.

use super::block_align::distances_to_end;
use crate::core::{sharding::sub_axes::full_axes, util::small_sort};
use crate::ir::program::{Access, LoopNest, Source, StridedRange};
use crate::partition::draft::{Draft, DraftStep};
use crate::partition::program::{LocalStep, Slot};
use crate::partition::{cost::projection::Projections, layout::DimLayout};
use std::collections::BTreeMap;

/// The maximum number of values in a region.
/// Larger regions keep their placement.
const MAX_REGION_VALUES: usize = 64;

/// The steps that compute and read each value.
pub(super) struct RegionGraph {
    /// The step that computes each value.
    pub(super) producer: Vec<Option<usize>>,
    /// The steps that read each value.
    pub(super) readers: Vec<Vec<usize>>,
    /// For each value, true if its placement may change.
    movable: Vec<bool>,
    /// For each step, true if the layout of its loops is chosen by cost.
    pub(super) cost_driven: Vec<bool>,
    /// The accesses of many values.
    pub(super) projections: Projections,
}

impl RegionGraph {
    pub(super) fn new(d: &Draft) -> RegionGraph {
        let n = d.slots.len();
        let nests = d.steps.iter().enumerate().filter_map(|(k, item)| Some((k, item.step.loop_nest()?)));
        let mut g = RegionGraph {
            producer: vec![None; n],
            readers: vec![Vec::new(); n],
            movable: vec![false; n],
            cost_driven: d.steps.iter().map(|item| is_cost_driven(d, item)).collect(),
            projections: Projections::new(nests),
        };
        for slot in d.unconstrained.iter().filter(|(_, free)| **free).map(|(slot, _)| *slot) {
            let stored = &d.slots[slot];
            let auto = |l: &DimLayout| d.mesh.as_ref().is_some_and(|m| full_axes(m, &l.sub_axes).is_some());
            g.movable[slot] = stored.layout.partial.is_none()
                && stored.shape.iter().any(|n| *n > 1)
                && stored.layout.dims.iter().all(auto);
        }
        d.outs.iter().for_each(|s| g.movable[*s] = false);
        for (k, item) in d.steps.iter().enumerate() {
            let priced = g.cost_driven[k];
            for s in item.step.inputs() {
                if g.readers[s].last() != Some(&k) {
                    g.readers[s].push(k);
                }
                g.movable[s] &= priced;
            }
            for s in item.step.outputs() {
                g.producer[s] = Some(k);
                g.movable[s] &= priced && !item.info.constrained && item.info.user_collective.is_none();
            }
        }
        (0..n).filter(|s| g.producer[*s].is_none()).for_each(|s| g.movable[s] = false);
        g
    }

    /// Returns the regions, those nearest to the end of the program first.
    ///
    /// If `folds` is true, reductions link values too; otherwise elementwise steps alone do.
    pub(super) fn regions(&self, d: &Draft, folds: bool) -> Vec<PlacementRegion> {
        let n = d.slots.len();
        let mut dims = DimSets::new(d.slots.iter().map(|s| s.shape.rank()));
        // the union-find parents of values
        let mut root: Vec<usize> = (0..n).collect();
        for item in &d.steps {
            let Some(LocalStep { out, nest: loop_nest, .. }) = item.step.local() else { continue };
            let reduces = loop_nest.compute.reduces();
            let links = !reduces || folds && !loop_nest.compute.contracts();
            if !self.movable[out] || !links {
                continue;
            }
            let mut by_loop: Vec<Option<(Slot, usize)>> =
                (0..loop_nest.extents.len()).map(|l| (l < loop_nest.rank).then_some((out, l))).collect();
            for read in &loop_nest.accesses {
                let Some((src, along)) = identity_loops(d, loop_nest, read) else { continue };
                if !self.movable[src] || !along.iter().flatten().any(|l| *l < loop_nest.rank) {
                    continue;
                }
                union(&mut root, src, out);
                for (dim, l) in along.into_iter().enumerate() {
                    let Some(l) = l else { continue };
                    match by_loop[l] {
                        Some(other) => dims.union(other, (src, dim)),
                        None => by_loop[l] = Some((src, dim)),
                    }
                }
            }
        }
        let mut members: BTreeMap<usize, Vec<Slot>> = BTreeMap::new();
        for v in (0..n).filter(|v| self.movable[*v]) {
            members.entry(find(&mut root, v)).or_default().push(v);
        }
        let far = distances_to_end(d);
        let mut regions: Vec<PlacementRegion> = (members.into_values())
            .filter(|m| m.len() <= MAX_REGION_VALUES)
            .filter_map(|m| PlacementRegion::new(d, m, &mut dims, &far))
            .collect();
        small_sort::sort_by_key(&mut regions, |r| r.distance);
        regions
    }
}

/// Returns true if the layout of a step's loops is chosen by cost.
/// This must hold for any placement of its operands.
fn is_cost_driven(d: &Draft, item: &DraftStep) -> bool {
    let Some(LocalStep { out, nest, .. }) = item.step.local() else { return false };
    let is_full = |s: &Slot| d.slots[*s].layout.partial.is_none();
    let compute = &nest.compute;
    (compute.elementwise().is_some() || compute.reduces() || compute.row_kernel().is_some())
        && is_full(&out)
        && item.step.inputs().iter().all(is_full)
}

/// Returns true if the layout of a step's loops is that of its result, whatever its operand is.
///
/// The cost of such a step is a sum over the values that it reads.
pub(super) fn follows_result(nest: &LoopNest) -> bool {
    nest.compute.elementwise().is_some() && nest.accesses.len() < 2
}

/// Returns the value that an access reads, and the loop of each of its dimensions.
///
/// `None` unless it reads one value, all dimensions of it completely, each along one loop or of
/// size 1.
fn identity_loops(d: &Draft, s: &LoopNest, read: &Access) -> Option<(Slot, Vec<Option<usize>>)> {
    let [part] = &read.pieces[..] else { return None };
    let Source::Value(src) = part.source else { return None };
    let shape = &d.slots[src].shape;
    let is_full = part.ranges.iter().zip(&s.extents).all(|(v, n)| *v == StridedRange::full(*n));
    let along = part.map.iter().zip(&shape[..]).map(|(m, n)| match m.terms[..] {
        _ if *n == 1 => Some(None),
        [(l, 1)] if m.constant == 0 && s.extents[l] == *n => Some(Some(l)),
        _ => None,
    });
    let along: Vec<Option<usize>> = along.collect::<Option<_>>()?;
    is_full.then_some((src, along))
}

/// Values that are placed together.
pub(super) struct PlacementRegion {
    /// The values.
    pub(super) members: Vec<Slot>,
    /// For each value, the region loop of each dimension.
    /// `None` for a dimension of size 1, and for a loop that two dimensions of one value share.
    pub(super) dim_loops: Vec<Vec<Option<usize>>>,
    /// The number of region loops.
    pub(super) num_loops: usize,
    /// The distance from the end of the program, in steps.
    pub(super) distance: usize,
}

impl PlacementRegion {
    fn new(d: &Draft, members: Vec<Slot>, dims: &mut DimSets, far: &[usize]) -> Option<PlacementRegion> {
        let mut loops: Vec<usize> = Vec::new();
        let mut along = Vec::with_capacity(members.len());
        let mut twice: Vec<usize> = Vec::new();
        for slot in &members {
            let mut own: Vec<Option<usize>> = Vec::new();
            for (dim, n) in d.slots[*slot].shape.iter().enumerate() {
                let l = dims.find((*slot, dim));
                let k = loops.iter().position(|x| *x == l).unwrap_or_else(|| {
                    loops.push(l);
                    loops.len() - 1
                });
                if own.contains(&Some(k)) {
                    twice.push(k);
                }
                own.push((*n > 1).then_some(k));
            }
            along.push(own);
        }
        let far = members.iter().map(|v| far[*v]).min()?;
        for l in along.iter_mut().flatten() {
            *l = l.filter(|l| !twice.contains(l));
        }
        Some(PlacementRegion { members, dim_loops: along, num_loops: loops.len(), distance: far })
    }
}

fn find(root: &mut [usize], mut v: usize) -> usize {
    while root[v] != v {
        root[v] = root[root[v]];
        v = root[v];
    }
    v
}
fn union(root: &mut [usize], a: usize, b: usize) {
    let (a, b) = (find(root, a), find(root, b));
    root[a.max(b)] = a.min(b);
}

/// Disjoint sets of dimensions, united if one loop runs over them.
struct DimSets {
    /// The index of the first dimension of each value.
    first: Vec<usize>,
    /// The union-find parent of each dimension.
    root: Vec<usize>,
}

impl DimSets {
    fn new(ranks: impl Iterator<Item = usize>) -> DimSets {
        let mut all = 0;
        let mut first = Vec::new();
        for rank in ranks {
            first.push(all);
            all += rank;
        }
        DimSets { first, root: (0..all).collect() }
    }
    fn union(&mut self, a: (Slot, usize), b: (Slot, usize)) {
        let (a, b) = (self.first[a.0] + a.1, self.first[b.0] + b.1);
        union(&mut self.root, a, b);
    }
    fn find(&mut self, (slot, dim): (Slot, usize)) -> usize {
        find(&mut self.root, self.first[slot] + dim)
    }
}
