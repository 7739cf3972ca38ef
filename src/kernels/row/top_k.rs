//! Selection of the k largest elements of each row.
//!
//! A row is read once while a list of candidates is kept. A long row is divided among workers,
//! whose candidates are then merged.

use super::sort_key::{KeyIndex, Ordered, fits_64_bits};
use super::{lanes, lanes_mut, radix_sort::sort_by_comparison};
use crate::core::{DType, Reducer, Shape, types::with_dtype};
use crate::kernels::row_kernel::{
    ParallelRowKernel, RowInput, RowKernel, RowOutput, RowOutputs, RowSharding, SecondPass,
    parallel_unless_wasm,
};
use ndarray::{ArrayView1, ArrayViewMut1, Ix1, s};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// The row kernel: the largest elements of a row, and their indices.
#[derive(Debug)]
pub(crate) struct TopKKernel {
    pub(crate) k: usize,
}

impl RowKernel for TopKKernel {
    fn key(&self) -> String {
        format!("top {}", self.k)
    }
    fn cost(&self, elements: usize) -> f64 {
        let k = self.k as f64;
        elements as f64 + 10.0 * k * (k + 1.0).log2()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [(dtype, n)] if matches!(n[..], [n] if n >= self.k) && !dtype.is_complex() => {
                Ok(self.result_types(*dtype))
            }
            _ => Err(format!("top_k needs one row with at least {} elements", self.k)),
        }
    }
    fn sharding(&self, operands: &[DType]) -> RowSharding {
        let of = Arc::new(TopKMerge { k: self.k });
        let neutral = Reducer::Max.neutral(operands[0]);
        RowSharding::TopK { k: self.k, block: Arc::new(TopKKernel { k: self.k }), merge: of, neutral }
    }
    fn parallel(&self, _: &[DType], elements: usize, _: &[bool]) -> Option<Arc<dyn ParallelRowKernel>> {
        (self.k <= elements / MIN_ELEMENTS_PER_RESULT)
            .then_some(TopKStages { k: self.k })
            .and_then(parallel_unless_wasm)
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let (mut values, mut indices) = (outs.take(0), outs.take(1));
        with_dtype!(ins[0].dtype(), real T => match fits_64_bits(<T as Ordered>::BITS, ins[0].shape().last().copied().unwrap_or(0)) {
            true => self.run_rows::<T, u64>(&ins[0], &mut values, &mut indices),
            false => self.run_rows::<T, u128>(&ins[0], &mut values, &mut indices),
        })
    }
}

impl TopKKernel {
    /// Returns the types of the results: the elements and their indices.
    fn result_types(&self, dtype: DType) -> Vec<(DType, Shape)> {
        [dtype, DType::I32].map(|dtype| (dtype, Shape::from([self.k]))).to_vec()
    }
    #[inline(never)]
    fn run_rows<T: Ordered, P: KeyIndex>(
        &self,
        x: &RowInput<'_>,
        values: &mut Option<RowOutput<'_>>,
        indices: &mut Option<RowOutput<'_>>,
    ) {
        let mut values = values.as_mut().map(|y| lanes_mut(y.uninit_view::<T>()));
        let mut indices = indices.as_mut().map(|y| lanes_mut(y.uninit_view::<i32>()));
        let mut best: Vec<P> = Vec::new();
        for (row, x) in lanes(x.view::<T>()).into_iter().enumerate() {
            top_k_of_row(self.k, &x, &mut best);
            write_results(
                &x,
                &best,
                values.as_mut().map(|y| y[row].view_mut()),
                indices.as_mut().map(|y| y[row].view_mut()),
            );
        }
    }
}

/// Returns the sort key of an element with its index. Larger elements have smaller keys.
#[inline(always)]
fn key_with_index<T: Ordered, P: KeyIndex>((place, x): (usize, &T)) -> P {
    P::new((u64::MAX >> (64 - T::BITS)) - x.key().into(), place)
}

/// Writes the `k` largest elements of a row to `best`, in descending order.
// not inlined, like other functions of one element type here: their callers would have the code of
// all types
#[inline(never)]
fn top_k_of_row<T: Ordered, P: KeyIndex>(k: usize, x: &ArrayView1<'_, T>, best: &mut Vec<P>) {
    match x.as_slice() {
        Some(x) => k_smallest_by_blocks(k, x, key_with_index, best),
        None => k_smallest_by_blocks(k, &x.to_vec(), key_with_index, best),
    }
}

