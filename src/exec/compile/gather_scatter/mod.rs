//! Gathers and scatters at run-time indices, bound to memory.
//!
//! Index operands select rows, which are copied or combined. The loops on which an index depends
//! come first, in program order; a *query* is one index of these loops. The other loops run along a
//! row, in the order of memory. The updates of a result element are applied in the order of the
//! loops, however the work is divided: a task of a scatter owns rows of the result, and goes
//! through all queries.
//!
//! There are four implementations: for a single row, for batches of contiguous rows, for a
//! scatter-add that sorts its updates by row, and the general one, which runs query by query.
//! `method` chooses among them, and reports state the reason.

mod batched;
mod bind;
mod general;
mod method;
mod single_row;
mod sorted_add;

use super::index::{LoopVec, MAX_LOOPS};
use super::task_kernel::{BoundCall, KernelTask, SlotAccess, TaskKernel};
use super::{codegen::interpreter::Scratch, element_word::with_word};
use crate::core::DType;
use crate::kernels::{IndexSpec, SliceKernel as Fun};
use batched::BatchedRows;
pub(crate) use bind::bind;
pub(crate) use general::read_index;
use method::RowMethod;

/// An index operand of a gather or a scatter.
#[derive(Clone, Debug)]
struct BoundIndex {
    /// The slot of the indices.
    slot: u32,
    /// The type of the indices.
    dtype: DType,
    /// The offset of the first index, in bytes.
    offset: i64,
    /// The bytes from one index of each kernel loop to the next.
    strides: LoopVec,
    /// The maximum start; negative if there is no valid one.
    max_start: i64,
    /// The offset that is added to a negative index; 0 for none.
    negative_offset: i64,
    /// True if out-of-bounds indices are clipped; otherwise they have no row.
    clip: bool,
    /// The bytes from the row of one index to that of the next.
    target_stride: i64,
    /// The bound loop, as numbered in the program.
    loop_id: usize,
    /// The loop of the window that starts at the index, as numbered in the kernel, if there is one.
    window: Option<usize>,
}

impl BoundIndex {
    /// Converts a negative index, which counts from the end, to an index from the start.
    #[inline(always)]
    fn resolve_negative(&self, n: i64) -> i64 {
        if n < 0 { n + self.negative_offset } else { n }
    }
    /// Returns the offset in bytes of the row that index `n` selects; `None` if there is none.
    #[inline(always)]
    fn row_offset(&self, n: i64) -> Option<i64> {
        let n = self.resolve_negative(n);
        let start = n.min(self.max_start).max(0);
        let found = self.max_start >= 0 && (self.clip || start == n);
        found.then_some(start * self.target_stride)
    }
    /// Returns the rule by which kernels resolve these indices, restricted to the rows in `own`.
    fn bounds(&self, own: (i64, i64)) -> IndexSpec {
        IndexSpec {
            max_index: self.max_start,
            negative_offset: self.negative_offset,
            clip: self.clip,
            row_stride: self.target_stride,
            owned_rows: own,
        }
    }
}

/// A box of loop indices, as (first index, end).
type LoopBox = (LoopVec, LoopVec);

/// One partial of the result.
/// Boxes of a gather have the loops of the program, boxes of a scatter those of the kernel.
#[derive(Clone, Debug)]
struct BoundPartial {
    /// The offset in the result, in bytes.
    out_offset: i64,
    /// The offsets in operands 0 and 1, in bytes.
    operand_offsets: [i64; 2],
    /// The boxes; for a gather, none if there is only one partial.
    boxes: Vec<LoopBox>,
}

/// The rows that a task of a scatter owns: indices of the first dimension that has several.
#[derive(Clone, Copy, Debug)]
enum RowOwnership {
    /// The indices of a loop.
    Loop(usize),
    /// The rows that this index operand selects.
    Indexed(usize),
    /// The only row.
    One,
}

/// A gather or a scatter that is bound to memory.
#[derive(Clone, Debug)]
pub(crate) struct GatherScatterKernel {
    /// The slot of the result.
    out: u32,
    /// The slot of the source, which for a scatter are the updates.
    src_slot: u32,
    /// The offset in the source, in bytes.
    src_offset: i64,
    /// The strides of the kernel's loops in the source, in bytes.
    src_strides: LoopVec,
    /// The strides of the kernel's loops in the result, in bytes.
    dst_strides: LoopVec,
    /// The size of an element, in bytes.
    element_bytes: usize,
    /// The number of the kernel's loops.
    num_loops: usize,
    /// The number of query loops, which come first.
    num_query_loops: usize,
    /// The sizes of the kernel's loops.
    ext: LoopVec,
    /// The index operands.
    indices: Vec<BoundIndex>,
    /// The bits of elements that are out of bounds.
    fill_bits: u128,
    /// The bits of elements that another partial has.
    absent_bits: u128,
    /// The partials of the result.
    partials: Vec<BoundPartial>,
    /// The target of a scatter; `None` for a gather.
    scatter: Option<ScatterTarget>,
    /// The implementation.
    method: RowMethod,
    /// The reason for this implementation, for reports.
    method_reason: &'static str,
    /// The number of tasks.
    num_tasks: i64,
    /// The approximate cost, in microseconds.
    cost_us: f64,
}

