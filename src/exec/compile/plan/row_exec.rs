//! Executes fused rows: a batch at a time, with intermediate values in per-worker scratch buffers.

use crate::core::util::small_sort;
use crate::exec::compile::codegen::interpreter::{self, Scratch};
use crate::exec::compile::task_kernel::{KernelTask, SlotAccess, TaskKernel};
use crate::exec::{
    compile::codegen::tile_program::TileProgram, compile::gather_scatter::GatherScatterKernel,
    compile::index::MAX_LOOPS, compile::matmul::MatmulKernel, compile::reduction::ReductionKernel,
    compile::row_program::RowProgram,
};
use crate::kernels::AddCursor;
use crate::partition::fusion::RowDims;

/// A stage of a fused node.
#[derive(Clone, Debug)]
pub(super) enum FusedStage {
    /// An elementwise tile program.
    Tiles(Box<TileProgram>),
    /// A reduction.
    Reduction(Box<ReductionKernel>),
    /// A gather of rows, which is the first stage.
    Gather(Box<GatherScatterKernel>),
    /// The last stage; its initial value is written before the first batch.
    Scatter(Box<GatherScatterKernel>),
}

impl FusedStage {
    /// Calls `visit` with the slots that the stage accesses.
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        match self {
            FusedStage::Tiles(t) => t.visit_accesses(visit),
            FusedStage::Reduction(f) => f.visit_accesses(visit),
            FusedStage::Gather(k) | FusedStage::Scatter(k) => k.visit_accesses(visit),
        }
    }
    /// Returns true if the stage uses the slot.
    fn uses(&self, slot: u32) -> bool {
        // (gathered or scattered rows have separate buffers)
        let mut found = matches!(self, FusedStage::Gather(_) | FusedStage::Scatter(_));
        self.visit_accesses(&mut |a| found |= a.slot == slot);
        found
    }
}

/// A value of which only some rows are in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScratchBuffer {
    /// The slot.
    pub(super) slot: u32,
    /// The size of the buffer, in bytes.
    pub(super) bytes: i64,
    /// The bytes from one row to the next; 0 if the row program advances its rows.
    pub(super) row_stride: i64,
    /// True if a matmul computes it before the stages, and true if one reads it after them.
    pub(super) used_by_matmuls: [bool; 2],
    /// The offset in scratch, in bytes.
    pub(super) offset: usize,
}

/// Assigns offsets to scratch buffers, and returns the size of all, in bytes.
/// A buffer that no later stage uses is given to a later value of the same size; without `alike`,
/// also to a smaller one. Stages with equal `stage` run together: there, a value only gets the
/// buffer of a value that it may overwrite element by element, as decided by `over`.
pub(super) fn pack_scratch(
    values: &mut [ScratchBuffer],
    stages: &[FusedStage],
    alike: bool,
    stage: impl Fn(usize) -> usize,
    over: impl Fn(u32, u32) -> bool,
) -> usize {
    let span = |s: &ScratchBuffer| {
        let uses = |p: &FusedStage| p.uses(s.slot);
        let first = stages.iter().position(uses).filter(|_| !s.used_by_matmuls[0]).unwrap_or(0);
        let last = stages.iter().rposition(uses).filter(|_| !s.used_by_matmuls[1]).unwrap_or(stages.len());
        if alike { (first, last) } else { (stage(first), stage(last)) }
    };
    let spans: Vec<(usize, usize)> = values.iter().map(span).collect();
    let mut end = 0;
    // each buffer's offset, size, last stage, and slot
    let mut scratch_slots: Vec<(usize, usize, usize, u32)> = Vec::new();
    let mut order: Vec<usize> = (0..values.len()).collect();
    small_sort::sort_by_key(&mut order, |v| spans[*v].0);
    for v in order {
        let (need, (first, last)) = ((values[v].bytes as usize).next_multiple_of(64), spans[v]);
        let slot = values[v].slot;
        let fits = |r: &&mut (usize, usize, usize, u32)| {
            let same = r.1 == need;
            r.2 < first && (same || !alike && r.1 > need) || r.2 == first && same && !alike && over(r.3, slot)
        };
        let free = scratch_slots.iter_mut().filter(fits).min_by_key(|r| r.1);
        values[v].offset = match free {
            Some(room) => {
                (room.2, room.3) = (last, slot);
                room.0
            }
            None => {
                scratch_slots.push((end, need, last, slot));
                end += need;
                end - need
            }
        };
    }
    end
}

