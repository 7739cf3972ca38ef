//! Checks, in debug builds, that no memory is given to a value while another one uses it.
//!
//! Lifetimes are taken from the operations that run, not from the allocation requests.

use super::{BufferLocation, ExecutionPlan, NodeKernel, bind::BoundGroup};
use crate::core::util::small_sort;
use crate::exec::compile::fusion::{FusionPlan, reuse::BufferReuse};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// The memory of a value, from one level to another.
pub(super) struct Lifetime {
    /// The location.
    pub(super) location: BufferLocation,
    /// The size, in bytes.
    pub(super) bytes: usize,
    /// The first level.
    pub(super) first_level: u32,
    /// The last level.
    pub(super) last_level: u32,
}

/// Returns the lifetimes of the values of a program, and of its nested programs.
/// `places` has the locations of values.
pub(super) fn lifetimes(
    g: &FusionPlan<'_, '_>,
    places: &[BufferLocation],
    bound: &[Option<BoundGroup>],
    reuse: &BufferReuse,
) -> Vec<Lifetime> {
    let (flow, puts) = (g.program, &reuse.scatter_chains);
    let mut used: Vec<Option<(u32, u32)>> = vec![None; flow.values.len()];
    let mut all: Vec<Lifetime> = (0..reuse.donated.len()).map(|d| donated_lifetime(g, reuse, d)).collect();
    for (k, item) in flow.ops.iter().enumerate() {
        let level = g.op_level(k);
        for s in item.sources().into_iter().chain(item.results()) {
            let root = puts.last_value(flow.alias_root(s));
            let (from, to) = used[root].unwrap_or((level, level));
            used[root] = Some((from.min(level), to.max(level)));
        }
    }
    let nested = bound.iter().enumerate().filter_map(|(k, group)| {
        let (n, level) = (group.as_ref()?.nested()?, g.groups[k].level);
        Some(Lifetime { location: n.location?, bytes: n.arena_bytes, first_level: level, last_level: level })
    });
    all.extend(nested);
    let values = used.into_iter().enumerate().filter_map(|(s, used)| {
        let (from, to) = used?;
        Some(Lifetime { location: places[s], bytes: flow.value_bytes(s), first_level: from, last_level: to })
    });
    all.extend(values);
    all
}

/// Returns the lifetime of a donated argument: up to its last read by groups other than those that
/// store over it, which read each element before they write it.
fn donated_lifetime(g: &FusionPlan<'_, '_>, reuse: &BufferReuse, donation: usize) -> Lifetime {
    let (flow, buffer) = (g.program, &reuse.donated[donation]);
    let value = flow.alias_root(flow.ins[buffer.arg]);
    let results = reuse.in_donated.iter().filter(|x| x.1 == donation);
    let written = results.filter_map(|x| g.defs[reuse.scatter_chains.first_value(x.0)].map(|d| d.group));
    let alternates = reuse.alternates.iter().filter(|x| x.2 == donation).map(|x| g.op_groups[x.0]);
    let writers: Vec<usize> = written.chain(alternates).collect();
    let ops = flow.ops.iter().enumerate().filter(|(k, _)| !writers.contains(&g.op_groups[*k]));
    let reads = ops.filter(|(_, op)| op.sources().iter().any(|s| flow.alias_root(*s) == value));
    let last_level = reads.map(|(k, _)| g.op_level(k)).max().unwrap_or(0);
    let location = BufferLocation::Donated(donation, 0);
    Lifetime { location, bytes: buffer.bytes, first_level: 0, last_level }
}