/// Writes the results of a row: the elements and their indices.
fn write_results<T: Ordered, P: KeyIndex>(
    x: &ArrayView1<'_, T>,
    best: &[P],
    values: Option<ArrayViewMut1<'_, MaybeUninit<T>>>,
    indices: Option<ArrayViewMut1<'_, MaybeUninit<i32>>>,
) {
    if let Some(y) = values {
        y.into_iter().zip(best).for_each(|(y, p)| {
            y.write(x[p.index()]);
        });
    }
    if let Some(y) = indices {
        y.into_iter().zip(best).for_each(|(y, p)| {
            y.write(p.index() as i32);
        });
    }
}

/// The minimum number of elements per result for several workers to search one row.
/// A single worker merges their candidates.
const MIN_ELEMENTS_PER_RESULT: usize = 1024;

/// The parallel kernel of a long row.
/// The first pass finds the largest elements of each run, and the second pass merges them.
#[derive(Debug)]
struct TopKStages {
    k: usize,
}

/// Writes the indices of the largest elements of a run, as many as fit in its scratch buffer.
fn run_candidates<T: Ordered, P: KeyIndex>(
    x: &RowInput<'_>,
    positions: Range<usize>,
    scratch: &mut RowOutput<'_>,
) {
    let Ok(x) = x.view::<T>().into_dimensionality::<Ix1>() else { return };
    let mut best: Vec<P> = Vec::new();
    top_k_of_row(scratch.shape()[0], &x.slice(s![positions.clone()]), &mut best);
    for (to, p) in scratch.uninit_view::<i32>().iter_mut().zip(&best) {
        to.write((positions.start + p.index()) as i32);
    }
}

