//! Buffer assignment: finds an offset for every value that is in memory during some levels only.

use crate::core::util::small_sort;
use crate::partition::fusion::reuse::FreeBlock;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// True if a guard follows each value, for AddressSanitizer. Then values do not share memory.
pub(crate) const HAS_GUARDS: bool = cfg!(sanitized = "address");
/// The minimum size of a guard, in bytes.
const MIN_GUARD_BYTES: usize = 64;

/// A request for memory from one level to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocRequest<T> {
    /// The level that writes it.
    pub(crate) first_level: u32,
    /// The last level that reads it.
    pub(crate) last_level: u32,
    /// The size, in bytes.
    pub(crate) bytes: usize,
    /// The owner, which is returned with the allocation.
    pub(crate) owner: T,
}

/// The memory of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Allocation {
    /// An offset in the arena, in bytes.
    Arena(usize),
    /// The index of a free block, and an offset in it, in bytes.
    FreeBlock(usize, usize),
}

/// The maximum number of requests for which a second order is tried.
const MAX_TRIED_REQUESTS: usize = 1024;

/// Assigns memory to all requests, and returns the size of the arena in bytes.
/// Sizes are rounded up to 64 bytes, and the sizes of free blocks must be multiples of 64 bytes.
///
/// Requests are served by level. If that leaves gaps, they are served by size too, without free
/// blocks, and the smaller arena is used.
pub(crate) fn assign_offsets<T: Copy>(
    spare: &[FreeBlock],
    mut requests: Vec<AllocRequest<T>>,
    mut assign: impl FnMut(&AllocRequest<T>, Allocation),
) -> usize {
    if HAS_GUARDS {
        return assign_guarded(&requests, assign);
    }
    small_sort::sort_by_key(&mut requests, |w| (w.first_level, Reverse(w.bytes)));
    let (mut allocations, mut bytes) = allocate_by_level(spare, &requests);
    let few = (3..=MAX_TRIED_REQUESTS).contains(&requests.len());
    if few && bytes > max_live_bytes(&requests) {
        let (offsets, end) = allocate_by_size(&requests);
        if end < bytes {
            (allocations, bytes) = (offsets.into_iter().map(Allocation::Arena).collect(), end);
        }
    }
    requests.iter().zip(allocations).for_each(|(request, at)| assign(request, at));
    bytes
}

/// Returns the size of the memory of a request, in bytes.
fn padded_bytes<T>(request: &AllocRequest<T>) -> usize {
    request.bytes.max(1).next_multiple_of(64)
}

/// Returns the maximum of the bytes that are in use at one level.
/// The requests are sorted by their first levels.
fn max_live_bytes<T>(requests: &[AllocRequest<T>]) -> usize {
    let (mut live, mut now, mut most) = (BinaryHeap::new(), 0, 0);
    for w in requests {
        while let Some(Reverse((to, size))) = live.peek().copied()
            && to < w.first_level
        {
            live.pop();
            now -= size;
        }
        live.push(Reverse((w.last_level, padded_bytes(w))));
        now += padded_bytes(w);
        most = most.max(now);
    }
    most
}

/// Returns an offset for each request, and the size of the arena.
/// Large requests come first; each gets the smallest gap between requests of its levels that it
/// fits into.
fn allocate_by_size<T>(requests: &[AllocRequest<T>]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    small_sort::sort_by_key(&mut order, |k| (Reverse(padded_bytes(&requests[*k])), *k));
    let (mut offsets, mut end) = (vec![0; requests.len()], 0);
    for (n, k) in order.iter().enumerate() {
        let (w, size) = (&requests[*k], padded_bytes(&requests[*k]));
        let meets = |o: &&usize| {
            let other = &requests[**o];
            w.first_level <= other.last_level && other.first_level <= w.last_level
        };
        let taken = order[..n].iter().filter(meets);
        let mut taken: Vec<(usize, usize)> =
            taken.map(|o| (offsets[*o], offsets[*o] + padded_bytes(&requests[*o]))).collect();
        small_sort::sort(&mut taken);
        let (mut free_from, mut best) = (0, None);
        for (from, to) in taken {
            let gap = from.saturating_sub(free_from);
            if gap >= size && best.is_none_or(|(least, _)| gap < least) {
                best = Some((gap, free_from));
            }
            free_from = free_from.max(to);
        }
        offsets[*k] = best.map_or(free_from, |(_, at)| at);
        end = end.max(offsets[*k] + size);
    }
    (offsets, end)
}