/// Panics if two of these overlap, in memory and in levels.
pub(super) fn assert_disjoint(mut lives: Vec<Lifetime>) {
    small_sort::sort_by_key(&mut lives, |l| l.first_level);
    // by buffer: the ranges in use, by address, and the level after which each is free
    type Area = (BTreeMap<usize, usize>, BinaryHeap<Reverse<(u32, usize)>>);
    let mut areas: HashMap<Option<usize>, Area> = HashMap::new();
    for l in lives.iter().filter(|l| l.bytes > 0) {
        let (area, at) = match l.location {
            BufferLocation::Arena(at) => (None, at),
            BufferLocation::Donated(donation, at) => (Some(donation), at),
            _ => continue,
        };
        let (now, ends) = areas.entry(area).or_default();
        while let Some(Reverse((to, at))) = ends.peek().copied()
            && to < l.first_level
        {
            ends.pop();
            now.remove(&at);
        }
        let end = at + l.bytes;
        if let Some((a, b)) = now.range(..end).next_back().filter(|x| *x.1 > at) {
            panic!("bytes {at}..{end} are taken at level {} while {a}..{b} are in use", l.first_level);
        }
        now.insert(at, end);
        ends.push(Reverse((l.last_level, at)));
    }
}

/// Panics if a node writes a slot that another node of its level accesses.
pub(super) fn assert_independent(plan: &ExecutionPlan) {
    for level in &plan.levels {
        // by slot: a node that accesses it, and whether it is written
        let mut seen: HashMap<u32, (usize, bool)> = HashMap::new();
        for (k, node) in level.nodes.iter().enumerate() {
            let NodeKernel::Task(kernel, _) = &node.kernel else { continue };
            kernel.visit_accesses(&mut |a| {
                let (other, is_written) = seen.entry(a.slot).or_insert((k, a.is_written));
                assert!(
                    *other == k || !(*is_written || a.is_written),
                    "slot {} is written by one of two nodes that run at the same time: {} and {}",
                    a.slot,
                    level.nodes[*other].info,
                    node.info
                );
                *is_written |= a.is_written;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::compile::index::MAX_LOOPS;
    use crate::exec::compile::pack::{BoundCopyBox, CopySource, PackKernel};
    use crate::exec::compile::plan::bind::task_nodes;
    use crate::exec::compile::plan::{NodeInfo, PlanLevel, PlanNode};
    use smallvec::SmallVec;

    fn life(at: usize, bytes: usize, from: u32, to: u32) -> Lifetime {
        Lifetime { location: BufferLocation::Arena(at), bytes, first_level: from, last_level: to }
    }

    /// Returns a level of two copies: from slot 0 to slot 1, and from `from` to `out`.
    fn copies(from: u32, out: u32) -> ExecutionPlan {
        let node = |(from, out)| {
            let (ext, at) = ([1; MAX_LOOPS], (0, [0; MAX_LOOPS]));
            let boxes = vec![BoundCopyBox { from: CopySource::Slot(from), ext, src: at, dst: at }];
            let kernel =
                PackKernel { out, elements: 1, rows: 1, num_tasks: 1, element_bytes: 4, fill: 0, boxes };
            let info = NodeInfo { name: "copy", results: SmallVec::new(), num_maps: 0, origin: None };
            task_nodes(Box::new(kernel), None, info).0
        };
        let nodes: Vec<PlanNode> = [(0, 1), (from, out)].into_iter().map(node).collect();
        let level = PlanLevel { id: 0, nodes, num_tasks: 2 };
        ExecutionPlan { levels: vec![level], ..ExecutionPlan::default() }
    }

    #[test]
    fn nodes_of_a_level_may_read_the_same_slot() {
        assert_independent(&copies(0, 2));
    }

    #[test]
    #[should_panic(expected = "slot 1 is written by one of two nodes that run at the same time")]
    fn a_level_does_not_read_what_it_writes() {
        assert_independent(&copies(1, 2));
    }

    #[test]
    #[should_panic(expected = "slot 1 is written by one of two nodes that run at the same time")]
    fn a_level_does_not_write_a_slot_twice() {
        assert_independent(&copies(0, 1));
    }

    #[test]
    fn memory_may_be_used_again_once_it_is_free() {
        assert_disjoint(vec![life(0, 64, 1, 2), life(64, 64, 1, 4), life(0, 64, 3, 3), life(128, 8, 2, 2)]);
    }

    #[test]
    #[should_panic(expected = "bytes 32..96 are taken at level 2 while 0..64 are in use")]
    fn memory_in_use_is_not_taken() {
        assert_disjoint(vec![life(0, 64, 1, 2), life(32, 64, 2, 2)]);
    }
}
