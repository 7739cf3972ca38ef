//! Gathers and scatters of many contiguous rows without windows, a batch of rows at a time.

use super::{BoundIndex, BoundPartial, GatherScatterKernel, RowOwnership, ScatterTarget, general::fill};
use crate::core::DType;
use crate::exec::compile::element_word::ElementWord;
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::ir::program::Reducer;
use crate::kernels::{
    self, CombineElementsAt, CombinePicked, CombineRowsAt, FindRows, FoundRows, IndexFilter, MAX_BATCH_ROWS,
    MAX_PICKED_ROWS, PickedRows,
};

/// The kernels by which batches run.
#[derive(Clone, Debug)]
pub(super) struct BatchedRows {
    /// For each index operand, the kernel that computes the offsets of rows.
    find_rows: Vec<FindRows>,
    /// The kernel that combines rows; `None` if they are copied.
    combine_rows: Option<CombineRowsAt>,
    /// The kernel that computes the offsets of single elements from one index operand and combines
    /// the elements, in one loop.
    combine_elements: Option<CombineElementsAt>,
    /// The kernel that selects the indices of a task's rows, for one contiguous index operand.
    pub(super) filter_indices: Option<IndexFilter>,
    /// The kernel that combines single elements whose indices were selected.
    combine_filtered: Option<CombinePicked>,
    /// True if single elements are copied in one loop.
    gathers_elements: bool,
}

impl BatchedRows {
    /// Chooses the kernels for contiguous rows; `None` if no kernel combines them.
    pub(super) fn choose(
        k: &GatherScatterKernel,
        dtype: DType,
        combine: Option<Reducer>,
    ) -> Option<BatchedRows> {
        let q = k.num_query_loops;
        let mix = match combine {
            Some(c) => Some(kernels::combine_rows_at(c, dtype)?),
            None => None,
        };
        let one = match &k.indices[..] {
            [m] if k.num_loops == q => combine.and_then(|c| kernels::combine_elements_at(c, dtype, m.dtype)),
            _ => None,
        };
        let pick = match &k.indices[..] {
            [m] if m.strides[q - 1] == m.dtype.size() as i64 => kernels::index_filter(m.dtype),
            _ => None,
        };
        // (selected indices are counted in 32 bits)
        let rows = k.scatter.as_ref().map_or(0, |p| p.num_rows);
        let few = k.ext[q - 1].max(rows) < i64::from(i32::MAX);
        let picked = match combine {
            Some(c) if k.num_loops == q && k.dst_strides[q - 1] == 0 => kernels::combine_picked(c, dtype),
            _ => None,
        };
        let finds = k.indices.iter().map(|m| kernels::find_rows(m.dtype)).collect();
        Some(BatchedRows {
            find_rows: finds,
            combine_rows: mix,
            combine_elements: one,
            filter_indices: pick.filter(|_| few),
            combine_filtered: picked,
            gathers_elements: matches!(&k.indices[..], [m] if matches!(m.dtype, DType::I32 | DType::I64))
                && !k.is_scatter()
                && k.num_loops == q,
        })
    }
    /// Copies rows of `row` elements, or combines them with those of the result.
    ///
    /// # Safety
    /// The rows at these offsets are within their values, and only this task writes those of the
    /// result.
    #[inline(always)]
    unsafe fn write_rows<T: ElementWord>(
        &self,
        row: usize,
        (out, to): (*mut u8, &[i64]),
        (src, from): (*mut u8, &[i64]),
    ) {
        // SAFETY: the caller upholds the contract for these rows.
        unsafe {
            match self.combine_rows {
                None => kernels::copy_rows_at::<T>(row, out, to, src, from),
                Some(mix) => mix(to.len(), row, out, to.as_ptr(), src, from.as_ptr()),
            }
        }
    }
    /// Returns true if one task is best, because each of several tasks would scan all indices.
    pub(super) fn prefers_one_task(&self) -> bool {
        self.combine_elements.is_some() && self.filter_indices.is_none()
    }
}

