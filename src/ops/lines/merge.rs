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

/// Fills the first half of a room with these numbers, sorted by their upper bits. Behind its second half it says something more.
fn sorted<K: radix::Digits + Element>(
    room: &mut Out<'_>,
    bits: Range<u32>,
    numbers: impl Iterator<Item = K>,
    more: K,
) {
    let mut room = room.view::<K>();
    let Some((last, room)) = room.as_slice_mut().and_then(|room| room.split_last_mut()) else { return };
    let (list, room) = room.split_at_mut(room.len() / 2);
    list.iter_mut().zip(numbers).for_each(|(to, x)| *to = x);
    radix::sort(list, room, bits);
    *last = more;
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

/// Calls back with all of two sorted runs, and with the rank of each.
fn two<K: Ord + Copy>(mut a: &[K], mut b: &[K], put: &mut impl FnMut(usize, K)) {
    let (mut from, mut to) = (0, a.len() + b.len());
    while !a.is_empty() && !b.is_empty() {
        // from both ends at once, as neither waits for the other; so many that neither run ends
        let many = a.len().min(b.len());
        let (mut i, mut j, mut e, mut f) = (0, 0, a.len(), b.len());
        for k in 0..many {
            let (x, y) = (a[i], b[j]);
            let second = y < x;
            put(from + k, if second { y } else { x });
            i += usize::from(!second);
            j += usize::from(second);
            let (x, y) = (a[e - 1], b[f - 1]);
            let first = y < x;
            put(to - 1 - k, if first { x } else { y });
            e -= usize::from(first);
            f -= usize::from(!first);
        }
        (a, b) = (&a[i..e], &b[j..f]);
        (from, to) = (from + many, to - many);
    }
    a.iter().chain(b).enumerate().for_each(|(k, x)| put(from + k, *x));
}

/// Calls back with those of the sorted runs that have these ranks among all, and with how many of these come before each.
fn merge<K: Ord + Copy + Default + Into<u64>>(
    runs: &[&[K]],
    ranks: Range<usize>,
    put: &mut impl FnMut(usize, K),
) {
    let ends = first(runs, ranks.start).into_iter().zip(first(runs, ranks.end));
    let mut parts: Vec<&[K]> = runs.iter().zip(ends).map(|(r, (a, e))| &r[a..e]).collect();
    let mut lengths = Vec::new();
    // pairs of them go from one to the other
    let (mut made, mut next) = (Vec::new(), Vec::new());
    while parts.len() > 2 {
        next.resize(ranks.len(), K::default());
        let mut rest = &mut next[..];
        lengths.clear();
        for pair in parts.chunks(2) {
            let (a, b) = (pair[0], pair.get(1).copied().unwrap_or_default());
            lengths.push(a.len() + b.len());
            let (to, behind) = rest.split_at_mut(a.len() + b.len());
            two(a, b, &mut |k, x| to[k] = x);
            rest = behind;
        }
        std::mem::swap(&mut made, &mut next);
        let mut rest = &made[..];
        let part = |n: &usize| rest.split_off(..*n).unwrap_or_default();
        parts = lengths.iter().map(part).collect();
    }
    let at = |k: usize| parts.get(k).copied().unwrap_or_default();
    two(at(0), at(1), put);
}

impl Stages for Keys {
    fn room(&self, places: usize) -> (DType, usize) {
        (with_dtype!(self.0, real T => <T as Ordered>::Key::DTYPE), 2 * places + 1)
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        with_dtype!(self.0, real T => {
            let Some(x) = line::<T>(&ins[0]) else { return };
            let x = x.slice(ndarray::s![places]);
            // the key of zeros where some are negative
            let zero = <T as Ordered>::ZERO.filter(|_| x.iter().any(|x| x.negative_zero())).unwrap_or_default();
            sorted(room, 0..<T as Ordered>::BITS, x.iter().map(|x| x.key()), zero);
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
    match y.as_slice_mut() {
        Some(y) => merge(&runs, places.clone(), &mut |k, key| {
            y[k].write(T::of_key(key));
        }),
        None => merge(&runs, places.clone(), &mut |k, key| {
            y[k].write(T::of_key(key));
        }),
    }
    // zeros keep their signs, in order
    let negative = |zero: &T::Key| rooms.iter().any(|r| r.view::<T::Key>().last() == Some(zero));
    let Some(zero) = T::ZERO.filter(negative) else { return };
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
    sorted(room, 32..32 + T::BITS, run.map(|(place, x)| <u64 as Placed>::new(x.key().into(), place)), 0);
}

impl Stages for Places {
    fn room(&self, places: usize) -> (DType, usize) {
        (DType::U64, 2 * places + 1)
    }
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>) {
        with_dtype!(ins[0].dtype(), real T => placed::<T>(&ins[0], places, room));
    }
    fn then(&self, _: usize, places: Range<usize>, ins: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>) {
        let mut from = vec![0; places.len()];
        merge(&runs::<u64>(rooms), places, &mut |k, placed| from[k] = placed.place());
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
                let merged = |runs: &[&[u32]], ranks: Range<usize>| {
                    let mut made = vec![None; ranks.len()];
                    merge(runs, ranks, &mut |k, x| assert_eq!(made[k].replace(x), None));
                    made.into_iter().map(|x| x.expect("each rank has one")).collect::<Vec<_>>()
                };
                assert_eq!(merged(&runs, a..e), all[a..e], "{a}..{e}");
                assert_eq!(merged(&runs[..1], a.min(4)..e.min(4)), runs[0][a.min(4)..e.min(4)]);
            }
        }
    }
}
