//! Gathers and scatters of a single contiguous row, such as an iteration's row of a cache.

use super::general::{combine, copy, fill, read_index};
use super::{BoundPartial, GatherScatterKernel, ScatterTarget};
use crate::exec::compile::element_word::{ElementWord, with_word};

impl GatherScatterKernel {
    /// Runs the operation.
    ///
    /// This is not inlined in the general path, whose bookkeeping takes longer than a single row
    /// does.
    ///
    /// # Safety
    /// The contract of `run` holds.
    #[inline(never)]
    pub(super) unsafe fn run_single_row(&self, base: &[*mut u8]) {
        with_word!(self.element_bytes, T => for part in &self.partials {
            // SAFETY: the caller upholds the contract of `run`, and `T` has the size of an element.
            unsafe {
                match &self.scatter {
                    Some(p) => self.scatter_single_row::<T>(p, part, base),
                    None => self.gather_single_row::<T>(part, base),
                }
            }
        })
    }
    /// Returns the offset in bytes of the row that the indices select; `None` if there is none.
    ///
    /// # Safety
    /// The contract of `run` holds.
    #[inline(always)]
    unsafe fn row_offset(&self, base: &[*mut u8]) -> Option<isize> {
        let mut found = 0;
        for m in &self.indices {
            // SAFETY: the slot has an index at this offset (caller contract).
            let n = unsafe { read_index(base[m.slot as usize].wrapping_offset(m.offset as isize), m.dtype) };
            let n = m.resolve_negative(n);
            let start = n.min(m.max_start).max(0);
            if m.max_start < 0 || !(m.clip || start == n) {
                return None;
            }
            found += start * m.target_stride;
        }
        Some(found as isize)
    }
    /// Gathers the row of one partial.
    ///
    /// # Safety
    /// The contract of `run` holds.
    #[inline(always)]
    unsafe fn gather_single_row<T: ElementWord>(&self, part: &BoundPartial, base: &[*mut u8]) {
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        let from = base[self.src_slot as usize]
            .wrapping_offset((self.src_offset + part.operand_offsets[0]) as isize);
        let (row, size) = (if self.num_loops > 0 { self.ext[0] } else { 1 }, self.element_bytes as i64);
        // SAFETY: both rows are within their values, and only this task writes the result (caller
        // contract).
        unsafe {
            match self.row_offset(base) {
                Some(found) => copy::<T>(out, from.wrapping_offset(found), row, (size, size)),
                None => fill(out, row, size, T::from_bits(self.fill_bits)),
            }
        }
    }
    /// Computes all rows of one partial of a scatter.
    ///
    /// # Safety
    /// The contract of `run` holds.
    #[inline(always)]
    unsafe fn scatter_single_row<T: ElementWord>(
        &self,
        p: &ScatterTarget,
        part: &BoundPartial,
        base: &[*mut u8],
    ) {
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        let from = base[self.src_slot as usize]
            .wrapping_offset((self.src_offset + part.operand_offsets[1]) as isize);
        let size = self.element_bytes as i64;
        // SAFETY: both rows are within their values, and only this task writes the result (caller
        // contract).
        unsafe {
            p.write_init_rows::<T>(out, part.operand_offsets[0], (0, p.num_rows), base);
            let Some(found) = self.row_offset(base) else { return };
            for (a, e) in &part.boxes {
                let (begin, row) = if self.num_loops > 0 { (a[0], e[0] - a[0]) } else { (0, 1) };
                if row <= 0 {
                    continue;
                }
                let (to, from) = (
                    out.wrapping_offset(found + (begin * size) as isize),
                    from.wrapping_offset((begin * size) as isize),
                );
                match p.combine {
                    None => copy::<T>(to, from, row, (size, size)),
                    Some(f) => combine::<T>(f, to, from, row, (size, size)),
                }
            }
        }
    }
}