/// A batch of queries, and the offsets of their rows, in bytes.
///
/// The offsets of the first rows do not include those that indices add.
struct QueryBatch<'a> {
    /// The number of queries.
    n: usize,
    /// The offset of the first row of the result.
    out_offset: i64,
    /// The offset of the first row of the source.
    src_offset: i64,
    /// The offset that the indices of each query add.
    row_offsets: &'a FoundRows,
}

impl QueryBatch<'_> {
    /// Calls `f` with the offsets of the rows in bounds, for both sides of the copy.
    ///
    /// The first list has the rows that indices select, the second has those of the other side,
    /// taken from `steps`.
    #[inline(always)]
    fn for_each_in_bounds(&self, steps: &BatchOffsets, f: &mut impl FnMut(&[i64], &[i64])) {
        let (at, there) = (&self.row_offsets.offsets[..self.n], &self.row_offsets.in_bounds[..self.n]);
        if there.iter().fold(true, |all, t| all & t) {
            return f(at, &steps[..self.n]);
        }
        let (mut found, mut other, mut some) = ([0; MAX_BATCH_ROWS], [0; MAX_BATCH_ROWS], 0);
        for k in 0..self.n {
            (found[some], other[some]) = (at[k], steps[k]);
            some += usize::from(there[k]);
        }
        f(&found[..some], &other[..some]);
    }
}

/// The offsets of evenly spaced rows of a batch, in bytes.
type BatchOffsets = [i64; MAX_BATCH_ROWS];

/// Returns the offsets of rows that are `each` bytes apart.
fn even_offsets(each: i64) -> BatchOffsets {
    std::array::from_fn(|k| k as i64 * each)
}

/// The rows of a batch that this task owns, and their offsets, in bytes.
struct FilteredRows {
    /// The rows and the positions of their indices.
    picked: PickedRows,
    /// The offset of each row in the result.
    to: [i64; MAX_PICKED_ROWS],
    /// The offset of each row in the source.
    from: [i64; MAX_PICKED_ROWS],
}

impl FilteredRows {
    /// No rows.
    const NONE: FilteredRows =
        FilteredRows { picked: PickedRows::NONE, to: [0; MAX_PICKED_ROWS], from: [0; MAX_PICKED_ROWS] };
}

