//! The scratch memory of workers: registers, accumulators, operand tables and row buffers.

use crate::exec::compile::codegen::tile_program::REGISTER_BYTES;
use std::cell::RefCell;
use std::mem::MaybeUninit;

/// The size of an accumulator of a reduction, in bytes.
pub(crate) const ACCUMULATOR_BYTES: usize = 8192;
/// The number of accumulators: more than the depth of any summation tree, plus a batch of rows.
const NUM_ACCUMULATORS: usize = 88;

/// The scratch memory of a worker: registers, accumulators, operand tables and row buffers.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// The accumulators, followed by the registers.
    memory: Vec<MaybeUninit<Page>>,
    /// The address of the first accumulator.
    start: *mut u8,
    /// The number of registers in `memory`.
    num_registers: usize,
    /// The number of registers of the programs that run now.
    active_registers: usize,
    /// The addresses of operands: registers first, then memory accesses, for this row and the next.
    pub(super) table: Vec<*mut u8>,
    /// The row buffers.
    buffers: Vec<CacheLine>,
}

/// The unit of accumulators and registers, which aligns them to pages.
#[allow(dead_code, reason = "only its size and its alignment are used")]
#[derive(Clone, Copy, Debug)]
#[repr(align(4096))]
struct Page([u8; 4096]);

/// The unit of row buffers, which aligns them to cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine(#[expect(dead_code, reason = "written and read by kernels")] [u8; 64]);

impl Scratch {
    /// Creates scratch memory that is empty.
    pub(crate) fn new() -> Scratch {
        Scratch {
            memory: Vec::new(),
            start: std::ptr::null_mut(),
            num_registers: 0,
            active_registers: 0,
            table: Vec::new(),
            buffers: Vec::new(),
        }
    }
    /// Reserves memory for this many registers and operands.
    pub(crate) fn reserve(&mut self, registers: usize, operands: usize) {
        // each operand has two entries: its current address, and that in the next row
        if self.table.len() <= 2 * operands {
            self.table.resize(2 * operands + 1, std::ptr::null_mut());
        }
        if self.memory.is_empty() || self.num_registers < registers {
            let n = registers.max(2 * self.num_registers).max(16);
            let bytes = n * REGISTER_BYTES + NUM_ACCUMULATORS * ACCUMULATOR_BYTES;
            // free the old memory first
            self.memory = Vec::new();
            self.memory.resize_with(bytes.div_ceil(size_of::<Page>()), MaybeUninit::uninit);
            self.start = self.memory.as_mut_ptr().cast();
            self.num_registers = n;
        }
        self.active_registers = registers;
        for r in 0..registers {
            self.table[r] =
                self.start.wrapping_add(NUM_ACCUMULATORS * ACCUMULATOR_BYTES + r * REGISTER_BYTES);
        }
    }
    /// Returns scratch memory of this many bytes, for some rows of intermediate values.
    ///
    /// It starts in the middle of a page. Large values start at a page boundary, and a load may
    /// have to wait for an earlier store to the same offset of another page. Softmax was 1.15x
    /// slower with scratch memory that started at a page boundary.
    pub(crate) fn reserve_buffers(&mut self, bytes: usize) -> *mut u8 {
        let page = size_of::<Page>() / size_of::<CacheLine>();
        let cache_lines = bytes.div_ceil(size_of::<CacheLine>()) + page;
        if self.buffers.len() < cache_lines {
            self.buffers.resize(cache_lines, CacheLine([0; 64]));
        }
        let first: *mut u8 = self.buffers.as_mut_ptr().cast();
        let ahead = (size_of::<Page>() / 2).wrapping_sub(first.addr()) % size_of::<Page>();
        first.wrapping_add(ahead)
    }
    /// Returns the registers, and two operand tables: for the current row and for the next one.
    pub(crate) fn operand_tables(&mut self, operands: usize) -> (&[*mut u8], &mut [*mut u8], &mut [*mut u8]) {
        let (registers, tables) = self.table.split_at_mut(self.active_registers);
        let (now, begins) = tables.split_at_mut(operands);
        (registers, now, begins)
    }
    /// Returns accumulator `k`.
    pub(crate) fn accumulator(&self, k: usize) -> *mut u8 {
        assert!(k < NUM_ACCUMULATORS, "sums nest as deep as the logarithm of their length");
        self.start.wrapping_add(k * ACCUMULATOR_BYTES)
    }
}

/// Runs `f` with the scratch memory of this thread.
pub(crate) fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    thread_local! { static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new()); }
    match SCRATCH.try_with(|_| ()) {
        Ok(()) => SCRATCH.with(|s| f(&mut s.borrow_mut())),
        // the thread is ending, and its scratch memory has already been dropped
        Err(_) => f(&mut Scratch::new()),
    }
}
