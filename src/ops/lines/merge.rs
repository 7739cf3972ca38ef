//! A sort of one long line by many workers: each sorts a run of it, then makes a run of the result out of all sorted runs.
//!
//! What is sorted are whole numbers, of which equal ones cannot be told apart: however many runs there are, the result is the same.

use super::key::{Ordered, Placed};
use super::radix;
use crate::program::{In, Out, Outs, Stages};
use crate::types::{DType, Element, with_dtype};
use ndarray::{ArrayView1, ArrayViewMut1, Ix1};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Lines of one operand, sorted by themselves: as keys.
#[derive(Debug)]
pub(super) struct Keys(pub(super) DType);

/// Lines sorted by the first of some operands: as its keys and their places, in 64 bits.
#[derive(Debug)]
pub(super) struct Places(pub(super) usize);

fn line<'a, T: Element>(x: &In<'a>) -> Option<ArrayView1<'a, T>> {
    x.view::<T>().into_dimensionality::<Ix1>().ok()
}
fn fresh<'a, T: Element>(y: &'a mut Out<'_>) -> Option<ArrayViewMut1<'a, MaybeUninit<T>>> {
    y.fresh::<T>().into_dimensionality::<Ix1>().ok()
}

/// Fills the first half of a room with these numbers, sorted by their upper bits.
fn sorted<K: radix::Digits + Element>(
    room: &mut Out<'_>,
    bits: Range<u32>,
    numbers: impl Iterator<Item = K>,
) {
    let mut room = room.view::<K>();
    let Some(room) = room.as_slice_mut() else { return };
    let (list, room) = room.split_at_mut(room.len() / 2);
    list.iter_mut().zip(numbers).for_each(|(to, x)| *to = x);
    radix::sort(list, room, bits);
}

/// The sorted numbers that [`sorted`] left in each room.
fn runs<'a, K: Element>(rooms: &[In<'a>]) -> Vec<&'a [K]> {
    let half = |room: &In<'a>| room.view::<K>().to_slice().map(|s| &s[..s.len() / 2]);
    rooms.iter().filter_map(half).collect()
}

/// How many of each run are among the first so many of all.
fn first<K: Copy + Into<u64>>(runs: &[&[K]], many: usize) -> Vec<usize> {
    let below = |run: &&[K], x: u64| run.partition_point(|k| (*k).into() < x);
    // the greatest number with no more of them below
    let fits = |x: u64| runs.iter().map(|r| below(r, x)).sum::<usize>() <= many;
    let x = (0..u64::BITS).rev().map(|b| 1 << b).fold(0, |x, bit| if fits(x | bit) { x | bit } else { x });
    let mut ends: Vec<usize> = runs.iter().map(|r| below(r, x)).collect();
    let mut left = many - ends.iter().sum::<usize>();
    for (run, end) in runs.iter().zip(&mut ends) {
        let equal = run[*end..].iter().take(left).take_while(|k| (**k).into() == x).count();
        *end += equal;
        left -= equal;
    }
    ends
}

/// Calls back with all of two sorted runs, in order.
fn two<K: Ord + Copy>(a: &[K], b: &[K], put: &mut impl FnMut(K)) {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let second = y < x;
        put(if second { *y } else { *x });
        i += usize::from(!second);
        j += usize::from(second);
    }
    a[i..].iter().chain(&b[j..]).for_each(|k| put(*k));
}

/// Calls back with those of the sorted runs that have these ranks among all, in order.
fn merge<K: Ord + Copy + Into<u64>>(runs: &[&[K]], ranks: Range<usize>, put: &mut impl FnMut(K)) {
    let ends = first(runs, ranks.start).into_iter().zip(first(runs, ranks.end));
    let parts: Vec<&[K]> = runs.iter().zip(ends).map(|(r, (a, e))| &r[a..e]).collect();
    if let [a, b] = parts[..] {
        return two(a, b, put);
    }
    let pair = |pair: &[&[K]]| {
        let mut all = Vec::with_capacity(pair.iter().map(|p| p.len()).sum());
        two(pair[0], pair.get(1).copied().unwrap_or_default(), &mut |k| all.push(k));
        all
    };
    let mut made: Vec<Vec<K>> = parts.chunks(2).map(pair).collect();
    while made.len() > 2 {
        let parts: Vec<&[K]> = made.iter().map(Vec::as_slice).collect();
        made = parts.chunks(2).map(pair).collect();
    }
    let at = |k: usize| made.get(k).map(Vec::as_slice).unwrap_or_default();
    two(at(0), at(1), put);
}