impl GatherScatterKernel {
    /// Calls `f` for each batch of `run` queries along the last query loop, from `x` on.
    ///
    /// `ahead` has the offsets of the rows, not including those that indices add. `own` restricts
    /// one index operand to a range of rows.
    ///
    /// # Safety
    /// The contract of `run` holds for these queries.
    unsafe fn for_each_batch(
        &self,
        quick: &BatchedRows,
        (x, run): (&LoopVec, i64),
        ahead: &BatchOffsets,
        own: Option<(usize, (i64, i64))>,
        base: &[*mut u8],
        f: &mut impl FnMut(QueryBatch<'_>),
    ) {
        let last = self.num_query_loops - 1;
        let sum = |st: &LoopVec| (0..=last).map(|d| x[d] * st[d]).sum::<i64>();
        let (to, from) = (sum(&self.dst_strides), sum(&self.src_strides));
        let mut found = FoundRows { offsets: [0; MAX_BATCH_ROWS], in_bounds: [true; MAX_BATCH_ROWS] };
        for first in (0..run).step_by(MAX_BATCH_ROWS) {
            let n = (run - first).min(MAX_BATCH_ROWS as i64) as usize;
            found.offsets = *ahead;
            found.in_bounds[..n].fill(true);
            for (j, (m, find)) in self.indices.iter().zip(&quick.find_rows).enumerate() {
                let step = m.strides[last];
                let at = base[m.slot as usize]
                    .wrapping_offset((m.offset + sum(&m.strides) + first * step) as isize);
                let own = own.filter(|o| o.0 == j).map_or((0, i64::MAX), |o| o.1);
                let reach = m.bounds(own);
                // SAFETY: there are indices for all queries (caller contract).
                unsafe { find(n, at, step as isize, &reach, &mut found) }
            }
            let (to, from) = (to + first * self.dst_strides[last], from + first * self.src_strides[last]);
            f(QueryBatch { n, out_offset: to, src_offset: from, row_offsets: &found });
        }
    }

    /// Gathers the queries `a..e`.
    ///
    /// # Safety
    /// The contract of `run` holds for these queries.
    #[inline(never)]
    pub(super) unsafe fn gather_batched<T: ElementWord>(
        &self,
        quick: &BatchedRows,
        part: &BoundPartial,
        (a, e): (i64, i64),
        base: &[*mut u8],
    ) {
        let last = self.num_query_loops - 1;
        let row = if self.num_loops > self.num_query_loops { self.ext[self.num_query_loops] } else { 1 };
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        let src = base[self.src_slot as usize]
            .wrapping_offset((self.src_offset + part.operand_offsets[0]) as isize);
        if quick.gathers_elements
            && let [m] = &self.indices[..]
        {
            let reach = m.bounds((0, i64::MAX));
            return self.for_each_run((&[0; MAX_LOOPS], &self.ext), (a, e), |x, run| {
                let (numbers, [out, src]) = self.run_addresses(m, x, [out, src], base);
                let [step, to, from] =
                    [&m.strides, &self.dst_strides, &self.src_strides].map(|st| st[last] as isize);
                let (ends, fill) = ((out, to), T::from_bits(self.fill_bits));
                // SAFETY: there are indices for all queries, and the elements are within their
                // values (caller contract).
                unsafe {
                    let numbers = (numbers.cast_const(), step);
                    kernels::gather_elements(
                        m.dtype,
                        run as usize,
                        numbers,
                        &reach,
                        ends,
                        (src.cast_const(), from),
                        fill,
                    )
                }
            });
        }
        let (to, from) = (even_offsets(self.dst_strides[last]), even_offsets(self.src_strides[last]));
        let mut rows = |b: QueryBatch<'_>| {
            let (out, src) =
                (out.wrapping_offset(b.out_offset as isize), src.wrapping_offset(b.src_offset as isize));
            for (k, there) in b.row_offsets.in_bounds[..b.n].iter().enumerate() {
                if !there {
                    let to = out.wrapping_offset(to[k] as isize);
                    // SAFETY: the row is within the result (caller contract).
                    unsafe { fill(to, row, self.element_bytes as i64, T::from_bits(self.fill_bits)) }
                }
            }
            // SAFETY: the rows are within source and result (caller contract).
            b.for_each_in_bounds(&to, &mut |from, to| unsafe {
                kernels::copy_rows_at::<T>(row as usize, out, to, src, from)
            });
        };
        self.for_each_run((&[0; MAX_LOOPS], &self.ext), (a, e), |x, run| {
            // SAFETY: the caller upholds the contract for these queries.
            unsafe { self.for_each_batch(quick, (x, run), &from, None, base, &mut rows) }
        });
    }

