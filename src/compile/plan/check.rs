//! What debug builds make sure of: nothing is placed over memory that is still wanted.
//!
//! The check takes its levels from the nodes that run, not from what was asked of the arena.

use super::Memory;
use super::control::Nested;
use super::puts::Puts;
use super::schedule::bytes;
use crate::compile::group::Groups;
use crate::sorted;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// Memory that is in use from one level to another.
pub(super) struct Life {
    pub(super) place: Memory,
    pub(super) bytes: usize,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// The memory of a flow's values, whose places are these, and of its nested programs, whose rooms are there.
pub(super) fn lives(
    g: &Groups<'_, '_>,
    places: &[Memory],
    nested: &[Option<Nested>],
    rooms: &[Option<Memory>],
    puts: &Puts,
) -> Vec<Life> {
    let flow = g.flow;
    let mut used: Vec<Option<(u32, u32)>> = vec![None; flow.values.len()];
    let mut all = Vec::new();
    for (k, item) in flow.items.iter().enumerate() {
        let level = g.level_at(k);
        for s in item.sources().into_iter().chain(item.results()) {
            let root = puts.last(flow.root(s));
            let (from, to) = used[root].unwrap_or((level, level));
            used[root] = Some((from.min(level), to.max(level)));
        }
        if let (Some(n), Some(place)) = (&nested[k], rooms[k]) {
            all.push(Life { place, bytes: n.bytes, from: level, to: level });
        }
    }
    let values = used.into_iter().enumerate().filter_map(|(s, used)| {
        let (from, to) = used?;
        Some(Life { place: places[s], bytes: bytes(flow, s), from, to })
    });
    all.extend(values);
    all
}

/// Panics where two of these are in the same memory at the same level.
pub(super) fn apart(mut lives: Vec<Life>) {
    sorted::sort_by_key(&mut lives, |l| l.from);
    // by buffer: what is in use now by its address, and which of it ends first
    type Area = (BTreeMap<usize, usize>, BinaryHeap<Reverse<(u32, usize)>>);
    let mut areas: HashMap<Option<usize>, Area> = HashMap::new();
    for l in lives.iter().filter(|l| l.bytes > 0) {
        let (area, at) = match l.place {
            Memory::Arena(at) => (None, at),
            Memory::Given(gift, at) => (Some(gift), at),
            _ => continue,
        };
        let (now, ends) = areas.entry(area).or_default();
        while let Some(Reverse((to, at))) = ends.peek().copied()
            && to < l.from
        {
            ends.pop();
            now.remove(&at);
        }
        let end = at + l.bytes;
        if let Some((a, b)) = now.range(..end).next_back().filter(|x| *x.1 > at) {
            panic!("bytes {at}..{end} are taken at level {} while {a}..{b} are in use", l.from);
        }
        now.insert(at, end);
        ends.push(Reverse((l.to, at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(at: usize, bytes: usize, from: u32, to: u32) -> Life {
        Life { place: Memory::Arena(at), bytes, from, to }
    }

    #[test]
    fn memory_may_be_used_again_once_it_is_free() {
        apart(vec![life(0, 64, 1, 2), life(64, 64, 1, 4), life(0, 64, 3, 3), life(128, 8, 2, 2)]);
    }

    #[test]
    #[should_panic(expected = "bytes 32..96 are taken at level 2 while 0..64 are in use")]
    fn memory_in_use_is_not_taken() {
        apart(vec![life(0, 64, 1, 2), life(32, 64, 2, 2)]);
    }
}