/// Matmuls that run on the rows of a chain, with their row dimensions.
pub(super) type MatmulStages = Vec<(Box<MatmulKernel>, RowDims)>;

/// A chain of stages that runs on some rows, then on the next ones.
#[derive(Clone, Debug)]
pub(crate) struct RowFusionKernel {
    /// The number of rows.
    pub(super) num_rows: i64,
    /// The number of rows of a batch.
    pub(super) batch_rows: i64,
    /// The stages, in order.
    pub(super) stages: Vec<FusedStage>,
    /// The matmuls that run before the stages, on the same rows.
    pub(super) before: MatmulStages,
    /// The matmuls that run after the stages.
    pub(super) after: MatmulStages,
    /// The values of which only a batch of rows is in memory.
    pub(super) scratch: Vec<ScratchBuffer>,
    /// The size of all scratch buffers, in bytes.
    pub(super) scratch_bytes: usize,
    /// The row program that runs the stages, if there is one.
    pub(super) row_program: Option<RowProgram>,
    /// True if rows run in the order in which the last stage, a scatter, sorts its updates.
    ///
    /// Each task then computes the updates of the result rows that it owns.
    pub(super) sorts_updates: bool,
    /// The number of tasks.
    pub(super) num_tasks: i64,
    /// The approximate cost, in microseconds.
    pub(super) cost_us: f64,
}

impl TaskKernel for RowFusionKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        let mut outside = |a: SlotAccess| {
            if self.scratch.iter().all(|s| s.slot != a.slot) {
                visit(a);
            }
        };
        self.stages.iter().for_each(|s| s.visit_accesses(&mut outside));
        self.before.iter().chain(&self.after).for_each(|(k, _)| k.visit_accesses(&mut outside));
    }
    fn num_tasks(&self) -> i64 {
        self.num_tasks
    }
    fn cost_us(&self) -> f64 {
        self.cost_us
    }
    fn limit_tasks(&mut self, most: i64) {
        self.num_tasks = self.max_tasks().min(most);
    }
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], scratch: &mut Scratch) {
        if let (true, Some(FusedStage::Scatter(p))) = (self.sorts_updates, self.stages.last()) {
            // SAFETY: the values that this task accesses are valid (caller contract), and
            // `task_rows` gives the result rows of this task only.
            return unsafe { self.run_sorted(p, p.task_rows(task), memory, scratch) };
        }
        let (each, units) = (self.rows_per_unit(), task.share_of(self.num_units()));
        // SAFETY: the caller upholds the contract for these rows.
        unsafe { self.run_rows(units.start * each, (units.end * each).min(self.num_rows), memory, scratch) }
    }
}

