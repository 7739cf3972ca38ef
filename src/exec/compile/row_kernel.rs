//! Runs row kernels: functions of full rows, such as sorts, prefix sums and Fourier transforms.
//!
//! The longest loop over rows is cut into tasks. If there are fewer long rows than workers, each
//! row is cut into chunks and computed in two stages, provided that the kernel supports it.

use super::codegen::interpreter::Scratch;
use super::ir::{BufferProgram, OperandAccess, RowKernelOp, RowKernelOut};
use super::task_kernel::{KernelStage, KernelTask, SecondStage, SlotAccess, TaskKernel};
use crate::core::DType;
use crate::ir::program::{ParallelRowKernel, RowInput, RowKernel, RowOutput, RowOutputs, SecondPass, Source};
use crate::kernels::row_kernel;
use std::ops::Range;
use std::sync::Arc;

/// The work that justifies a separate task, in microseconds.
const TASK_US: f64 = 20.0;

/// The minimum work of a long row, in microseconds.
const LONG_ROW_US: f64 = 200.0;

/// An aligned address that is never dereferenced.
const DANGLING: *mut u8 = std::ptr::without_provenance_mut(64);

/// The rows of an operand or a result.
#[derive(Clone, Debug)]
struct RowView {
    /// The slot.
    slot: u32,
    /// The element type.
    dtype: DType,
    /// The offset in the slot, in bytes.
    offset: i64,
    /// The sizes of the loops over rows, and along the row.
    shape: Vec<usize>,
    /// The strides, in elements.
    strides: Vec<usize>,
}

/// A call of a row kernel that is bound to memory.
#[derive(Clone, Debug)]
pub(crate) struct BoundRowKernel {
    /// The row kernel.
    kernel: Arc<dyn RowKernel>,
    /// The operands.
    ins: Vec<RowView>,
    /// The results; `None` for those that are not used.
    outs: Vec<Option<RowView>>,
    /// The loop over rows that is cut into tasks.
    split_loop: Option<usize>,
    /// True if the results have no elements.
    empty: bool,
    /// The split of each row among several workers; `None` if rows are not split.
    row_split: Option<RowSplit>,
    /// The number of tasks.
    num_tasks: i64,
    /// The approximate cost, in microseconds.
    cost_us: f64,
}

/// The split of rows that are computed in two stages, each of whose tasks has a chunk of a row.
#[derive(Clone, Debug)]
struct RowSplit {
    /// The kernel in two stages.
    ///
    /// Its properties are asked once, when it is bound, and kept below: memory accesses rely on
    /// them, and a kernel of the user's may answer differently each time.
    kernel: Arc<dyn ParallelRowKernel>,
    /// The region of the results that a chunk of the second stage writes.
    second_pass: SecondPass,
    /// True if chunks are counted from the end of the row.
    reverse: bool,
    /// The element type of the scratch of a chunk.
    scratch_dtype: DType,
    /// The number of scratch elements of each chunk but the last, and of the last.
    scratch_elements: [usize; 2],
    /// The number of rows.
    num_rows: usize,
    /// The number of elements of a row.
    row_len: usize,
    /// The chunks of the first stage.
    first: StageSplit,
    /// The chunks of the second stage.
    second: StageSplit,
    /// The bytes of scratch that the first stage fills for each chunk.
    chunk_scratch_bytes: usize,
}

/// The chunks of a row in one stage.
#[derive(Clone, Copy, Debug)]
struct StageSplit {
    /// The number of elements of a row, or of columns.
    row_len: usize,
    /// The number of elements of each chunk but the last.
    chunk_len: usize,
    /// The number of chunks.
    num_chunks: usize,
}

impl StageSplit {
    /// Cuts a row into at most `runs` chunks, which start at multiples of `step`.
    /// Returns `None` if the row is empty, or the step is too large.
    fn new(row_len: usize, runs: usize, step: usize) -> Option<StageSplit> {
        let chunk_len = row_len.div_ceil(runs).checked_next_multiple_of(step.max(1))?;
        (row_len > 0).then(|| StageSplit { row_len, chunk_len, num_chunks: row_len.div_ceil(chunk_len) })
    }
    /// Returns the elements of chunk `r`, counted from the end with `reverse`.
    fn chunk(&self, r: usize, reverse: bool) -> Range<usize> {
        let lo = r * self.chunk_len;
        let hi = lo.saturating_add(self.chunk_len).min(self.row_len);
        if reverse { self.row_len - hi..self.row_len - lo } else { lo..hi }
    }
}