impl ParallelRowKernel for TopKStages {
    fn second_pass(&self) -> SecondPass {
        SecondPass::FullRow
    }
    fn scratch(&self, num_positions: usize) -> (DType, usize) {
        (DType::I32, self.k.min(num_positions))
    }
    fn run_first_pass(&self, positions: Range<usize>, ins: &[RowInput<'_>], scratch: &mut RowOutput<'_>) {
        with_dtype!(ins[0].dtype(), real T => match fits_64_bits(<T as Ordered>::BITS, positions.len()) {
            true => run_candidates::<T, u64>(&ins[0], positions, scratch),
            false => run_candidates::<T, u128>(&ins[0], positions, scratch),
        });
    }
    fn run_second_pass(
        &self,
        _: usize,
        _: Range<usize>,
        ins: &[RowInput<'_>],
        scratch: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    ) {
        let (mut values, mut indices) = (outs.take(0), outs.take(1));
        let candidates: Vec<usize> =
            scratch.iter().flat_map(|r| r.view::<i32>()).map(|at| *at as usize).collect();
        with_dtype!(ins[0].dtype(), real T => {
            let Ok(x) = ins[0].view::<T>().into_dimensionality::<Ix1>() else { return };
            let mut best: Vec<u128> = Vec::new();
            k_smallest(self.k, &mut candidates.iter().map(|at| key_with_index((*at, &x[*at]))), &mut best);
            let values = values.as_mut().and_then(|y| y.uninit_view().into_dimensionality().ok());
            let places = indices.as_mut().and_then(|y| y.uninit_view().into_dimensionality().ok());
            write_results(&x, &best, values, places);
        });
    }
}

/// The row kernel that merges the candidates of all blocks of a row.
///
/// Candidates and their indices in the row are stored block by block.
#[derive(Debug)]
struct TopKMerge {
    k: usize,
}

impl RowKernel for TopKMerge {
    fn key(&self) -> String {
        format!("top {} of candidates", self.k)
    }
    fn cost(&self, elements: usize) -> f64 {
        2.0 * elements as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [(dtype, n), (DType::I32, places)]
                if n == places && n.iter().product::<usize>() >= self.k && !dtype.is_complex() =>
            {
                Ok(TopKKernel { k: self.k }.result_types(*dtype))
            }
            _ => Err(format!("top_k needs at least {} candidates and their indices", self.k)),
        }
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let (mut values, mut indices) = (outs.take(0), outs.take(1));
        with_dtype!(ins[0].dtype(), real T => self.run_rows::<T>(ins, &mut values, &mut indices))
    }
}

impl TopKMerge {
    #[inline(never)]
    fn run_rows<T: Ordered>(
        &self,
        ins: &[RowInput<'_>],
        values: &mut Option<RowOutput<'_>>,
        indices: &mut Option<RowOutput<'_>>,
    ) {
        let mut values = values.as_mut().map(|y| lanes_mut(y.uninit_view::<T>()));
        let mut indices = indices.as_mut().map(|y| lanes_mut(y.uninit_view::<i32>()));
        let (x, at) = (lanes(ins[0].view::<T>()), lanes(ins[1].view::<i32>()));
        // a row extends over blocks, then over the candidates of each block
        let [.., blocks, _] = *ins[0].shape() else { return };
        let most = u64::MAX >> (64 - T::BITS);
        let mut best: Vec<u128> = Vec::new();
        for (row, (x, at)) in x.chunks(blocks).zip(at.chunks(blocks)).enumerate() {
            let all = |i: usize| (i / x[0].len(), i % x[0].len());
            let of = |i: usize| x[all(i).0][all(i).1];
            let mut placed = (0..blocks * x[0].len()).map(|i| u128::new(most - of(i).key().into(), i));
            k_smallest(self.k, &mut placed, &mut best);
            if let Some(y) = &mut values {
                y[row].iter_mut().zip(&best).for_each(|(y, p)| {
                    y.write(of(p.index()));
                });
            }
            if let Some(y) = &mut indices {
                y[row].iter_mut().zip(&best).for_each(|(y, p)| {
                    let (block, candidate) = all(p.index());
                    y.write(at[block][candidate]);
                });
            }
        }
    }
}

/// Finds the `k` smallest items, in order. Most items are only compared with a bound.
fn k_smallest<P: Ord + Copy>(k: usize, all: &mut dyn Iterator<Item = P>, list: &mut Vec<P>) {
    list.clear();
    if k == 0 {
        return;
    }
    let mut bound: Option<P> = None;
    for x in all {
        if bound.is_none_or(|b| x <= b) {
            bound = push_candidate(k, x, list).or(bound);
        }
    }
    sort_by_comparison(list);
    list.truncate(k);
}

/// Finds the `k` smallest keys of a contiguous row, in order.
///
/// Elements are compared with the bound a block at a time, without branches, since most of them are
/// not among the results.
fn k_smallest_by_blocks<T: Ordered, P: KeyIndex + Ord>(
    k: usize,
    x: &[T],
    placed: impl Fn((usize, &T)) -> P,
    list: &mut Vec<P>,
) {
    const BLOCK_ELEMENTS: usize = 64;
    list.clear();
    if k == 0 {
        return;
    }
    let mut bound: Option<T::Key> = None;
    for (n, block) in x.chunks(BLOCK_ELEMENTS).enumerate() {
        // an element that is equal to the bound is ordered after it, since its index is larger
        let greater = |bound: T::Key| block.iter().fold(0, |any, x| any | u32::from(x.key() > bound)) != 0;
        if bound.is_some_and(|bound| !greater(bound)) {
            continue;
        }
        for (i, element) in block.iter().enumerate() {
            if bound.is_none_or(|bound| element.key() > bound) {
                let p = placed((n * BLOCK_ELEMENTS + i, element));
                bound = push_candidate(k, p, list).map(|p| x[p.index()].key()).or(bound);
            }
        }
    }
    sort_by_comparison(list);
    list.truncate(k);
}

/// Adds a candidate to the list. Returns the bound, if the list was full.
///
/// A full list is reduced to the `k` smallest candidates, and the bound is the last of them: later
/// items beyond it cannot be among the results.
fn push_candidate<P: Ord + Copy>(k: usize, x: P, list: &mut Vec<P>) -> Option<P> {
    list.push(x);
    (list.len() == 2 * k + 16).then(|| {
        let bound = kth(list, k);
        list.truncate(k);
        bound
    })
}

/// Returns the `k`-th smallest item, and moves all smaller items before it.
fn kth<P: Ord + Copy>(list: &mut [P], k: usize) -> P {
    *list.select_nth_unstable(k - 1).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_are_those_that_a_sort_puts_first() {
        for (n, k) in [(0, 0), (5, 2), (100, 1), (1000, 7), (1000, 300), (300, 300)] {
            let all: Vec<u64> = (0..n as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54).collect();
            let (mut list, mut sorted) = (Vec::new(), all.clone());
            sorted.sort_unstable();
            k_smallest(k, &mut all.into_iter(), &mut list);
            assert_eq!(list, sorted[..k]);
        }
    }
    #[test]
    fn blocks_of_a_row_have_the_greatest_that_its_elements_have() {
        let zeros = [0.0, -0.0, f32::NAN, f32::NEG_INFINITY];
        for (n, k) in [(5, 2), (100, 1), (1000, 7), (1000, 300), (5000, 10)] {
            let x: Vec<f32> = (0..n as u32)
                .map(|i| match i.wrapping_mul(0x9E37_79B9) >> 22 {
                    j @ 0..4 => zeros[j as usize],
                    j => j as f32 - 500.0,
                })
                .collect();
            let (mut by_one, mut blocks) = (Vec::<u64>::new(), Vec::<u64>::new());
            k_smallest(k, &mut x.iter().enumerate().map(key_with_index), &mut by_one);
            k_smallest_by_blocks(k, &x, key_with_index, &mut blocks);
            assert_eq!(by_one, blocks);
        }
    }
}