impl RowFusionKernel {
    /// Returns the maximum number of tasks.
    pub(super) fn max_tasks(&self) -> i64 {
        match self.stages.last() {
            Some(FusedStage::Scatter(p)) if self.sorts_updates => p.num_tasks(),
            // the rows that a scatter updates belong to one task
            Some(FusedStage::Scatter(_)) => 1,
            _ => self.num_units(),
        }
    }
    /// Returns the number of rows of a unit; every task has a whole number of units.
    fn rows_per_unit(&self) -> i64 {
        if self.before.is_empty() && self.after.is_empty() { 1 } else { self.batch_rows }
    }
    /// Returns the number of units of rows.
    fn num_units(&self) -> i64 {
        (self.num_rows + self.rows_per_unit() - 1) / self.rows_per_unit()
    }
    /// Runs all stages on rows `a..end`, a batch at a time.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for these rows; this sets the entries of the
    /// scratch slots.
    unsafe fn run_rows(&self, mut a: i64, end: i64, base: &mut [*mut u8], scratch: &mut Scratch) {
        let scratch_base = scratch.reserve_buffers(self.scratch_bytes);
        // SAFETY: the caller upholds the contract for these rows, and the stages access only these
        // rows of the chain. `place_scratch` sets scratch buffers that have space for a batch. A
        // scatter is a single task, which writes its initial value.
        unsafe {
            if let Some(FusedStage::Scatter(p)) = self.stages.last() {
                p.write_init(base);
            }
            while a < end {
                let b = (a + self.batch_rows).min(end);
                self.place_scratch(a, scratch_base, base);
                for (k, along) in &self.before {
                    k.run_rows(along, (a, b), base, scratch);
                }
                match &self.row_program {
                    Some(program) => program.run(a, b, base, scratch),
                    None => self.stages.iter().for_each(|s| self.run_stage(s, (a, b), base, scratch)),
                }
                for (k, along) in &self.after {
                    k.run_rows(along, (a, b), base, scratch);
                }
                a = b;
            }
        }
    }
    /// Sets the addresses of scratch buffers, whose first row is row `a`.
    fn place_scratch(&self, a: i64, scratch: *mut u8, base: &mut [*mut u8]) {
        for s in &self.scratch {
            base[s.slot as usize] =
                scratch.wrapping_add(s.offset).wrapping_offset((-a * s.row_stride) as isize);
        }
    }
    /// Runs rows of a stage.
    ///
    /// # Safety
    /// The contract of `run` holds for these rows.
    unsafe fn run_stage(
        &self,
        part: &FusedStage,
        (a, b): (i64, i64),
        base: &mut [*mut u8],
        scratch: &mut Scratch,
    ) {
        // SAFETY: the caller upholds the contract for these rows.
        unsafe {
            match part {
                FusedStage::Tiles(t) => {
                    let (mut lo, mut hi, each) = ([0; MAX_LOOPS], t.ext, t.ext[0] / self.num_rows);
                    (lo[0], hi[0]) = (a * each, b * each);
                    interpreter::run(t, base, &lo, &hi, scratch);
                }
                FusedStage::Reduction(f) => {
                    let each = f.input.ext[0] / self.num_rows;
                    f.run_rows(a * each, b * each, base, scratch);
                }
                FusedStage::Gather(t) => t.run_rows((a, b), base),
                FusedStage::Scatter(p) => p.scatter_updates((a, b), base),
            }
        }
    }
    /// Computes the updates of these rows of the result, in the order of the result.
    ///
    /// # Safety
    /// The contract of `run` holds.
    unsafe fn run_sorted(
        &self,
        p: &GatherScatterKernel,
        rows: (i64, i64),
        base: &mut [*mut u8],
        scratch: &mut Scratch,
    ) {
        // SAFETY: the caller upholds the contract. The memory was reserved for sorting, is
        // initialized (`reserve_buffers`), and belongs to this worker. The stages access only these
        // rows of the chain; the gather reads only the permuted indices of a batch, for which
        // scratch has space at `numbers`. `puts` points to the updates of the batch.
        unsafe {
            let n = p.max_updates(rows, base);
            // the indices of a batch, and then the order of updates, come after the scratch buffers
            let numbers = self.scratch_bytes;
            let order = numbers + self.batch_rows as usize * size_of::<u32>();
            let scratch_base =
                scratch.reserve_buffers(order + GatherScatterKernel::sort_scratch_bytes(rows, n));
            let order = p.sort_updates(rows, n, base, scratch_base.wrapping_add(order));
            let (n, mut a, mut at) = (order.updates.len(), 0, AddCursor::default());
            loop {
                let b = (a + self.batch_rows as usize).min(n);
                let turn = (a as i64, b as i64);
                self.place_scratch(turn.0, scratch_base, base);
                let puts = base[p.source_slot() as usize].wrapping_add(a * p.row_bytes());
                for part in self.stages.iter().filter(|_| a < b) {
                    match part {
                        FusedStage::Gather(t) => {
                            let numbers = scratch_base.wrapping_add(numbers);
                            t.gather_permuted(turn, &order.updates[a..b], numbers, base);
                        }
                        FusedStage::Scatter(_) => {}
                        _ => self.run_stage(part, turn, base, scratch),
                    }
                }
                at = p.add_sorted(&order, at, a..b, Some(puts), base);
                a = b;
                if a == n {
                    return;
                }
            }
        }
    }
}
