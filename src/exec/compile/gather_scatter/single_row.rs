//! Gathers and scatters of a single contiguous row, such as an iteration's row of a cache.

use super::general::{combine, copy, fill, read_index};
use super::method::RowMethod;
use super::{BoundIndex, BoundPartial, GatherScatterKernel, ScatterTarget};
use crate::exec::compile::element_word::{ElementWord, with_word};
use crate::exec::compile::task_kernel::BoundCall;
use smallvec::SmallVec;

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
            found += m.row_offset(n)?;
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

/// A gather or a scatter of one row, with the addresses of its operands.
#[derive(Debug)]
pub(super) struct BoundRow<'p> {
    /// The kernel.
    kernel: &'p GatherScatterKernel,
    /// The indices.
    indices: SmallVec<[(BoundOperand, &'p BoundIndex); 2]>,
    /// The row that is written; of a scatter, that of index 0.
    to: BoundOperand,
    /// The row that is read; of a gather, that of index 0.
    from: BoundOperand,
    /// The size of the row, in bytes.
    bytes: usize,
}

/// The place of an operand.
#[derive(Clone, Copy, Debug)]
enum BoundOperand {
    /// The address, which is the same in each call.
    Fixed(*mut u8),
    /// The slot, whose address may be another one in each call, and the offset in bytes.
    Moving(u32, i64),
}

impl BoundOperand {
    /// Returns the address.
    #[inline(always)]
    fn address(self, memory: &[*mut u8]) -> *mut u8 {
        match self {
            BoundOperand::Fixed(at) => at,
            BoundOperand::Moving(slot, offset) => memory[slot as usize].wrapping_offset(offset as isize),
        }
    }
}

impl<'p> BoundRow<'p> {
    /// Returns a kernel with the operands that `memory` has, except for the slots of `moving`.
    ///
    /// `None` if it does more than to copy one row.
    pub(super) fn new(
        kernel: &'p GatherScatterKernel,
        memory: &[*mut u8],
        moving: &[u32],
    ) -> Option<BoundRow<'p>> {
        let (RowMethod::SingleRow, [part]) = (&kernel.method, &kernel.partials[..]) else { return None };
        let size = kernel.element_bytes as i64;
        let row = if kernel.num_loops > 0 { kernel.ext[0] } else { 1 };
        let (to_offset, from_offset, row) = match &kernel.scatter {
            None => (part.out_offset, part.operand_offsets[0], row),
            Some(target) => {
                let (slot, offset, _) = target.init?;
                let [(lo, hi)] = &part.boxes[..] else { return None };
                let to = memory[kernel.out as usize].wrapping_offset(part.out_offset as isize);
                let init = memory[slot as usize].wrapping_offset((offset + part.operand_offsets[0]) as isize);
                let moves = moving.contains(&slot) || moving.contains(&kernel.out);
                if to != init || moves || target.combine.is_some() {
                    return None;
                }
                let (begin, row) = if kernel.num_loops > 0 { (lo[0], hi[0] - lo[0]) } else { (0, 1) };
                (part.out_offset + begin * size, part.operand_offsets[1] + begin * size, row)
            }
        };
        let bind = |slot: u32, offset: i64| match moving.contains(&slot) {
            true => BoundOperand::Moving(slot, offset),
            false => BoundOperand::Fixed(memory[slot as usize].wrapping_offset(offset as isize)),
        };
        Some(BoundRow {
            kernel,
            indices: kernel.indices.iter().map(|m| (bind(m.slot, m.offset), m)).collect(),
            to: bind(kernel.out, to_offset),
            from: bind(kernel.src_slot, kernel.src_offset + from_offset),
            bytes: usize::try_from(row * size).ok()?,
        })
    }
}

impl BoundCall for BoundRow<'_> {
    #[inline]
    unsafe fn run(&mut self, memory: &[*mut u8]) {
        let mut found = 0;
        for (at, m) in &self.indices {
            // SAFETY: there is an index at this address (caller contract).
            match m.row_offset(unsafe { read_index(at.address(memory), m.dtype) }) {
                Some(offset) => found += offset,
                // SAFETY: the caller upholds the contract.
                None => return unsafe { self.kernel.run_single_row(memory) },
            }
        }
        let (to, from) = (self.to.address(memory), self.from.address(memory));
        let (to, from) = match self.kernel.scatter {
            None => (to, from.wrapping_offset(found as isize)),
            Some(_) => (to.wrapping_offset(found as isize), from),
        };
        // SAFETY: both rows are within their values, and do not overlap (caller contract).
        unsafe { copy_row(to, from, self.bytes) }
    }
}

/// Copies a row. A few cache lines take less time here than a call takes.
///
/// # Safety
/// The rows have this number of bytes, and do not overlap.
#[inline(always)]
unsafe fn copy_row(to: *mut u8, from: *const u8, bytes: usize) {
    type Line = [u64; 8];
    // SAFETY: the rows have the lines, or all bytes (caller contract).
    unsafe {
        if bytes.is_multiple_of(size_of::<Line>()) && bytes <= 16 * size_of::<Line>() {
            for k in 0..bytes / size_of::<Line>() {
                let line = from.cast::<Line>().add(k).read_unaligned();
                to.cast::<Line>().add(k).write_unaligned(line);
            }
        } else {
            std::ptr::copy_nonoverlapping(from, to, bytes);
        }
    }
}