/// The target of a scatter.
#[derive(Clone, Debug)]
struct ScatterTarget {
    /// The initial value, as (slot, offset, strides), in bytes; `None` if it is a constant.
    init: Option<(u32, i64, LoopVec)>,
    /// The bits of a constant initial value.
    init_bits: u128,
    /// The number of dimensions of the result from the row dimension on.
    rank: usize,
    /// The sizes of these dimensions.
    ext: LoopVec,
    /// The strides of these dimensions, in bytes.
    strides: LoopVec,
    /// True if these dimensions are contiguous, in the result and in the initial value.
    contiguous: bool,
    /// The number of rows.
    num_rows: i64,
    /// The rows that a task owns.
    ownership: RowOwnership,
    /// The kernel that combines elements; `None` to overwrite them.
    combine: Option<Fun>,
}

impl TaskKernel for GatherScatterKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        visit(SlotAccess::write(self.out));
        visit(SlotAccess::read(self.src_slot));
        self.indices.iter().for_each(|m| visit(SlotAccess::read(m.slot)));
        if let Some(ScatterTarget { init: Some((slot, ..)), .. }) = self.scatter {
            visit(SlotAccess::read(slot));
        }
    }
    fn num_tasks(&self) -> i64 {
        self.num_tasks
    }
    fn cost_us(&self) -> f64 {
        self.cost_us
    }
    fn implementation(&self) -> Option<&'static str> {
        match self.method {
            RowMethod::SingleRow if self.num_tasks > 1 => {
                Some("query by query: several tasks write the initial value")
            }
            _ => Some(self.method_reason),
        }
    }
    fn limit_tasks(&mut self, tasks: i64) {
        let most = match &self.scatter {
            Some(ScatterTarget { ownership: RowOwnership::One, .. }) => 1,
            // for single elements, one task that applies all updates takes less time than each of
            // several tasks needs to scan the indices
            Some(ScatterTarget { ownership: RowOwnership::Indexed(_), .. })
                if self.batched().is_some_and(BatchedRows::prefers_one_task) =>
            {
                1
            }
            Some(p) => p.num_rows.max(1),
            None => self.ext[..self.num_query_loops].iter().product::<i64>().max(1),
        };
        self.num_tasks = tasks.min(most);
    }
    fn bind_call(&self, memory: &[*mut u8], moving: &[u32]) -> Option<Box<dyn BoundCall + '_>> {
        Some(Box::new(single_row::BoundRow::new(self, memory, moving)?))
    }
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], scratch: &mut Scratch) {
        let rows = || {
            let rows = task.share_of(match &self.scatter {
                Some(p) => p.num_rows,
                None => self.ext[..self.num_query_loops].iter().product(),
            });
            (rows.start, rows.end)
        };
        // SAFETY: the rows are those of this task, for which the caller upholds the contract.
        unsafe {
            match self.method {
                RowMethod::SingleRow if task.count == 1 => self.run_single_row(memory),
                RowMethod::SortedAdd(..) => self.scatter_sorted(rows(), memory, scratch),
                _ => self.run_rows(rows(), memory),
            }
        }
    }
}

impl GatherScatterKernel {
    /// Returns the slot of the source or of the updates.
    pub(crate) fn source_slot(&self) -> u32 {
        self.src_slot
    }
    /// Returns true for a scatter.
    pub(crate) fn is_scatter(&self) -> bool {
        self.scatter.is_some()
    }
    /// Computes the queries `rows` of a gather, or the result rows `rows` of a scatter.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows.
    pub(crate) unsafe fn run_rows(&self, rows: (i64, i64), base: &[*mut u8]) {
        with_word!(self.element_bytes, T => for part in &self.partials {
            // SAFETY: the caller upholds the contract for these rows, and `T` has the size of an
            // element.
            unsafe {
                match &self.scatter {
                    Some(p) => self.scatter::<T>(p, part, rows, base),
                    None => self.gather::<T>(part, rows, base),
                }
            }
        })
    }
    /// Writes the value that a scatter starts from.
    ///
    /// # Safety
    /// The contract of `run` holds for all result rows.
    pub(crate) unsafe fn write_init(&self, base: &[*mut u8]) {
        let (Some(p), [part]) = (&self.scatter, &self.partials[..]) else { return };
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        let (ahead, rows) = (part.operand_offsets[0], (0, p.num_rows));
        // SAFETY: the caller upholds the contract of `run` for all result rows.
        unsafe { with_word!(self.element_bytes, T => p.write_init_rows::<T>(out, ahead, rows, base)) }
    }
    /// Applies the updates `a..e` of a scatter that runs in batches.
    ///
    /// # Safety
    /// The contract of `run` holds for these updates and for all result rows, which `write_init`
    /// has initialized.
    pub(crate) unsafe fn scatter_updates(&self, (a, e): (i64, i64), base: &[*mut u8]) {
        let (Some(p), Some(quick), [part]) = (&self.scatter, self.batched(), &self.partials[..]) else {
            return;
        };
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        let from = base[self.src_slot as usize]
            .wrapping_offset((self.src_offset + part.operand_offsets[1]) as isize);
        let (mut lo, mut hi) = ([0; MAX_LOOPS], self.ext);
        (lo[0], hi[0]) = (a, e);
        let (updates, rows, ends) = ((&lo, &hi), (0, p.num_rows), [out, from]);
        // SAFETY: the caller upholds the contract of `run` for the updates and for all result rows.
        unsafe {
            with_word!(self.element_bytes, T => {
                self.scatter_batched::<T>(quick, p, updates, rows, ends, base)
            })
        }
    }
}