/// Returns the memory of each request, and the size of the arena.
/// Requests are served by level and, within a level, largest first. Each gets the first free range
/// that is large enough; free blocks come before the arena.
fn allocate_by_level<T>(spare: &[FreeBlock], requests: &[AllocRequest<T>]) -> (Vec<Allocation>, usize) {
    let mut free: BTreeMap<usize, usize> = BTreeMap::new();
    let mut live: BinaryHeap<Reverse<(u32, usize, usize)>> = BinaryHeap::new();
    // all blocks share one address space, with gaps so that no two of them merge
    let (mut end, mut starts) = (0, Vec::with_capacity(spare.len()));
    for s in spare {
        let size = s.bytes.max(1).next_multiple_of(64);
        live.push(Reverse((s.free_after_level, end, size)));
        starts.push(end);
        end += size + 64;
    }
    let (arena, mut allocations) = (end, Vec::with_capacity(requests.len()));
    for w in requests {
        while let Some(Reverse((to, at, size))) = live.peek().copied()
            && to < w.first_level
        {
            live.pop();
            release_range(&mut free, at, size);
        }
        let size = padded_bytes(w);
        let space = free.iter().find(|(_, s)| **s >= size).map(|(a, s)| (*a, *s));
        let at = match space {
            Some((at, have)) => {
                free.remove(&at);
                if have > size {
                    free.insert(at + size, have - size);
                }
                at
            }
            None => {
                // extend the free range at the end
                let last = free.last_key_value().map(|(a, s)| (*a, *s)).filter(|(a, s)| a + s == end);
                let at = last.map_or(end, |l| l.0);
                free.remove(&at);
                end = at + size;
                at
            }
        };
        live.push(Reverse((w.last_level, at, size)));
        allocations.push(match at.checked_sub(arena) {
            Some(at) => Allocation::Arena(at),
            None => {
                let k = starts.partition_point(|s| *s <= at) - 1;
                Allocation::FreeBlock(k, at - starts[k])
            }
        });
    }
    (allocations, end - arena)
}

/// Assigns separate memory to each request, followed by a guard; returns the size of the arena.
fn assign_guarded<T>(
    requests: &[AllocRequest<T>],
    mut assign: impl FnMut(&AllocRequest<T>, Allocation),
) -> usize {
    let mut end = 0;
    for request in requests {
        assign(request, Allocation::Arena(end));
        end += request.bytes + guard_bytes(request.bytes);
    }
    end
}
/// Returns the size of the guard after a value of `bytes` bytes, in bytes.
pub(crate) fn guard_bytes(bytes: usize) -> usize {
    (bytes + MIN_GUARD_BYTES).next_multiple_of(64) - bytes
}

/// Adds a range to the free list, merged with its neighbours.
fn release_range(free: &mut BTreeMap<usize, usize>, mut at: usize, mut size: usize) {
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
    fn a_guard_follows_each_value() {
        let request = |bytes| AllocRequest { first_level: 0, last_level: 0, bytes, owner: () };
        let mut at = Vec::new();
        let end = assign_guarded(&[request(0), request(1), request(64)], |_, a| at.push(a));
        assert_eq!((at, end), ([0, 64, 192].map(Allocation::Arena).to_vec(), 320));
        assert_eq!([0, 1, 64].map(guard_bytes), [64, 127, 64]);
    }

    #[test]
    fn a_gap_that_no_later_value_fits_into_is_avoided() {
        let request =
            |(first_level, last_level, bytes)| AllocRequest { first_level, last_level, bytes, owner: () };
        // by level, the last value does not fit into the gap of the first
        let requests: Vec<AllocRequest<()>> =
            [(0, 1, 64), (0, 2, 64), (2, 2, 128)].into_iter().map(request).collect();
        assert_eq!(allocate_by_level(&[], &requests).1, 256);
        assert_eq!((max_live_bytes(&requests), allocate_by_size(&requests).1), (192, 192));
        assert_eq!(assign_offsets(&[], requests, |_, _| ()), 192);
    }

    #[test]
    fn values_that_live_at_once_do_not_overlap() {
        let mut seed = 7u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let requests: Vec<AllocRequest<usize>> = (0..500)
            .map(|what| {
                let from = next(60) as u32;
                AllocRequest {
                    first_level: from,
                    last_level: from + next(9) as u32,
                    bytes: 1 + next(5000) as usize,
                    owner: what,
                }
            })
            .collect();
        let spare = [(3000, 0), (4100, 20), (64, 5)]
            .map(|(size, after)| FreeBlock { bytes: size, free_after_level: after });
        let mut alone = 0;
        for spare in [&[][..], &spare] {
            let mut at = vec![Allocation::Arena(0); 500];
            let bytes = assign_offsets(spare, requests.clone(), |w, a| at[w.owner] = a);
            let room = |a: Allocation| match a {
                Allocation::Arena(at) => (usize::MAX, at),
                Allocation::FreeBlock(k, at) => (k, at),
            };
            for (i, a) in requests.iter().enumerate() {
                let (r, x) = room(at[i]);
                match spare.get(r) {
                    Some(s) => assert!(
                        x + a.bytes <= s.bytes.next_multiple_of(64) && a.first_level > s.free_after_level
                    ),
                    None => assert!(x + a.bytes <= bytes),
                }
                for (j, b) in requests.iter().enumerate().take(i) {
                    let (q, y) = room(at[j]);
                    let apart = a.last_level < b.first_level
                        || b.last_level < a.first_level
                        || r != q
                        || x + a.bytes <= y
                        || y + b.bytes <= x;
                    assert!(apart, "{a:?} at {:?} and {b:?} at {:?}", at[i], at[j]);
                }
            }
            let all: usize = requests.iter().map(|w| w.bytes).sum();
            assert!(bytes < all / 3, "room is used again: {bytes} of {all}");
            if spare.is_empty() {
                alone = bytes;
            } else {
                assert!(bytes <= alone, "{bytes} of {alone}");
            }
        }
    }
}