/// Binds a call of a row kernel to memory.
pub(crate) fn bind(flow: &BufferProgram<'_>, l: &RowKernelOp, base: u32, workers: i64) -> BoundRowKernel {
    let slot = |s: usize| flow.alias_root(s) as u32 + base;
    let shape: Vec<usize> = l.ext[..l.num_loops].iter().map(|e| *e as usize).collect();
    let ins = l.reads.iter().map(|o: &OperandAccess| {
        let p = &o.boxes[0];
        let Source::Value(s) = p.source else { unreachable!("operands were materialised") };
        let strides = p.strides[..l.num_loops].iter().map(|s| *s as usize).collect();
        let off = p.offset * o.dtype.size() as i64;
        RowView { slot: slot(s), dtype: o.dtype, offset: off, shape: shape.clone(), strides }
    });
    let mut outs: Vec<Option<RowView>> = Vec::new();
    for RowKernelOut { result, out, dims } in &l.outs {
        let v = &flow.values[*out];
        let shape = dims.iter().map(|d| v.shape[*d]).collect();
        let strides = dims.iter().map(|d| v.strides[*d] as usize).collect();
        outs.resize(outs.len().max(result + 1), None);
        outs[*result] = Some(RowView { slot: slot(*out), dtype: v.dtype, offset: 0, shape, strides });
    }
    let cut =
        (0..l.num_row_loops).filter(|k| l.ext[*k] > 1).max_by_key(|k| (l.ext[*k], std::cmp::Reverse(*k)));
    let num_rows: i64 = l.ext[..l.num_row_loops].iter().product();
    let each: usize = shape[l.num_row_loops..].iter().product();
    let cost = num_rows as f64 * l.kernel.cost(each) / 1000.0;
    let requested_tasks = ((cost / TASK_US) as i64).clamp(1, 4 * workers);
    let empty = outs.iter().flatten().all(|o| o.shape.contains(&0));
    let ins: Vec<RowView> = ins.collect();
    let runs = if empty
        || l.num_loops - l.num_row_loops != 1
        || cost < LONG_ROW_US * num_rows as f64
        || num_rows >= workers
    {
        None
    } else {
        RowSplit::choose(&l.kernel, &ins, &outs, num_rows as usize, workers as usize)
    };
    let mut kernel = BoundRowKernel {
        kernel: l.kernel.clone(),
        ins,
        outs,
        split_loop: cut,
        empty,
        row_split: runs,
        num_tasks: 1,
        cost_us: cost,
    };
    kernel.limit_tasks(requested_tasks);
    kernel
}

impl RowSplit {
    /// Chooses the split of rows; `None` if the kernel cannot compute these results in two stages.
    fn choose(
        of: &Arc<dyn RowKernel>,
        ins: &[RowView],
        outs: &[Option<RowView>],
        row_count: usize,
        workers: usize,
    ) -> Option<RowSplit> {
        let places = *ins.first()?.shape.last()?;
        let asked: Vec<bool> = outs.iter().map(Option::is_some).collect();
        let mut outs = outs.iter().flatten();
        if outs.clone().any(|o| o.shape.len() != ins[0].shape.len()) {
            return None;
        }
        let dtypes: Vec<DType> = ins.iter().map(|v| v.dtype).collect();
        let stages = of.parallel(&dtypes, places, &asked)?;
        let made = stages.second_pass();
        if made != SecondPass::FullRow && outs.any(|o| o.shape.last() != Some(&places)) {
            return None;
        }
        let cut = |all: usize| StageSplit::new(all, workers.div_ceil(row_count), stages.alignment());
        let (first, second) = match made {
            SecondPass::Elements => {
                let one = cut(places)?;
                (one, one)
            }
            SecondPass::FullRow => (cut(places)?, StageSplit::new(places, 1, 1)?),
            SecondPass::Columns { operand_columns: first, result_columns: then } => {
                let divides = |n: usize| n > 0 && places.is_multiple_of(n);
                if !divides(first) || !divides(then) {
                    return None;
                }
                (cut(first)?, cut(then)?)
            }
        };
        let reverse = stages.reverse();
        let scratch = |run: usize| stages.scratch(first.chunk(run, reverse).len());
        let ((dtype, most), (last_dtype, last)) = (scratch(0), scratch(first.num_chunks - 1));
        let bytes = most.max(last).checked_mul(dtype.size())?.checked_next_multiple_of(64)?;
        (first.num_chunks > 1 && last_dtype == dtype).then_some(RowSplit {
            kernel: stages,
            second_pass: made,
            reverse,
            scratch_dtype: dtype,
            scratch_elements: [most, last],
            num_rows: row_count,
            row_len: places,
            first,
            second,
            chunk_scratch_bytes: bytes,
        })
    }
    /// Returns the row of a task, the number of its chunk in the stage, and the chunk.
    fn task(&self, i: i64, stage: StageSplit) -> (usize, usize, Range<usize>) {
        let (line, run) = (i as usize / stage.num_chunks, i as usize % stage.num_chunks);
        (line, run, stage.chunk(run, self.reverse))
    }
}

