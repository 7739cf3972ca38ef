//! Which reads of a value may need the same elements.
//!
//! The cost of a fetch for one step depends on what the other steps fetch of the same value, but
//! only where they read the same elements. If a value has many readers, such as the steps that each
//! read one of its rows, each is compared with those near it. What a read covers over all loop
//! indices does not depend on layouts, so the neighbours are found once for all candidates.

use crate::ir::program::LoopNest;
use crate::partition::boxes::{Interval, Region, full, intersect};
use crate::partition::{
    access::access_hull, cost::projection::Projections, draft::Draft, program::Slot, work,
};
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};

/// The number of reads of a value up to which all are compared.
const MAX_COMPARED_READS: usize = 8;
/// The maximum number of reads that one read is compared with.
pub(super) const MAX_NEAR_READS: usize = 256;

/// The reads of all values by the candidates, with those that are near each other.
pub(super) struct ReadNeighbours {
    /// The reads of each value that has many. If there are few, all are near each other.
    slots: HashMap<Slot, SlotReads>,
    /// The number of reads of each value.
    counts: Vec<usize>,
    /// The accesses of many values.
    pub(super) projections: Projections,
}

/// The reads of one value.
///
/// Reads that cover the same box form one node.
struct SlotReads {
    /// The node of each read, by candidate and access.
    node_of: HashMap<(usize, usize), usize>,
    /// The nodes that a candidate reads.
    nodes_of: HashMap<usize, SmallVec<[usize; 2]>>,
    /// The nodes near each node, including itself.
    near: Vec<Vec<usize>>,
    /// The group of connected nodes that each node belongs to.
    group: Vec<usize>,
}

impl ReadNeighbours {
    /// Finds the reads of all values.
    pub(super) fn new<'a>(d: &Draft, nests: impl Iterator<Item = (usize, &'a LoopNest)>) -> ReadNeighbours {
        let nests: Vec<(usize, &LoopNest)> = nests.collect();
        let projections = Projections::new(nests.iter().copied());
        let mut counts = vec![0; d.slots.len()];
        for src in nests.iter().flat_map(|(_, nest)| &nest.accesses).flat_map(|r| r.sources()) {
            counts[src] += 1;
        }
        let mut slots = HashMap::new();
        if counts.iter().any(|n| *n > MAX_COMPARED_READS) {
            let mut reads: BTreeMap<Slot, Vec<(usize, &LoopNest, usize)>> = BTreeMap::new();
            for (k, nest) in nests {
                for (access, r) in nest.accesses.iter().enumerate() {
                    let many = r.sources().into_iter().filter(|src| counts[*src] > MAX_COMPARED_READS);
                    many.for_each(|src| reads.entry(src).or_default().push((k, nest, access)));
                }
            }
            let of = |(slot, list): (&Slot, &Vec<_>)| {
                (*slot, SlotReads::new(*slot, &d.slots[*slot].shape, list, &projections))
            };
            slots = reads.iter().map(of).collect();
        }
        ReadNeighbours { slots, counts, projections }
    }
    /// Returns how often the candidates read a value.
    pub(super) fn count(&self, src: Slot) -> usize {
        self.counts[src]
    }
    /// Returns the node of a read, 0 if the value has few reads.
    pub(super) fn node(&self, src: Slot, read: (usize, usize)) -> usize {
        self.slots.get(&src).and_then(|s| s.node_of.get(&read).copied()).unwrap_or(0)
    }
    /// Returns the nodes near the reads of a candidate.
    /// `None` if all are, because the value has few reads.
    pub(super) fn near(&self, src: Slot, candidate: usize) -> Option<Vec<usize>> {
        let reads = self.slots.get(&src)?;
        let own = reads.nodes_of.get(&candidate).into_iter().flatten();
        let mut near: Vec<usize> = own.flat_map(|n| reads.near[*n].iter().copied()).collect();
        near.sort_unstable();
        near.dedup();
        Some(near)
    }
    /// Returns the group of a node. Nodes of different groups cover no common element.
    pub(super) fn group(&self, src: Slot, node: usize) -> usize {
        self.slots.get(&src).map_or(0, |s| s.group[node])
    }
}

impl SlotReads {
    fn new(
        slot: Slot,
        shape: &[usize],
        list: &[(usize, &LoopNest, usize)],
        within: &Projections,
    ) -> SlotReads {
        work::count(list.len());
        let mut known: HashMap<Region, usize> = HashMap::new();
        let mut hulls: Vec<Region> = Vec::new();
        let mut node_of = HashMap::new();
        let mut nodes_of: HashMap<usize, SmallVec<[usize; 2]>> = HashMap::new();
        for (k, nest, access) in list {
            let r = within.consumer(*k, (nest, *access), slot, &[]);
            let hull = access_hull(r.nest, r.access, (slot, shape), &full(&r.nest.extents));
            let node = *known.entry(hull).or_insert_with_key(|hull| {
                hulls.push(hull.clone());
                hulls.len() - 1
            });
            node_of.insert((*k, *access), node);
            let own = nodes_of.entry(*k).or_default();
            if !own.contains(&node) {
                own.push(node);
            }
        }
        let (near, group) = neighbours(&hulls, shape);
        SlotReads { node_of, nodes_of, near, group }
    }
}

/// Returns, for each box, the boxes that it intersects, and the group of connected boxes that it
/// belongs to.
fn neighbours(hulls: &[Region], shape: &[usize]) -> (Vec<Vec<usize>>, Vec<usize>) {
    let starts = |d: &usize| {
        let mut list: Vec<i64> = hulls.iter().map(|h| h[*d].0).collect();
        list.sort_unstable();
        list.dedup();
        list.len()
    };
    let mut near: Vec<Vec<usize>> = (0..hulls.len()).map(|k| vec![k]).collect();
    let Some(d) = (0..shape.len()).max_by_key(starts) else { return (near, vec![0; hulls.len()]) };
    let mut order: Vec<usize> = (0..hulls.len()).collect();
    order.sort_unstable_by(|a, b| hulls[*a][d].cmp(&hulls[*b][d]).then_with(|| hulls[*a].cmp(&hulls[*b])));
    let mut group = vec![0; hulls.len()];
    let (mut end, mut groups) = (i64::MIN, 0);
    for k in &order {
        groups += usize::from(hulls[*k][d].0 >= end);
        end = end.max(hulls[*k][d].1);
        group[*k] = groups;
    }
    // boxes that cover much of the dimension are compared with all others
    let width = |v: Interval| v.1 - v.0;
    let is_wide = |k: &usize| 4 * width(hulls[*k][d]) >= shape[d] as i64;
    let (wide, narrow): (Vec<usize>, Vec<usize>) = order.into_iter().partition(is_wide);
    let mut meet = |a: usize, b: usize| {
        let both = near[a].len() < MAX_NEAR_READS && near[b].len() < MAX_NEAR_READS;
        if both && intersect(&hulls[a], &hulls[b]).is_some() {
            near[a].push(b);
            near[b].push(a);
        }
    };
    for (n, a) in wide.iter().take(MAX_NEAR_READS).enumerate() {
        wide[n + 1..].iter().take(MAX_NEAR_READS).chain(&narrow).for_each(|b| meet(*a, *b));
    }
    for (n, a) in narrow.iter().enumerate() {
        let after = narrow[n + 1..].iter().take_while(|b| hulls[**b][d].0 < hulls[*a][d].1);
        after.take(MAX_NEAR_READS).for_each(|b| meet(*a, *b));
    }
    work::count(near.iter().map(Vec::len).sum());
    (near, group)
}
