//! Runs tile programs with transposed operands in blocks of rows.
//!
//! Reading an operand across its rows uses one element of each cache line, and the lines of the
//! next tiles may evict it before the others are used, above all if rows are a power of two apart.
//! So all elements of a block are copied into a buffer at once, row by row of the result.

use super::{address, execute_row_code, execute_step};
use crate::exec::compile::codegen::tile_program::{REGISTER_BYTES, StridedLoad, TileProgram, TileSegment};
use crate::exec::compile::index::LoopVec;
use crate::exec::runtime::Buffer;
use crate::kernels::{CACHE_LINE_BYTES, HAS_FAST_PATHS};
use smallvec::SmallVec;

/// The number of rows of a block, which is a multiple of those in a cache line.
pub(crate) const BLOCK_ROWS: i64 = 64;
/// The minimum number of rows and of columns for which blocks pay.
const MIN_BLOCK: i64 = 16;
/// The bytes from one row of the buffer to the next. (Rows at a power of two would evict one
/// another from the cache.)
const BUFFER_ROW_BYTES: usize = REGISTER_BYTES + CACHE_LINE_BYTES;

impl TileProgram {
    /// Returns the dimension along which the most strided loads are contiguous, if any are and
    /// blocks pay.
    pub(crate) fn find_transposed_dim(&self) -> Option<usize> {
        let last = self.rank - 1;
        let loads = |d: usize| {
            self.boxes
                .iter()
                .map(move |b| b.segments.iter().map(move |s| s.loads_along(d, last).count()).sum::<usize>())
                .sum::<usize>()
        };
        let fits = |d: &usize| {
            HAS_FAST_PATHS && self.ext[*d] >= MIN_BLOCK && self.ext[last] >= MIN_BLOCK && loads(*d) > 0
        };
        (0..last).filter(fits).max_by_key(|d| loads(*d))
    }
}

impl TileSegment {
    /// Returns the loads that are contiguous along dimension `d`, and far apart along `last`.
    ///
    /// A load qualifies only if its register has no other use before it.
    fn loads_along(&self, d: usize, last: usize) -> impl Iterator<Item = &StridedLoad> {
        self.strided_loads.iter().filter(move |load| {
            let m = &self.mems[load.mem];
            let earlier = || self.tile_code[..load.step].iter().any(|step| step.dst() == load.register);
            m.strides[d] == i64::from(m.element_bytes)
                && m.strides[last].unsigned_abs() >= CACHE_LINE_BYTES as u64
                && !earlier()
        })
    }
}

/// Runs a segment over a box, whose innermost interval is in the segment, in blocks along `along`.
/// Returns false if there is nothing to block.
///
/// # Safety
/// The contract of [`run`](super::run) holds for the box. `table` starts with the
/// registers, followed by space for the addresses of the segment's memory operands.
pub(super) unsafe fn run_blocks(
    t: &TileProgram,
    s: &TileSegment,
    along: usize,
    base: &[*mut u8],
    (start, end): (&LoopVec, &LoopVec),
    table: &mut [*mut u8],
) -> bool {
    let last = t.rank - 1;
    let loads: SmallVec<[&StridedLoad; 4]> = s.loads_along(along, last).collect();
    if !HAS_FAST_PATHS
        || loads.is_empty()
        || end[along] - start[along] < MIN_BLOCK
        || end[last] - start[last] < MIN_BLOCK
    {
        return false;
    }
    let mut buffer = Buffer::allocate_or_unwind(loads.len() * BLOCK_ROWS as usize * BUFFER_ROW_BYTES);
    let registers: SmallVec<[*mut u8; 4]> = loads.iter().map(|l| table[l.register as usize]).collect();
    let block = Block { t, s, along, base, loads: &loads, buffer: buffer.as_mut_ptr() };
    let others = |d: &usize| *d != along;
    let mut first = true;
    let count: i64 = (0..last).filter(others).map(|d| end[d] - start[d]).product();
    for mut k in 0..count {
        let mut x = *start;
        for d in (0..last).rev().filter(others) {
            x[d] += k % (end[d] - start[d]);
            k /= end[d] - start[d];
        }
        for row in (start[along]..end[along]).step_by(BLOCK_ROWS as usize) {
            for column in (start[last]..end[last]).step_by(t.tile_elements as usize) {
                (x[along], x[last]) = (row, column);
                let rows = (end[along] - row).min(BLOCK_ROWS);
                let columns = (end[last] - column).min(t.tile_elements);
                // SAFETY: the block is within the box, for which the caller upholds the contract.
                unsafe { block.run(&x, (rows, columns), first, table) }
                first = false;
            }
        }
    }
    for (load, register) in loads.iter().zip(registers) {
        table[load.register as usize] = register;
    }
    true
}

