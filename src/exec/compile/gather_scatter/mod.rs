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

mod batched;
mod general;
mod single_row;
mod sorted_add;

use super::index::{LoopVec, MAX_LOOPS};
use super::ir::{BufferProgram, GatherScatterOp, OperandAccess, ShardBox};
use crate::core::types::DType;
use crate::core::util::small_sort;
use crate::exec::compile::codegen::interpreter::Scratch;
use crate::ir::program::loop_nest::{OutOfBounds, Reducer, Source};
use crate::kernels;
use crate::kernels::{AddSorted, IndexSpec, SliceKernel as Fun};
use crate::partition::Slot;
use batched::BatchedRows;
use general::ElementWord;

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
    #[cfg(not(target_family = "wasm"))]
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
        if n < 0 { n + self.offset_if_negative() } else { n }
    }
    /// Returns the rule by which kernels resolve these indices, restricted to the rows in `own`.
    fn bounds(&self, own: (i64, i64)) -> IndexSpec {
        IndexSpec {
            max_index: self.max_start,
            negative_offset: self.offset_if_negative(),
            clip: self.clip,
            row_stride: self.target_stride,
            owned_rows: own,
        }
    }
    /// Returns the offset that is added to a negative index.
    #[inline(always)]
    fn offset_if_negative(&self) -> i64 {
        #[cfg(not(target_family = "wasm"))]
        return self.negative_offset;
        #[cfg(target_family = "wasm")]
        0
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
    /// The implementation by batches of rows, if it applies.
    batched: Option<BatchedRows>,
    /// True if the operation has a single row.
    is_single_row: bool,
    /// The kernel that adds sorted updates, if sorting pays.
    sorted_add: Option<AddSorted>,
    /// The number of tasks.
    pub(crate) num_tasks: i64,
    /// The approximate cost, in microseconds.
    pub(crate) cost_us: f64,
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

/// A function from a value to the slot in whose memory it is.
type SlotFn<'a> = &'a dyn Fn(Slot) -> u32;

/// Returns the slot, the offset and the strides, in bytes, of an operand that is one value.
fn value_source(o: &OperandAccess, slot_index: SlotFn<'_>) -> (u32, i64, LoopVec) {
    let size = o.dtype.size() as i64;
    match o.boxes.first().map(|p| (p, p.source)) {
        Some((p, Source::Value(s))) => (slot_index(s), p.offset * size, p.strides.map(|s| s * size)),
        // without an operand, the value has no elements
        _ => (0, 0, [0; MAX_LOOPS]),
    }
}

/// Returns the kernel's loops in order, and the number of query loops.
fn loop_order(
    s: &GatherScatterOp,
    asked: &dyn Fn(usize) -> bool,
    step: &dyn Fn(usize) -> i64,
) -> (Vec<usize>, usize) {
    // partials of a gather are distinguished by index, so its windows are query loops
    let masked = s.scatter.is_none() && s.partials.iter().any(|p| !p.boxes.is_empty());
    let window = |l: usize| s.indices.iter().any(|b| b.window == Some(l));
    // several updates of one element keep their order
    let again = |l: usize| s.scatter.is_some() && l >= s.rank && !window(l);
    let loops = (0..s.num_loops).filter(|l| s.ext[*l] != 1 && s.indices.iter().all(|b| b.loop_id != *l));
    let (mut order, mut rest): (Vec<usize>, Vec<usize>) =
        loops.partition(|l| asked(*l) || again(*l) || masked && window(*l));
    small_sort::sort_by_key(&mut rest, |l| std::cmp::Reverse(step(*l).abs()));
    // if there are no query loops, a large box gets one, so that it can be divided into tasks
    if order.is_empty()
        && s.scatter.is_none()
        && rest.len() > 1
        && rest.iter().map(|l| s.ext[*l]).product::<i64>() > 1 << 16
    {
        order.push(rest.remove(0));
    }
    let queries = order.len();
    order.extend(rest);
    (order, queries)
}

/// Binds a gather or a scatter to memory.
/// `in_place` is true if the result overwrites the value that a scatter starts from.
pub(crate) fn bind(
    flow: &BufferProgram<'_>,
    s: &GatherScatterOp,
    slot_index: SlotFn<'_>,
    in_place: bool,
    workers: i64,
) -> GatherScatterKernel {
    let v = &flow.values[s.out];
    let size = v.dtype.size() as i64;
    let own = usize::from(v.num_partials > 1);
    let (from, off, st) = value_source(&s.reads[usize::from(s.scatter.is_some())], slot_index);
    let found: Vec<_> = s.indices.iter().map(|b| value_source(&s.reads[b.operand], slot_index)).collect();
    // the bytes from index to index of the result; an update loop of a scatter has those of its
    // window
    let step = |l: usize| {
        let window = s.indices.iter().find(|b| l >= s.rank && b.window == Some(l)).map(|b| b.loop_id);
        let d = if l < s.rank { Some(l) } else { window };
        d.map_or(0, |d| v.strides[d + own] * size)
    };
    let (order, queries) = loop_order(s, &|l| found.iter().any(|f| f.2[l] != 0), &step);
    let at = |l: usize| order.iter().position(|x| *x == l);
    let in_order = |of: &dyn Fn(usize) -> i64, rest: i64| {
        let mut x = [rest; MAX_LOOPS];
        order.iter().enumerate().for_each(|(k, l)| x[k] = of(*l));
        x
    };
    let ext = in_order(&|l| s.ext[l], 1);
    let dst = in_order(&step, 0);
    let with = |l: usize| {
        s.indices
            .iter()
            .filter(|b| s.scatter.is_none() && b.window == Some(l))
            .map(|b| st[b.loop_id])
            .sum::<i64>()
    };
    let src = in_order(&|l| st[l] + with(l), 0);
    let numbers = s.indices.iter().enumerate().zip(&found).map(|((_k, b), f)| BoundIndex {
        slot: f.0,
        dtype: s.reads[b.operand].dtype,
        offset: f.1,
        strides: in_order(&|l| f.2[l], 0),
        max_start: b.max_start,
        #[cfg(not(target_family = "wasm"))]
        negative_offset: s.negative_offsets[_k],
        clip: b.mode == OutOfBounds::Clip,
        target_stride: if s.scatter.is_some() { v.strides[b.loop_id + own] * size } else { st[b.loop_id] },
        loop_id: b.loop_id,
        window: b.window.and_then(at),
    });
    let widths = s.reads.iter().map(|o| o.dtype.size() as i64);
    let widths: Vec<i64> = widths.take(2).collect();
    let pieces = s.partials.iter().enumerate().map(|(c, p)| BoundPartial {
        out_offset: c as i64 * v.strides[0] * size * own as i64,
        operand_offsets: std::array::from_fn(|k| p.operand_offsets[k] * widths.get(k).copied().unwrap_or(1)),
        boxes: match s.scatter {
            None => p.boxes.iter().map(|b| (b.lo, b.hi)).collect(),
            Some(_) => p.boxes.iter().filter_map(|b| scatter_box(s, b, &in_order)).collect(),
        },
    });
    let put = s.scatter.map(|combine| scatter_target(flow, s, combine, slot_index, &at));
    let elements: i64 = order.iter().map(|l| s.ext[*l]).product();
    let count: i64 = ext[..queries].iter().product();
    let whole = v.shape.num_elements() as f64 * size as f64;
    let laid = if s.scatter.is_some() && !in_place { whole / 10.0 } else { 0.0 };
    let cost = ((elements * size) as f64 / 8.0 + 4.0 * count as f64 + laid) / 1000.0;
    let tasks = if s.scatter.is_some() { workers } else { 4 * workers };
    let requested_tasks = if cost < 20.0 { 1 } else { ((cost / 20.0) as i64).clamp(1, tasks) };
    let mut kernel = GatherScatterKernel {
        out: slot_index(s.out),
        src_slot: from,
        src_offset: off,
        src_strides: src,
        dst_strides: dst,
        element_bytes: size as usize,
        num_loops: order.len(),
        num_query_loops: queries,
        ext,
        indices: numbers.collect(),
        fill_bits: crate::exec::compile::codegen::values::scalar_bits(v.dtype, s.reads[0].fill),
        absent_bits: crate::exec::compile::codegen::values::scalar_bits(v.dtype, s.neutral),
        partials: pieces.collect(),
        scatter: put,
        batched: None,
        is_single_row: false,
        sorted_add: None,
        num_tasks: 1,
        cost_us: cost,
    };
    kernel.batched = BatchedRows::choose(&kernel, v.dtype, s.scatter.flatten());
    kernel.is_single_row = kernel.has_single_row();
    if !size_optimized!() {
        kernel.sorted_add = kernel.choose_sorted_add(v.dtype, s.scatter.flatten());
    }
    kernel.limit_tasks(requested_tasks);
    kernel
}

/// Reorders one number per loop to the order of the kernel's loops; other positions get the
/// default.
type ReorderFn<'a> = &'a dyn Fn(&dyn Fn(usize) -> i64, i64) -> LoopVec;

/// Translates a box of a scatter to the kernel's loops; `None` if it is empty.
fn scatter_box(s: &GatherScatterOp, b: &ShardBox, in_order: ReorderFn<'_>) -> Option<LoopBox> {
    if (s.rank..s.num_loops).any(|l| b.lo[l] >= b.hi[l]) {
        return None;
    }
    let lo = |l: usize| if l < s.rank { 0 } else { b.lo[l] };
    let hi = |l: usize| if l < s.rank { s.ext[l] } else { b.hi[l] };
    Some((in_order(&lo, 0), in_order(&hi, 1)))
}

/// Binds the target of a scatter.
fn scatter_target(
    flow: &BufferProgram<'_>,
    s: &GatherScatterOp,
    combine: Option<Reducer>,
    slot_index: SlotFn<'_>,
    at: &dyn Fn(usize) -> Option<usize>,
) -> ScatterTarget {
    let v = &flow.values[s.out];
    let (size, own) = (v.dtype.size() as i64, usize::from(v.num_partials > 1));
    let (was, bits) = match s.reads[0].boxes.first().map(|p| p.source) {
        Some(Source::Value(_)) => (Some(value_source(&s.reads[0], slot_index)), 0),
        Some(Source::Const(c)) => (None, crate::exec::compile::codegen::values::scalar_bits(v.dtype, c)),
        None => (None, crate::exec::compile::codegen::values::scalar_bits(v.dtype, s.reads[0].fill)),
    };
    let first = (0..s.rank).find(|d| s.ext[*d] != 1);
    let rows = first.map_or(1, |d| s.ext[d]);
    let dims = first.unwrap_or(s.rank)..s.rank;
    let (mut ext, mut st, mut from) = ([1; MAX_LOOPS], [0; MAX_LOOPS], [0; MAX_LOOPS]);
    for (k, d) in dims.clone().enumerate() {
        (ext[k], st[k]) = (s.ext[d], v.strides[d + own] * size);
        from[k] = was.map_or(0, |w| w.2[d]);
    }
    if dims.is_empty() {
        // a scalar result is one row of one element
        (st[0], from[0]) = (size, size);
    }
    let rank = dims.len().max(1);
    let mut dense = was.is_some();
    let mut next = size;
    for k in (0..rank).rev() {
        dense &= ext[k] == 1 || st[k] == next && from[k] == next;
        next *= ext[k];
    }
    let own = match first {
        None => RowOwnership::One,
        Some(d) => match (s.indices.iter().position(|b| b.loop_id == d), at(d)) {
            (Some(j), _) => RowOwnership::Indexed(j),
            (None, Some(l)) => RowOwnership::Loop(l),
            (None, None) => RowOwnership::One,
        },
    };
    let was = was.map(|w| (w.0, w.1, from));
    let combine = combine.and_then(|c| kernels::combine(c, v.dtype));
    ScatterTarget {
        init: was,
        init_bits: bits,
        rank,
        ext,
        strides: st,
        contiguous: dense,
        num_rows: rows,
        ownership: own,
        combine,
    }
}

impl GatherScatterKernel {
    /// Cuts the operation into at most `tasks` tasks, and returns their number.
    pub(crate) fn limit_tasks(&mut self, tasks: i64) -> i64 {
        let most = match &self.scatter {
            Some(ScatterTarget { ownership: RowOwnership::One, .. }) => 1,
            // for single elements, one task that applies all updates takes less time than each of
            // several tasks needs to scan the indices
            Some(ScatterTarget { ownership: RowOwnership::Indexed(_), .. })
                if !size_optimized!() && self.batched.as_ref().is_some_and(BatchedRows::prefers_one_task) =>
            {
                1
            }
            Some(p) => p.num_rows.max(1),
            None => self.ext[..self.num_query_loops].iter().product::<i64>().max(1),
        };
        self.num_tasks = tasks.min(most);
        self.num_tasks
    }
    /// Returns the number of rows of a gather, if it can compute any range of them.
    ///
    /// Each row must be selected by indices, one row per query, in the order of the queries.
    pub(crate) fn num_gather_rows(&self) -> Option<i64> {
        let row = if self.num_loops > 1 {
            self.ext[1] * self.element_bytes as i64
        } else {
            self.element_bytes as i64
        };
        let alone =
            matches!(&self.partials[..], [BoundPartial { out_offset: 0, .. }]) && self.batched.is_some();
        (self.scatter.is_none() && self.num_query_loops == 1 && alone && self.dst_strides[0] == row)
            .then_some(self.ext[0])
    }
    /// Returns the number of updates of a scatter, if it can apply any range of them in order.
    ///
    /// Each update must be one row. Always `None` in WebAssembly.
    pub(crate) fn num_batched_updates(&self) -> Option<i64> {
        let row = if self.num_loops > 1 {
            self.ext[1] * self.element_bytes as i64
        } else {
            self.element_bytes as i64
        };
        let is_full = |(lo, hi): &LoopBox| {
            lo[..self.num_loops].iter().all(|x| *x == 0) && hi[..self.num_loops] == self.ext[..self.num_loops]
        };
        let alone = matches!(&self.partials[..], [BoundPartial { out_offset: 0, operand_offsets: [_, 0], boxes }] if matches!(&boxes[..], [b] if is_full(b)));
        let fits = self.scatter.is_some() && self.batched.is_some() && self.num_query_loops == 1 && alone;
        (fits && self.src_offset == 0 && self.src_strides[0] == row && !size_optimized!())
            .then_some(self.ext[0])
    }
    /// Returns the slot of the source or of the updates.
    pub(crate) fn source_slot(&self) -> u32 {
        self.src_slot
    }
    /// Returns the slot of the result.
    pub(crate) fn result_slot(&self) -> u32 {
        self.out
    }
    /// Runs task `i` of `chunks`.
    ///
    /// # Safety
    /// `base` points to the values that the kernel was bound to. No other thread writes an element
    /// that this task reads, or reads or writes an element that it writes.
    pub(crate) unsafe fn run(&self, i: i64, chunks: i64, base: &[*mut u8], scratch: &mut Scratch) {
        if self.is_single_row && chunks == 1 && !size_optimized!() {
            // SAFETY: the caller upholds the contract for the only task.
            return unsafe { self.run_single_row(base) };
        }
        let all = match &self.scatter {
            Some(p) => p.num_rows,
            None => self.ext[..self.num_query_loops].iter().product(),
        };
        let rows = (all * i / chunks, all * (i + 1) / chunks);
        // SAFETY: the rows are those of this task, for which the caller upholds the contract.
        unsafe {
            if self.sorted_add.is_some() && !size_optimized!() {
                self.scatter_sorted(rows, base, scratch);
            } else {
                self.run_rows(rows, base);
            }
        }
    }
    /// Computes the queries `rows` of a gather, or the result rows `rows` of a scatter.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows.
    pub(crate) unsafe fn run_rows(&self, rows: (i64, i64), base: &[*mut u8]) {
        // SAFETY: the caller upholds the contract for these rows.
        unsafe {
            match self.element_bytes {
                1 => self.run_partials::<u8>(rows, base),
                2 => self.run_partials::<u16>(rows, base),
                4 => self.run_partials::<u32>(rows, base),
                8 => self.run_partials::<u64>(rows, base),
                _ => self.run_partials::<u128>(rows, base),
            }
        }
    }
    /// Writes the value that a scatter starts from.
    ///
    /// # Safety
    /// The contract of `run` holds for all result rows.
    pub(crate) unsafe fn write_init(&self, base: &[*mut u8]) {
        // SAFETY: the caller upholds the contract of `run`.
        unsafe { self.dispatch_scatter(None, base) }
    }
    /// Applies a range of the updates of a scatter.
    ///
    /// # Safety
    /// The contract of `run` holds for these updates and for all result rows, which `write_init`
    /// has initialized.
    pub(crate) unsafe fn scatter_updates(&self, some: (i64, i64), base: &[*mut u8]) {
        // SAFETY: the caller upholds the contract of `run`.
        unsafe { self.dispatch_scatter(Some(some), base) }
    }
    /// Applies updates, or writes the initial value, by the size of an element.
    ///
    /// # Safety
    /// The contract of `run` holds for these updates and for all result rows.
    unsafe fn dispatch_scatter(&self, some: Option<(i64, i64)>, base: &[*mut u8]) {
        // SAFETY: the caller upholds the contract of `run`.
        unsafe {
            match self.element_bytes {
                1 => self.scatter_batch::<u8>(some, base),
                2 => self.scatter_batch::<u16>(some, base),
                4 => self.scatter_batch::<u32>(some, base),
                8 => self.scatter_batch::<u64>(some, base),
                _ => self.scatter_batch::<u128>(some, base),
            }
        }
    }
    /// Applies these updates of a scatter; without any, writes the value that it starts from.
    ///
    /// # Safety
    /// The contract of `run` holds for these updates and for all result rows, and `T` has the size
    /// of an element.
    unsafe fn scatter_batch<T: ElementWord>(&self, some: Option<(i64, i64)>, base: &[*mut u8]) {
        let (Some(p), Some(quick), [part], false) =
            (&self.scatter, &self.batched, &self.partials[..], size_optimized!())
        else {
            return;
        };
        let out = base[self.out as usize].wrapping_offset(part.out_offset as isize);
        let Some((a, e)) = some else {
            // SAFETY: the caller upholds the contract of `run` for all result rows.
            return unsafe { p.write_init_rows::<T>(out, part.operand_offsets[0], (0, p.num_rows), base) };
        };
        let from = base[self.src_slot as usize]
            .wrapping_offset((self.src_offset + part.operand_offsets[1]) as isize);
        let (mut lo, mut hi) = ([0; MAX_LOOPS], self.ext);
        (lo[0], hi[0]) = (a, e);
        // SAFETY: the caller upholds the contract of `run` for the updates and for all result rows.
        unsafe { self.scatter_batched::<T>(quick, p, (&lo, &hi), (0, p.num_rows), [out, from], base) }
    }
    /// Computes a range of rows of all partials.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows, and `T` has the size of an element.
    unsafe fn run_partials<T: ElementWord>(&self, rows: (i64, i64), base: &[*mut u8]) {
        for part in &self.partials {
            // SAFETY: the caller upholds the contract for these rows.
            unsafe {
                match &self.scatter {
                    Some(p) => self.scatter::<T>(p, part, rows, base),
                    None => self.gather::<T>(part, rows, base),
                }
            }
        }
    }
}