impl Stages for Keys {
    fn room(&self, places: usize) -> (DType, usize) {
        (with_dtype!(self.0, real T => <T as Ordered>::Key::DTYPE), 2 * places)
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        with_dtype!(self.0, real T => {
            let Some(x) = line::<T>(&ins[0]) else { return };
            sorted(room, 0..<T as Ordered>::BITS, x.slice(ndarray::s![places]).iter().map(|x| x.key()));
        });
    }
    fn then(&self, _: usize, places: Range<usize>, ins: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>) {
        let Some(mut y) = outs.take(0) else { return };
        with_dtype!(self.0, real T => keys_then::<T>(places, &ins[0], rooms, &mut y));
    }
}

fn keys_then<T: Ordered>(places: Range<usize>, x: &In<'_>, rooms: &[In<'_>], y: &mut Out<'_>) {
    let (Some(x), Some(mut y)) = (line::<T>(x), fresh::<T>(y)) else { return };
    let runs = runs::<T::Key>(rooms);
    let mut to = y.iter_mut();
    merge(&runs, places.clone(), &mut |key| {
        to.next().map(|to| to.write(T::of_key(key)));
    });
    // zeros keep their signs, in order
    let Some(zero) = T::ZERO else { return };
    let below = |run: &&[T::Key]| run.partition_point(|k| *k < zero);
    let begin: usize = runs.iter().map(below).sum();
    let count: usize = runs.iter().map(|r| r[below(r)..].partition_point(|k| *k == zero)).sum();
    let (lo, hi) = (begin.max(places.start), (begin + count).min(places.end));
    if lo < hi {
        let zeros = x.iter().filter(|x| x.key() == zero).skip(lo - begin);
        for (y, zero) in y.iter_mut().skip(lo - places.start).take(hi - lo).zip(zeros) {
            y.write(*zero);
        }
    }
}

/// A run of the keys of a line with their places, sorted.
fn placed<T: Ordered>(x: &In<'_>, places: Range<usize>, room: &mut Out<'_>) {
    let Some(x) = line::<T>(x) else { return };
    let run = places.clone().zip(x.slice(ndarray::s![places]));
    sorted(room, 32..32 + T::BITS, run.map(|(place, x)| <u64 as Placed>::new(x.key().into(), place)));
}

impl Stages for Places {
    fn room(&self, places: usize) -> (DType, usize) {
        (DType::U64, 2 * places)
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        with_dtype!(ins[0].dtype(), real T => placed::<T>(&ins[0], places, room));
    }
    fn then(&self, _: usize, places: Range<usize>, ins: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>) {
        let mut from = Vec::with_capacity(places.len());
        merge(&runs::<u64>(rooms), places, &mut |placed| from.push(placed.place()));
        for (k, x) in ins.iter().enumerate().take(self.0) {
            let Some(mut y) = outs.take(k) else { continue };
            with_dtype!(x.dtype(), real T => {
                let (Some(x), Some(mut y)) = (line::<T>(x), fresh::<T>(&mut y)) else { return };
                for (y, place) in y.iter_mut().zip(&from) {
                    y.write(x[*place]);
                }
            });
        }
        let Some(mut y) = outs.take(self.0) else { return };
        let Some(mut y) = fresh::<i32>(&mut y) else { return };
        for (y, place) in y.iter_mut().zip(&from) {
            y.write(*place as i32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_by_ranks() {
        let runs: [&[u32]; 4] = [&[1, 3, 3, 9], &[], &[0, 3, 3, 3, u32::MAX], &[2, 3]];
        let mut all = runs.concat();
        all.sort_unstable();
        for a in 0..=all.len() {
            for e in a..=all.len() {
                let mut made = Vec::new();
                merge(&runs, a..e, &mut |k| made.push(k));
                assert_eq!(made, all[a..e], "{a}..{e}");
                let mut made = Vec::new();
                merge(&runs[..1], a.min(4)..e.min(4), &mut |k| made.push(k));
                assert_eq!(made, runs[0][a.min(4)..e.min(4)]);
            }
        }
    }
}
