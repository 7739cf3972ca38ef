//! Checks, in debug builds, that no memory is given to a value while another one uses it.
//!
//! Lifetimes are taken from the operations that run, not from the allocation requests.

use super::BufferLocation;
use super::build::value_bytes;
use super::control::NestedPlan;
use super::scatter_chains::ScatterChains;
use crate::core::util::small_sort;
use crate::exec::compile::fusion::FusionPlan;
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
/// `places` has the locations of values, and `rooms` those of nested programs.
pub(super) fn lifetimes(
    g: &FusionPlan<'_, '_>,
    places: &[BufferLocation],
    nested: &[Option<NestedPlan>],
    scratch_locations: &[Option<BufferLocation>],
    puts: &ScatterChains,
) -> Vec<Lifetime> {
    let flow = g.program;
    let mut used: Vec<Option<(u32, u32)>> = vec![None; flow.values.len()];
    let mut all = Vec::new();
    for (k, item) in flow.ops.iter().enumerate() {
        let level = g.op_level(k);
        for s in item.sources().into_iter().chain(item.results()) {
            let root = puts.last_value(flow.alias_root(s));
            let (from, to) = used[root].unwrap_or((level, level));
            used[root] = Some((from.min(level), to.max(level)));
        }
        if let (Some(n), Some(buffer_location)) = (&nested[k], scratch_locations[k]) {
            all.push(Lifetime {
                location: buffer_location,
                bytes: n.arena_bytes,
                first_level: level,
                last_level: level,
            });
        }
    }
    let values = used.into_iter().enumerate().filter_map(|(s, used)| {
        let (from, to) = used?;
        Some(Lifetime { location: places[s], bytes: value_bytes(flow, s), first_level: from, last_level: to })
    });
    all.extend(values);
    all
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

#[cfg(test)]
mod tests {
    use super::*;

    fn life(at: usize, bytes: usize, from: u32, to: u32) -> Lifetime {
        Lifetime { location: BufferLocation::Arena(at), bytes, first_level: from, last_level: to }
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