impl RowView {
    /// Returns the address of row `k`, in row-major order.
    fn row_address(&self, mut k: usize, base: &[*mut u8]) -> *mut u8 {
        let mut at = 0;
        for d in (0..self.shape.len() - 1).rev() {
            at += k % self.shape[d] * self.strides[d];
            k /= self.shape[d];
        }
        let bytes = self.offset + (at * self.dtype.size()) as i64;
        base[self.slot as usize].wrapping_offset(bytes as isize)
    }
    /// Returns the stride along a row, in elements.
    fn element_stride(&self) -> usize {
        self.strides.last().copied().unwrap_or(1)
    }
}

impl TaskKernel for BoundRowKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        self.ins.iter().for_each(|v| visit(SlotAccess::read(v.slot)));
        self.outs.iter().flatten().for_each(|v| visit(SlotAccess::write(v.slot)));
    }
    fn num_tasks(&self) -> i64 {
        self.num_tasks
    }
    fn cost_us(&self) -> f64 {
        self.cost_us
    }
    fn limit_tasks(&mut self, most: i64) {
        let num_rows = self.split_loop.map_or(1, |k| self.ins.first().map_or(1, |v| v.shape[k] as i64));
        self.num_tasks = match &self.row_split {
            Some(r) => (r.num_rows * r.first.num_chunks) as i64,
            None => most.min(num_rows).max(1),
        };
    }
    fn second_stage(&self) -> Option<SecondStage> {
        let stage = |r: &RowSplit| SecondStage {
            name: "chunks of a row kernel",
            num_tasks: (r.num_rows * r.second.num_chunks) as i64,
            cost_us: self.second_stage_cost_us(r),
            scratch_bytes: r
                .num_rows
                .saturating_mul(r.first.num_chunks)
                .saturating_mul(r.chunk_scratch_bytes),
        };
        self.row_split.as_ref().map(stage)
    }
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], _scratch: &mut Scratch) {
        // SAFETY: the caller upholds the contract for these rows, and for the slot of the stage.
        unsafe {
            match task.stage {
                KernelStage::Only => self.run_rows(task, memory),
                KernelStage::First(slot) => self.run_first_stage(task.index, memory, memory[slot as usize]),
                KernelStage::Second(slot) => self.run_second_stage(task.index, memory, memory[slot as usize]),
            }
        }
    }
    /// A single worker needs only one stage.
    unsafe fn run_all(&self, stage: KernelStage, memory: &mut [*mut u8], _scratch: &mut Scratch) {
        if !matches!(stage, KernelStage::Second(_)) {
            // SAFETY: the caller upholds the contract for all rows.
            unsafe { self.run_rows(KernelTask { stage, index: 0, count: 1 }, memory) }
        }
    }
}