    /// Scatters the updates of a box; this task owns the result rows `lo..hi`.
    ///
    /// # Safety
    /// The contract of `run` holds for these updates.
    #[inline(never)]
    pub(super) unsafe fn scatter_batched<T: ElementWord>(
        &self,
        quick: &BatchedRows,
        p: &ScatterTarget,
        (a, e): (&LoopVec, &LoopVec),
        (lo, hi): (i64, i64),
        [out, src]: [*mut u8; 2],
        base: &[*mut u8],
    ) {
        let (q, last) = (self.num_query_loops, self.num_query_loops - 1);
        let (begin, row) = if self.num_loops > q { (a[q], e[q] - a[q]) } else { (0, 1) };
        let count: i64 = (0..q).map(|d| e[d] - a[d]).product();
        if row <= 0 {
            return;
        }
        // (but not if other tasks own many of the elements, because the branch would be
        // unpredictable)
        if let (Some(one), [m], true) =
            (quick.combine_elements, &self.indices[..], (lo, hi) == (0, p.num_rows))
        {
            let reach = m.bounds((0, i64::MAX));
            return self.for_each_run((a, e), (0, count), |x, run| {
                let (numbers, ends) = self.run_addresses(m, x, [out, src], base);
                let [to, from] = [self.dst_strides[last], self.src_strides[last]].map(|st| st as isize);
                let step = m.strides[last] as isize;
                // SAFETY: there are indices for all queries, and the elements are within their
                // values, of which only this task writes the result's (caller contract).
                unsafe { one(run as usize, (numbers, step), &reach, (ends[0], to), (ends[1], from)) }
            });
        }
        let own = if let RowOwnership::Indexed(j) = p.ownership { Some((j, (lo, hi))) } else { None };
        let ends = [out, src].map(|x| x.wrapping_offset((begin * self.element_bytes as i64) as isize));
        let row = row as usize;
        if let (Some(pick), [m], Some((0, own))) = (quick.filter_indices, &self.indices[..], own) {
            let mut batch = FilteredRows::NONE;
            return self.for_each_run((a, e), (0, count), |x, run| {
                let (numbers, ends) = self.run_addresses(m, x, ends, base);
                let numbers = (numbers, run as usize);
                // SAFETY: the caller upholds the contract for these queries.
                unsafe { self.scatter_filtered::<T>(quick, pick, (m, own), numbers, (row, ends), &mut batch) }
            });
        }
        let (to, from) = (even_offsets(self.dst_strides[last]), even_offsets(self.src_strides[last]));
        let mut rows = |b: QueryBatch<'_>| {
            let (out, src) = (
                ends[0].wrapping_offset(b.out_offset as isize),
                ends[1].wrapping_offset(b.src_offset as isize),
            );
            // SAFETY: the rows are within their values, and only this task writes them (caller
            // contract).
            b.for_each_in_bounds(&from, &mut |to, from| unsafe {
                quick.write_rows::<T>(row, (out, to), (src, from))
            });
        };
        self.for_each_run((a, e), (0, count), |x, run| {
            // SAFETY: the caller upholds the contract for these queries.
            unsafe { self.for_each_batch(quick, (x, run), &to, own, base, &mut rows) }
        });
    }
    /// Returns the address of the indices of a run of queries from `x` on, and the addresses of the
    /// first rows of the result and of the source, without what the indices add.
    #[inline(always)]
    fn run_addresses(
        &self,
        m: &BoundIndex,
        x: &LoopVec,
        [out, src]: [*mut u8; 2],
        base: &[*mut u8],
    ) -> (*mut u8, [*mut u8; 2]) {
        let at = |st: &LoopVec| (0..self.num_query_loops).map(|d| x[d] * st[d]).sum::<i64>() as isize;
        let numbers = base[m.slot as usize].wrapping_offset(m.offset as isize + at(&m.strides));
        let (out, src) =
            (out.wrapping_offset(at(&self.dst_strides)), src.wrapping_offset(at(&self.src_strides)));
        (numbers, [out, src])
    }
    /// Scatters the updates of a run of queries whose rows this task owns.
    ///
    /// # Safety
    /// The contract of `run` holds for these queries, whose contiguous indices are at `numbers`.
    #[inline(always)]
    unsafe fn scatter_filtered<T: ElementWord>(
        &self,
        quick: &BatchedRows,
        pick: IndexFilter,
        (m, own): (&BoundIndex, (i64, i64)),
        (numbers, run): (*mut u8, usize),
        (row, [out, src]): (usize, [*mut u8; 2]),
        FilteredRows { picked, to, from }: &mut FilteredRows,
    ) {
        let (last, reach) = (self.num_query_loops - 1, m.bounds(own));
        let mut k = 0;
        while k < run {
            // SAFETY: there are indices for all queries (caller contract).
            k = unsafe { pick(numbers.cast(), (k, run), &reach, picked) };
            if let Some(combine) = quick.combine_filtered {
                let step = self.src_strides[last] as isize;
                // SAFETY: the elements are within their values, and only this task writes them
                // (caller contract).
                unsafe { combine(picked, (out, m.target_stride as isize), (src, step)) }
                continue;
            }
            for i in 0..picked.n {
                let which = i64::from(picked.positions[i]);
                to[i] = which * self.dst_strides[last] + i64::from(picked.rows[i]) * m.target_stride;
                from[i] = which * self.src_strides[last];
            }
            // SAFETY: the rows are within their values, and only this task writes them (caller
            // contract).
            unsafe { quick.write_rows::<T>(row, (out, &to[..picked.n]), (src, &from[..picked.n])) }
        }
    }
}
