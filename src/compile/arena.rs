//! The static buffer plan: an offset for every value that is in memory for some levels only.

use crate::sorted;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A value that wants room from one level to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<T> {
    /// The level that makes it.
    pub(crate) from: u32,
    /// The last level that reads it.
    pub(crate) to: u32,
    /// Bytes.
    pub(crate) size: usize,
    /// Whose it is.
    pub(crate) what: T,
}

/// Room outside the arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    /// Bytes.
    pub(crate) size: usize,
    /// It is free for values that later levels make.
    pub(crate) after: u32,
}

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum At {
    /// From this byte of the arena on.
    Arena(usize),
    /// In this spare room, from that byte on.
    Spare(usize, usize),
}

/// Places all of these, largest first within a level, each where the first free room is, spare room first. Returns the bytes of the
/// arena. Room is counted in lines of 64 bytes; spare room has whole ones.
pub(crate) fn plan<T: Copy>(spare: &[Spare], mut wants: Vec<Want<T>>, mut put: impl FnMut(T, At)) -> usize {
    sorted::sort_by_key(&mut wants, |w| (w.from, Reverse(w.size)));
    let mut free: BTreeMap<usize, usize> = BTreeMap::new();
    let mut live: BinaryHeap<Reverse<(u32, usize, usize)>> = BinaryHeap::new();
    // all room has addresses in one row, with gaps, so that no two join
    let (mut end, mut starts) = (0, Vec::with_capacity(spare.len()));
    for s in spare {
        let size = s.size.max(1).next_multiple_of(64);
        live.push(Reverse((s.after, end, size)));
        starts.push(end);
        end += size + 64;
    }
    let arena = end;
    for w in wants {
        while let Some(Reverse((to, at, size))) = live.peek().copied()
            && to < w.from
        {
            live.pop();
            give(&mut free, at, size);
        }
        let size = w.size.max(1).next_multiple_of(64);
        let room = free.iter().find(|(_, s)| **s >= size).map(|(a, s)| (*a, *s));
        let at = match room {
            Some((at, have)) => {
                free.remove(&at);
                if have > size {
                    free.insert(at + size, have - size);
                }
                at
            }
            None => {
                // what is free at the end grows
                let last = free.last_key_value().map(|(a, s)| (*a, *s)).filter(|(a, s)| a + s == end);
                let at = last.map_or(end, |l| l.0);
                free.remove(&at);
                end = at + size;
                at
            }
        };
        live.push(Reverse((w.to, at, size)));
        let place = match at.checked_sub(arena) {
            Some(at) => At::Arena(at),
            None => {
                let k = starts.partition_point(|s| *s <= at) - 1;
                At::Spare(k, at - starts[k])
            }
        };
        put(w.what, place);
    }
    end - arena
}

/// Room given back, joined with its neighbours.
fn give(free: &mut BTreeMap<usize, usize>, mut at: usize, mut size: usize) {
    if let Some(next) = free.remove(&(at + size)) {
        size += next;
    }
    if let Some((a, s)) = free.range(..at).next_back().map(|(a, s)| (*a, *s))
        && a + s == at
    {
        free.remove(&a);
        (at, size) = (a, size + s);
    }
    free.insert(at, size);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_live_at_once_do_not_overlap() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let wants: Vec<Want<usize>> = (0..500)
            .map(|what| {
                let from = next(60) as u32;
                Want { from, to: from + next(9) as u32, size: 1 + next(5000) as usize, what }
            })
            .collect();
        let spare = [(3000, 0), (4100, 20), (64, 5)].map(|(size, after)| Spare { size, after });
        let mut alone = 0;
        for spare in [&[][..], &spare] {
            let mut at = vec![At::Arena(0); 500];
            let bytes = plan(spare, wants.clone(), |k, a| at[k] = a);
            let room = |a: At| match a {
                At::Arena(at) => (usize::MAX, at),
                At::Spare(k, at) => (k, at),
            };
            for (i, a) in wants.iter().enumerate() {
                let (r, x) = room(at[i]);
                match spare.get(r) {
                    Some(s) => assert!(x + a.size <= s.size.next_multiple_of(64) && a.from > s.after),
                    None => assert!(x + a.size <= bytes),
                }
                for (j, b) in wants.iter().enumerate().take(i) {
                    let (q, y) = room(at[j]);
                    let apart =
                        a.to < b.from || b.to < a.from || r != q || x + a.size <= y || y + b.size <= x;
                    assert!(apart, "{a:?} at {:?} and {b:?} at {:?}", at[i], at[j]);
                }
            }
            let all: usize = wants.iter().map(|w| w.size).sum();
            assert!(bytes < all / 3, "room is used again: {bytes} of {all}");
            if spare.is_empty() {
                alone = bytes;
            } else {
                let used = |k| at.iter().any(|a| room(*a).0 == k);
                assert!(bytes < alone && used(0) && used(1), "{bytes} of {alone}");
            }
        }
    }
}
