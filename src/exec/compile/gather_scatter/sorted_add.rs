//! Scatter-add of rows into a large result: sorts the updates, then writes every row once.
//!
//! A task sorts the updates of the rows that it owns. (The general path copies a row first, and
//! then reads and writes it in memory again for each update.)

use super::{BoundPartial, GatherScatterKernel, RowOwnership, batched::BatchedRows};
use crate::core::DType;
use crate::exec::{compile::codegen::interpreter::Scratch, compile::task_kernel::KernelTask};
use crate::ir::program::Reducer;
use crate::kernels::{self, AddCursor, AddSorted, PickedRows, SortedUpdatesView};

/// The minimum size of the result, in bytes; a smaller one stays in cache.
const MIN_RESULT_BYTES: i64 = 4 << 20;
/// The minimum number of elements of a row.
const MIN_ROW_ELEMENTS: i64 = 16;

/// The updates of a range of result rows, sorted by row.
pub(crate) struct SortedUpdates<'a> {
    /// The rows of the result.
    rows: (i64, i64),
    /// For each row, the number of updates up to the end of that row.
    ends: &'a [u32],
    /// The position of each update, sorted by row.
    pub(crate) updates: &'a [u32],
}

impl GatherScatterKernel {
    /// Returns the kernel that adds sorted updates, if sorting pays for this scatter.
    /// The updates must be contiguous rows of float32, each found by one index, that are added to
    /// the rows of a dense result.
    pub(super) fn choose_sorted_add(
        &self,
        rows: &BatchedRows,
        dtype: DType,
        combine: Option<Reducer>,
    ) -> Option<AddSorted> {
        let p = self.scatter.as_ref()?;
        let [m] = &self.indices[..] else { return None };
        let (row, bytes) = (self.ext[1], self.ext[1] * self.element_bytes as i64);
        let dense = p.ext[1..p.rank].iter().product::<i64>() == row
            && (p.strides[0], m.target_stride, self.dst_strides[0]) == (bytes, bytes, 0)
            && (p.init.is_none() || p.contiguous);
        let fits = (dtype, combine) == (DType::F32, Some(Reducer::Add))
            && self.num_loops == 2
            && self.has_row_updates()
            && matches!(p.ownership, RowOwnership::Indexed(0))
            && rows.filter_indices.is_some()
            && dense;
        let worth = row >= MIN_ROW_ELEMENTS
            && p.num_rows * bytes >= MIN_RESULT_BYTES
            && self.ext[0] >= p.num_rows / 2;
        if fits && worth { kernels::add_sorted() } else { None }
    }
    /// Returns true if the scatter sorts its updates.
    pub(crate) fn sorts_updates(&self) -> bool {
        self.sorted_add().is_some()
    }
    /// Returns the rows of the result that a task computes.
    pub(crate) fn task_rows(&self, task: KernelTask) -> (i64, i64) {
        let rows = task.share_of(self.scatter.as_ref().map_or(0, |p| p.num_rows));
        (rows.start, rows.end)
    }
    /// Returns the size of a row of updates, in bytes.
    pub(crate) fn row_bytes(&self) -> usize {
        self.ext[1] as usize * self.element_bytes
    }
    /// Returns true if the rows of a gather may be computed in any order.
    /// That requires a single index of 32 bits that alone determines where a row is.
    pub(crate) fn allows_any_order(&self) -> bool {
        matches!(&self.indices[..], [m] if m.dtype == DType::I32 && m.strides[0] == 4)
            && self.src_strides[0] == 0
    }
    /// Gathers rows `a..b` by the indices at positions `these` instead of those at `a..b`.
    ///
    /// `scratch` points to space for these indices.
    ///
    /// # Safety
    /// The contract of `run` holds for result rows `a..b` and for the source rows of the indices at
    /// the positions `these`. `these` has `b - a` positions, each within the list of indices.
    /// `scratch` points to space for as many int32 elements, which no other thread uses.
    pub(crate) unsafe fn gather_permuted(
        &self,
        (a, b): (i64, i64),
        these: &[u32],
        scratch: *mut u8,
        base: &mut [*mut u8],
    ) {
        let [m] = &self.indices[..] else { return };
        let (slot, off, to) = (m.slot as usize, m.offset as isize, scratch.cast::<i32>());
        let numbers = base[slot].wrapping_offset(off).cast::<i32>();
        let kept = std::mem::replace(&mut base[slot], scratch.wrapping_offset(-off - a as isize * 4));
        // SAFETY: there is an int32 index at each position of `these`, and `scratch` has space for
        // all of them (caller contract). They then are at positions `a..b` of the slot, and the
        // caller upholds the contract of `run` for their rows.
        unsafe {
            for (k, which) in these.iter().enumerate() {
                *to.wrapping_add(k) = *numbers.wrapping_add(*which as usize);
            }
            self.run_rows((a, b), base);
        }
        base[slot] = kept;
    }
    /// Calls `f` with the updates of these rows, a batch at a time.
    ///
    /// # Safety
    /// The contract of `run` holds.
    unsafe fn for_each_filtered(&self, rows: (i64, i64), base: &[*mut u8], mut f: impl FnMut(&PickedRows)) {
        let (Some(pick), [m]) = (self.batched().and_then(|q| q.filter_indices), &self.indices[..]) else {
            return;
        };
        let reach = m.bounds(rows);
        let numbers = base[m.slot as usize].wrapping_offset(m.offset as isize).cast_const().cast();
        let (mut k, n, mut picked) = (0, self.ext[0] as usize, PickedRows::NONE);
        while k < n {
            // SAFETY: there are `n` indices (caller contract).
            k = unsafe { pick(numbers, (k, n), &reach, &mut picked) };
            f(&picked);
        }
    }
    /// Returns an upper bound of the number of updates of these rows.
    ///
    /// Up to 2^20 updates are not counted, since that costs more than a few megabytes of scratch.
    ///
    /// # Safety
    /// The contract of `run` holds.
    pub(crate) unsafe fn max_updates(&self, rows: (i64, i64), base: &[*mut u8]) -> usize {
        if self.ext[0] <= 1 << 20 {
            return self.ext[0] as usize;
        }
        let mut n = 0;
        // SAFETY: the caller upholds the contract of `run`.
        unsafe { self.for_each_filtered(rows, base, |p| n += p.n) }
        n
    }
    /// Returns the bytes of scratch for sorting `n` updates of these rows.
    pub(crate) fn sort_scratch_bytes((lo, hi): (i64, i64), n: usize) -> usize {
        (hi - lo + 1) as usize * size_of::<u32>() + n * size_of::<u32>()
    }
    /// Sorts the updates of these rows, of which there are at most `n`.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows. `memory` points to `sort_scratch_bytes`
    /// initialized bytes, aligned to 4 bytes, that no other code uses while the result is in use.
    pub(crate) unsafe fn sort_updates<'a>(
        &self,
        (lo, hi): (i64, i64),
        n: usize,
        base: &[*mut u8],
        memory: *mut u8,
    ) -> SortedUpdates<'a> {
        let rows = (hi - lo) as usize;
        let first: *mut u32 = memory.cast();
        // SAFETY: `memory` has `rows + 1 + n` initialized and aligned words, which no other code
        // uses, and the contract of `run` holds (caller contract).
        unsafe {
            let at = std::slice::from_raw_parts_mut(first, rows + 1);
            let which = std::slice::from_raw_parts_mut(first.add(rows + 1), n);
            at.fill(0);
            self.for_each_filtered((lo, hi), base, |p| {
                p.rows[..p.n].iter().for_each(|place| at[(i64::from(*place) - lo) as usize + 1] += 1);
            });
            let mut sum = 0;
            for at in at.iter_mut() {
                sum += *at;
                *at = sum;
            }
            // the cursor of each row moves from the start to the end of its updates
            self.for_each_filtered((lo, hi), base, |p| {
                for (row, k) in p.rows[..p.n].iter().zip(&p.positions) {
                    let at = &mut at[(i64::from(*row) - lo) as usize];
                    which[*at as usize] = *k;
                    *at += 1;
                }
            });
            SortedUpdates { rows: (lo, hi), ends: &at[..rows], updates: &which[..sum as usize] }
        }
    }
    /// Adds the sorted updates `some`, continuing at `at`, and returns where to continue.
    ///
    /// With `turn`, the rows of these updates are contiguous at that address; otherwise they are in
    /// the operand.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows.
    pub(crate) unsafe fn add_sorted(
        &self,
        order: &SortedUpdates<'_>,
        at: AddCursor,
        some: std::ops::Range<usize>,
        turn: Option<*const u8>,
        base: &[*mut u8],
    ) -> AddCursor {
        let (Some(p), Some(add), [part]) = (&self.scatter, self.sorted_add(), &self.partials[..]) else {
            return at;
        };
        let BoundPartial { out_offset: to, operand_offsets: ahead, .. } = part;
        let begin = (order.rows.0 * p.strides[0]) as isize;
        let out = base[self.out as usize].wrapping_offset(*to as isize + begin);
        let was = p.init.map_or(std::ptr::null_mut(), |(slot, off, _)| {
            base[slot as usize].wrapping_offset((off + ahead[0]) as isize + begin)
        });
        let which = if turn.is_some() { None } else { Some(order.updates) };
        let src = turn.unwrap_or_else(|| {
            base[self.src_slot as usize].wrapping_offset((self.src_offset + ahead[1]) as isize)
        });
        let s = SortedUpdatesView { ends: order.ends, update_indices: which, row: self.ext[1] as usize };
        let from = (was.cast_const().cast(), f32::from_bits(p.init_bits as u32));
        // SAFETY: the rows of the result and of the updates are within their values, and only this
        // task accesses those of the result (caller contract).
        unsafe { add(&s, at, some, src.cast(), from, out.cast()) }
    }
    /// Computes a range of rows of the result from sorted updates.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows.
    pub(super) unsafe fn scatter_sorted(&self, rows: (i64, i64), base: &[*mut u8], scratch: &mut Scratch) {
        // SAFETY: the caller upholds the contract for these rows. `reserve_buffers` returns
        // initialized memory for sorting, aligned to cache lines, which only this worker uses.
        unsafe {
            let n = self.max_updates(rows, base);
            let order =
                self.sort_updates(rows, n, base, scratch.reserve_buffers(Self::sort_scratch_bytes(rows, n)));
            self.add_sorted(&order, AddCursor::default(), 0..order.updates.len(), None, base);
        }
    }
}
