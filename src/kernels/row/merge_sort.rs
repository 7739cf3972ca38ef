//! A parallel merge sort of one long row.
//!
//! In the first pass, each worker sorts a run of the row. In the second pass, each worker computes
//! a run of the result by merging the items of all sorted runs that belong there. The items are
//! integers, and equal integers are indistinguishable, so the result does not depend on the number
//! of runs.

use super::radix_sort;
use super::sort_key::{KeyIndex, Ordered};
use crate::core::{DType, Element, types::with_dtype};
use crate::kernels::row_kernel::{ParallelRowKernel, RowInput, RowOutput, RowOutputs};
use ndarray::{ArrayView1, ArrayViewMut1, Ix1};
use std::mem::MaybeUninit;
use std::ops::Range;

/// The parallel sort of a single operand: only keys are sorted.
#[derive(Debug)]
pub(crate) struct KeySortStages(pub(crate) DType);

/// The parallel sort of several operands by the first one.
/// Each key is sorted together with its index, as one integer of 64 bits.
#[derive(Debug)]
pub(crate) struct IndexSortStages(pub(crate) usize);

fn row_of<'a, T: Element>(x: &RowInput<'a>) -> Option<ArrayView1<'a, T>> {
    x.view::<T>().into_dimensionality::<Ix1>().ok()
}
fn uninit_row<'a, T: Element>(y: &'a mut RowOutput<'_>) -> Option<ArrayViewMut1<'a, MaybeUninit<T>>> {
    y.uninit_view::<T>().into_dimensionality::<Ix1>().ok()
}

/// Fills the first half of a scratch buffer with `numbers`, sorted by the given bits.
///
/// The second half is scratch space of the sort. The last element of the buffer, after both halves,
/// is set to `more`.
fn sort_into<K: radix_sort::RadixKey + Element>(
    buffer: &mut RowOutput<'_>,
    bits: Range<u32>,
    numbers: impl Iterator<Item = K>,
    more: K,
) {
    let mut buffer = buffer.view::<K>();
    let Some((last, halves)) = buffer.as_slice_mut().and_then(|room| room.split_last_mut()) else { return };
    let (list, scratch) = halves.split_at_mut(halves.len() / 2);
    list.iter_mut().zip(numbers).for_each(|(to, x)| *to = x);
    radix_sort::sort(list, scratch, bits);
    *last = more;
}

/// Returns the integers that [`sort_into`] has sorted, for each scratch buffer.
fn sorted_runs<'a, K: Element>(scratch: &[RowInput<'a>]) -> Vec<&'a [K]> {
    let half = |buffer: &RowInput<'a>| buffer.view::<K>().to_slice().map(|s| &s[..s.len() / 2]);
    scratch.iter().filter_map(half).collect()
}