/// The operands that all blocks of a box share.
struct Block<'a> {
    /// The program.
    t: &'a TileProgram,
    /// The segment.
    s: &'a TileSegment,
    /// The dimension of a block's rows.
    along: usize,
    /// The memory of each slot.
    base: &'a [*mut u8],
    /// The loads that are read block by block.
    loads: &'a [&'a StridedLoad],
    /// The buffer: [`BLOCK_ROWS`] rows for each load.
    buffer: *mut u8,
}

impl Block<'_> {
    /// Runs the segment on a block of at most [`BLOCK_ROWS`] rows and one tile of columns, from
    /// index `x` on. Constants are written in the first block, which is as wide as any.
    ///
    /// # Safety
    /// The contract of [`run_blocks`] holds for the block, and `buffer` has space for its loads.
    unsafe fn run(&self, x: &LoopVec, (rows, columns): (i64, i64), first: bool, table: &mut [*mut u8]) {
        let (t, s, regs) = (self.t, self.s, self.t.num_registers as usize);
        let place = |load: usize, row: i64| {
            self.buffer.wrapping_add((load * BLOCK_ROWS as usize + row as usize) * BUFFER_ROW_BYTES)
        };
        for (k, load) in self.loads.iter().enumerate() {
            let m = &s.mems[load.mem];
            let (from, step) = (address(m, self.base, x, t.rank), m.strides[t.rank - 1] as isize);
            // SAFETY: the elements are within the slot (caller contract), and a row of the buffer
            // has space for a tile.
            unsafe {
                (load.transpose)((rows as usize, columns as usize), place(k, 0), BUFFER_ROW_BYTES, from, step)
            }
        }
        let mut x = *x;
        for row in 0..rows {
            for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                *p = address(m, self.base, &x, t.rank);
            }
            for (k, load) in self.loads.iter().enumerate() {
                table[load.register as usize] = place(k, row);
            }
            x[self.along] += 1;
            // the first elements are run by themselves if that aligns the others' stores
            let head = match s.mems.last() {
                Some(m) if t.stream => {
                    let bytes = (table[regs + s.mems.len() - 1] as usize).wrapping_neg() % CACHE_LINE_BYTES;
                    (bytes as i64 / i64::from(m.element_bytes)).min(columns)
                }
                _ => 0,
            };
            // SAFETY: the table has the operands of this row, which is one tile (caller contract).
            unsafe {
                execute_row_code(s, table, columns, first && row == 0);
                if head > 0 {
                    self.execute(table, head);
                    for (p, m) in table[regs..].iter_mut().zip(&s.mems) {
                        *p = p.wrapping_offset((head * m.strides[t.rank - 1]) as isize);
                    }
                    for load in self.loads {
                        let bytes = head * i64::from(s.mems[load.mem].element_bytes);
                        let register = &mut table[load.register as usize];
                        *register = register.wrapping_offset(bytes as isize);
                    }
                }
                self.execute(table, columns - head);
            }
        }
    }
    /// Runs the steps of the segment on `n` elements, except those whose values are in the buffer.
    ///
    /// # Safety
    /// The operands of each step in `table` satisfy the contract of its kernel for `n` elements.
    unsafe fn execute(&self, table: &[*mut u8], n: i64) {
        for (k, step) in self.s.tile_code.iter().enumerate() {
            if !self.loads.iter().any(|load| load.step == k) {
                // SAFETY: the caller upholds the contract for this step.
                unsafe { execute_step(step, table, n) }
            }
        }
    }
}