impl BoundRowKernel {
    /// Returns the approximate cost of the second stage, in microseconds.
    fn second_stage_cost_us(&self, r: &RowSplit) -> f64 {
        match r.second_pass {
            SecondPass::Elements | SecondPass::Columns { .. } => 0.5 * self.cost_us,
            SecondPass::FullRow => {
                let left = r.first.num_chunks.saturating_mul(r.scratch_elements[0]);
                r.num_rows as f64 * self.kernel.cost(left) / 1000.0
            }
        }
    }
    /// Returns the element type, address and shape of the scratch of a chunk.
    ///
    /// # Safety
    /// `temp` points to `scratch_bytes` bytes. While the task of a chunk fills its scratch, no
    /// other thread reads or writes it.
    unsafe fn chunk_scratch(
        r: &RowSplit,
        line: usize,
        run: usize,
        temp: *mut u8,
    ) -> (DType, *mut u8, Vec<usize>) {
        let elements = r.scratch_elements[usize::from(run + 1 == r.first.num_chunks)];
        (
            r.scratch_dtype,
            temp.wrapping_add((line * r.first.num_chunks + run) * r.chunk_scratch_bytes),
            vec![elements],
        )
    }
    /// Returns the operands of a row.
    ///
    /// # Safety
    /// The contract of `run` holds for this row.
    unsafe fn row_inputs(&self, r: &RowSplit, line: usize, base: &[*mut u8]) -> Vec<RowInput<'_>> {
        let one = |v: &RowView| {
            // SAFETY: the accesses are within the values (plan invariant), which no thread writes
            // now (caller contract).
            unsafe {
                RowInput::from_raw(
                    v.dtype,
                    v.row_address(line, base),
                    vec![r.row_len],
                    vec![v.element_stride()],
                )
            }
        };
        self.ins.iter().map(one).collect()
    }
    /// Runs task `i` of the first stage.
    ///
    /// # Safety
    /// The contract of `run` holds. `temp` points to `scratch_bytes` bytes, of which no other
    /// thread accesses the scratch of this task's chunk.
    unsafe fn run_first_stage(&self, i: i64, base: &[*mut u8], temp: *mut u8) {
        let Some(r) = &self.row_split else { return };
        let (line, run, places) = r.task(i, r.first);
        // SAFETY: the caller upholds the contract of `run` for this row, and only this task
        // accesses the scratch of its chunk (caller contract).
        let (ins, scratch) = unsafe {
            let (dtype, at, shape) = Self::chunk_scratch(r, line, run, temp);
            (self.row_inputs(r, line, base), RowOutput::from_raw(dtype, at, shape, vec![1]))
        };
        row_kernel::with_outputs(self.kernel.as_ref(), RowOutputs::new([Some(scratch)]), |outs| {
            let mut scratch = outs.take(0).expect("the list has the scratch buffer");
            r.kernel.run_first_pass(places.clone(), &ins, &mut scratch);
        });
    }
    /// Runs task `i` of the second stage, after all tasks of the first.
    ///
    /// # Safety
    /// The contract of `run` holds, `temp` is that of the first stage, and all tasks of the first
    /// stage have ended.
    unsafe fn run_second_stage(&self, i: i64, base: &[*mut u8], temp: *mut u8) {
        let Some(r) = &self.row_split else { return };
        let (line, run, places) = r.task(i, r.second);
        // SAFETY: the caller upholds the contract for this row.
        let ins = unsafe { self.row_inputs(r, line, base) };
        let scratch = |run: usize| {
            // SAFETY: all tasks of the first stage have ended, so this scratch is filled and no
            // thread writes it any more (caller contract).
            unsafe {
                let (dtype, at, shape) = Self::chunk_scratch(r, line, run, temp);
                RowInput::from_raw(dtype, at, shape, vec![1])
            }
        };
        let scratch_inputs: Vec<RowInput<'_>> = (0..r.first.num_chunks).map(scratch).collect();
        let outs = self.outs.iter().map(|v| {
            let v = v.as_ref()?;
            let (n, m, step) = (v.shape[v.shape.len() - 1], places.len(), v.element_stride());
            let (from, shape, strides) = match r.second_pass {
                SecondPass::Elements => (places.start, vec![m], vec![step]),
                SecondPass::FullRow => (0, vec![n], vec![step]),
                SecondPass::Columns { result_columns: then, .. } => {
                    (places.start, vec![n / then, m], vec![then * step, step])
                }
            };
            let at = v.row_address(line, base).wrapping_add(from * step * v.dtype.size());
            // SAFETY: each result is a separate value, of which this task writes elements that no
            // other thread accesses (caller contract).
            Some(unsafe { RowOutput::from_raw(v.dtype, at, shape, strides) })
        });
        row_kernel::with_outputs(self.kernel.as_ref(), RowOutputs::new(outs), |outs| {
            r.kernel.run_second_pass(run, places.clone(), &ins, &scratch_inputs, outs)
        });
    }
    /// Computes the rows of a task, in one stage.
    ///
    /// # Safety
    /// The contract of `run` holds.
    unsafe fn run_rows(&self, task: KernelTask, base: &[*mut u8]) {
        if self.empty {
            return;
        }
        let part = |v: &RowView| {
            let (mut at, mut shape) = (v.offset, v.shape.clone());
            if let Some(k) = self.split_loop {
                let rows = task.share_of(shape[k] as i64);
                at += rows.start * (v.strides[k] * v.dtype.size()) as i64;
                shape[k] = (rows.end - rows.start) as usize;
            }
            // a view without elements has no address
            let start = if shape.contains(&0) { DANGLING } else { base[v.slot as usize] };
            (start.wrapping_offset(at as isize), shape)
        };
        let ins: Vec<RowInput<'_>> = (self.ins.iter())
            .map(|v| {
                let (at, shape) = part(v);
                // SAFETY: the accesses are within the values (plan invariant), which no thread
                // writes now (caller contract).
                unsafe { RowInput::from_raw(v.dtype, at, shape, v.strides.clone()) }
            })
            .collect();
        let outs = self.outs.iter().map(|v| {
            let v = v.as_ref()?;
            let (at, shape) = part(v);
            // SAFETY: each result is a separate dense value, of which this task writes rows that no
            // other thread accesses (caller contract).
            Some(unsafe { RowOutput::from_raw(v.dtype, at, shape, v.strides.clone()) })
        });
        row_kernel::run_kernel(self.kernel.as_ref(), &ins, RowOutputs::new(outs));
    }
}