/// Returns how many items of each run are among the `many` smallest items of all runs.
fn split_at_rank<K: Copy + Into<u64>>(runs: &[&[K]], many: usize) -> Vec<usize> {
    let below = |run: &&[K], x: u64| run.partition_point(|k| (*k).into() < x);
    // binary search for the largest key with at most `many` items below it
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

/// Merges two sorted runs, and calls `put` with the rank of each item and the item.
fn merge_two<K: Ord + Copy>(mut a: &[K], mut b: &[K], put: &mut impl FnMut(usize, K)) {
    let (mut from, mut to) = (0, a.len() + b.len());
    while !a.is_empty() && !b.is_empty() {
        // merge from both ends at the same time, since the two merges are independent; neither
        // reaches the end of a run within `many` steps
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

/// Merges the items of the given ranks.
/// Calls `put` with the index of each item within `ranks`, and the item.
fn merge<K: Ord + Copy + Default + Into<u64>>(
    runs: &[&[K]],
    ranks: Range<usize>,
    put: &mut impl FnMut(usize, K),
) {
    let ends = split_at_rank(runs, ranks.start).into_iter().zip(split_at_rank(runs, ranks.end));
    let mut pieces: Vec<&[K]> = runs.iter().zip(ends).map(|(r, (a, e))| &r[a..e]).collect();
    let mut lengths = Vec::new();
    // merge pairs of runs, alternating between two buffers
    let (mut made, mut next) = (Vec::new(), Vec::new());
    while pieces.len() > 2 {
        next.resize(ranks.len(), K::default());
        let mut rest = &mut next[..];
        lengths.clear();
        for pair in pieces.chunks(2) {
            let (a, b) = (pair[0], pair.get(1).copied().unwrap_or_default());
            lengths.push(a.len() + b.len());
            let (to, after) = rest.split_at_mut(a.len() + b.len());
            merge_two(a, b, &mut |k, x| to[k] = x);
            rest = after;
        }
        std::mem::swap(&mut made, &mut next);
        let mut rest = &made[..];
        let piece = |n: &usize| rest.split_off(..*n).unwrap_or_default();
        pieces = lengths.iter().map(piece).collect();
    }
    let at = |k: usize| pieces.get(k).copied().unwrap_or_default();
    merge_two(at(0), at(1), put);
}

impl ParallelRowKernel for KeySortStages {
    fn scratch(&self, num_positions: usize) -> (DType, usize) {
        (with_dtype!(self.0, real T => <T as Ordered>::Key::DTYPE), 2 * num_positions + 1)
    }
    fn run_first_pass(&self, positions: Range<usize>, ins: &[RowInput<'_>], scratch: &mut RowOutput<'_>) {
        with_dtype!(self.0, real T => {
            let Some(x) = row_of::<T>(&ins[0]) else { return };
            let x = x.slice(ndarray::s![positions]);
            // the key of the zeros if some are negative, otherwise 0
            let zero = <T as Ordered>::ZERO.filter(|_| x.iter().any(|x| x.negative_zero())).unwrap_or_default();
            sort_into(scratch, 0..<T as Ordered>::BITS, x.iter().map(|x| x.key()), zero);
        });
    }
    fn run_second_pass(
        &self,
        _: usize,
        positions: Range<usize>,
        ins: &[RowInput<'_>],
        scratch: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) {
        let Some(mut y) = outs.take(0) else { return };
        with_dtype!(self.0, real T => merge_keys::<T>(positions, &ins[0], scratch, &mut y));
    }
}

// not inlined: its caller would have the code of all element types
#[inline(never)]
fn merge_keys<T: Ordered>(
    positions: Range<usize>,
    x: &RowInput<'_>,
    scratch: &[RowInput<'_>],
    y: &mut RowOutput<'_>,
) {
    let (Some(x), Some(mut y)) = (row_of::<T>(x), uninit_row::<T>(y)) else { return };
    let runs = sorted_runs::<T::Key>(scratch);
    let mut strided = Vec::new();
    let to = match y.as_slice_mut() {
        Some(to) => to,
        None => {
            strided.resize(positions.len(), MaybeUninit::uninit());
            &mut strided
        }
    };
    merge(&runs, positions.clone(), &mut |k, key| {
        to[k].write(T::from_key(key));
    });
    y.iter_mut().zip(&strided).for_each(|(y, x)| *y = *x);
    // zeros keep their signs, in their original order
    let negative = |zero: &T::Key| scratch.iter().any(|r| r.view::<T::Key>().last() == Some(zero));
    let Some(zero) = T::ZERO.filter(negative) else { return };
    let below = |run: &&[T::Key]| run.partition_point(|k| *k < zero);
    let begin: usize = runs.iter().map(below).sum();
    let count: usize = runs.iter().map(|r| r[below(r)..].partition_point(|k| *k == zero)).sum();
    let (lo, hi) = (begin.max(positions.start), (begin + count).min(positions.end));
    if lo < hi {
        let zeros = x.iter().filter(|x| x.key() == zero).skip(lo - begin);
        for (y, zero) in y.iter_mut().skip(lo - positions.start).take(hi - lo).zip(zeros) {
            y.write(*zero);
        }
    }
}

/// Sorts a run of a row's keys, combined with their indices.
fn sort_run_with_indices<T: Ordered>(x: &RowInput<'_>, positions: Range<usize>, scratch: &mut RowOutput<'_>) {
    let Some(x) = row_of::<T>(x) else { return };
    let run = positions.clone().zip(x.slice(ndarray::s![positions]));
    sort_into(
        scratch,
        32..32 + T::BITS,
        run.map(|(position, x)| <u64 as KeyIndex>::new(x.key().into(), position)),
        0,
    );
}

impl ParallelRowKernel for IndexSortStages {
    fn scratch(&self, num_positions: usize) -> (DType, usize) {
        (DType::U64, 2 * num_positions + 1)
    }
    fn run_first_pass(&self, positions: Range<usize>, ins: &[RowInput<'_>], scratch: &mut RowOutput<'_>) {
        with_dtype!(ins[0].dtype(), real T => sort_run_with_indices::<T>(&ins[0], positions, scratch));
    }
    fn run_second_pass(
        &self,
        _: usize,
        positions: Range<usize>,
        ins: &[RowInput<'_>],
        scratch: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) {
        let mut from = vec![0; positions.len()];
        merge(&sorted_runs::<u64>(scratch), positions, &mut |k, placed| from[k] = placed.index());
        for (k, x) in ins.iter().enumerate().take(self.0) {
            let Some(mut y) = outs.take(k) else { continue };
            with_dtype!(x.dtype(), real T => {
                let (Some(x), Some(mut y)) = (row_of::<T>(x), uninit_row::<T>(&mut y)) else { return };
                for (y, place) in y.iter_mut().zip(&from) {
                    y.write(x[*place]);
                }
            });
        }
        let Some(mut y) = outs.take(self.0) else { return };
        let Some(mut y) = uninit_row::<i32>(&mut y) else { return };
        for (y, index) in y.iter_mut().zip(&from) {
            y.write(*index as i32);
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
