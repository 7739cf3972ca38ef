//! Execution of reductions, tile by tile.

use super::{BLOCK_ROWS, ReductionKernel};
use crate::exec::compile::codegen::interpreter::{self, ACCUMULATOR_BYTES, MergeStack, Scratch};
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::exec::compile::task_kernel::{KernelStage, KernelTask, SecondStage, SlotAccess, TaskKernel};
use crate::kernels;
use std::ops::Range;

/// The number of rows that `kernels::combine_rows` combines at a time.
const ROWS_PER_CALL: i64 = 8;

impl TaskKernel for ReductionKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        self.input.visit_accesses(visit);
        visit(SlotAccess::write(self.out));
    }
    fn num_tasks(&self) -> i64 {
        self.num_tasks
    }
    fn cost_us(&self) -> f64 {
        self.cost_us
    }
    /// Each task has at least one result. A reduction in two stages keeps its tasks. Tiles of kept
    /// indices do not change the order of addition.
    fn limit_tasks(&mut self, most: i64) {
        if self.has_second_stage() {
            return;
        }
        if !self.reduces_innermost && self.num_result_tiles() < most {
            let width = self.input.ext[self.input.rank - 1];
            let tasks = (self.num_outer * self.partials.len() as i64).max(1);
            let per = (most + tasks - 1) / tasks;
            self.tile_elements = ((width + per - 1) / per).clamp(1, self.tile_elements);
            self.num_columns = (width + self.tile_elements - 1) / self.tile_elements;
        }
        let most_tasks = match (&self.distances, &self.short) {
            (Some(distances), _) => distances.num_units(),
            (None, Some(short)) => short.num_positions(),
            (None, None) => self.num_result_tiles(),
        };
        self.num_tasks = most_tasks.clamp(1, most);
    }
    fn second_stage(&self) -> Option<SecondStage> {
        self.has_second_stage().then(|| SecondStage {
            name: "results of spans",
            num_tasks: (self.num_result_tiles() / 64).clamp(1, 64),
            cost_us: 0.5,
            scratch_bytes: self.span_bytes(),
        })
    }
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], scratch: &mut Scratch) {
        scratch.reserve(self.input.num_registers as usize, self.input.max_operands);
        // SAFETY: the caller upholds the contract for these results, and for the slot of the stage.
        unsafe {
            match task.stage {
                KernelStage::Only if let Some(distances) = &self.distances => {
                    let all = task.share_of(distances.num_units());
                    distances.run(self, (all.start, all.end), memory, scratch)
                }
                KernelStage::Only if let Some(short) = &self.short => {
                    let all = task.share_of(short.num_positions());
                    short.run(self, (all.start, all.end), memory, scratch)
                }
                KernelStage::Only => {
                    self.run_tile_range(task.share_of(self.num_result_tiles()), memory, scratch)
                }
                KernelStage::First(slot) => {
                    self.reduce_span(task.index, memory, memory[slot as usize], scratch)
                }
                KernelStage::Second(slot) => self.combine_spans(task, memory, memory[slot as usize], scratch),
            }
        }
    }
    unsafe fn run_all(&self, stage: KernelStage, memory: &mut [*mut u8], scratch: &mut Scratch) {
        // (each task of the first stage has one span)
        let count = if matches!(stage, KernelStage::First(_)) { self.num_tasks } else { 1 };
        for index in 0..count {
            // SAFETY: the caller upholds the contract for all tasks.
            unsafe { self.run(KernelTask { stage, index, count }, memory, scratch) }
        }
    }
}

impl ReductionKernel {
    /// Returns the partial, first index, number of elements and address of a tile of the result.
    pub(super) fn locate_tile(&self, task: i64, base: &[*mut u8]) -> (usize, LoopVec, i64, *mut u8) {
        let last = self.input.rank - 1;
        let (rest, column) = (task / self.num_columns, task % self.num_columns);
        let (copy, mut k) = ((rest / self.num_outer) as usize, rest % self.num_outer);
        let mut x = [0; MAX_LOOPS];
        let mut off = copy as i64 * self.partial_stride;
        for d in (0..last).rev().filter(|d| !self.reduced[*d]) {
            x[d] = k % self.input.ext[d];
            k /= self.input.ext[d];
            off += x[d] * self.out_strides[d];
        }
        let mut n = 1;
        if !self.reduces_innermost {
            x[last] = column * self.tile_elements;
            n = (self.input.ext[last] - x[last]).min(self.tile_elements);
            off += x[last] * self.out_strides[last];
        }
        (copy, x, n, base[self.out as usize].wrapping_offset(off as isize))
    }
    /// Computes the result of one span, which is one task of the first stage.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds, and `spans` points to the results of all spans.
    unsafe fn reduce_span(&self, index: i64, base: &[*mut u8], spans: *mut u8, s: &mut Scratch) {
        let (rest, span) = (index / self.num_spans, index % self.num_spans);
        let (task, rank) = (rest / self.max_shards(), rest % self.max_shards());
        let (copy, x, n, _) = self.locate_tile(task, base);
        let Some(r) = self.partials[copy].get(rank as usize) else { return };
        let (a, b) = (span * self.span_units, ((span + 1) * self.span_units).min(self.num_units(r)));
        if a >= b {
            return;
        }
        let bytes = n * self.element_bytes;
        debug_assert!(bytes <= self.span_slot_bytes(), "a span's result is larger than its slot");
        let to = spans.wrapping_offset((index * self.span_slot_bytes()) as isize);
        // SAFETY: the caller upholds the contract; `spans` has a slot for the result of each task,
        // which only this task accesses. The result is in accumulator 0.
        unsafe {
            let d = self.reduce_units(&x, n, r, a, b, base, 0, s);
            debug_assert_eq!(d, 0);
            std::ptr::copy_nonoverlapping(s.accumulator(0), to, bytes as usize);
        }
    }
    /// Computes all results at indices `a..b` of the outermost dimension.
    ///
    /// # Safety
    /// The contract of `interpreter::run` holds, and the reduction can run by rows.
    pub(crate) unsafe fn run_rows(&self, a: i64, b: i64, base: &[*mut u8], s: &mut Scratch) {
        debug_assert!(self.can_run_by_rows());
        if let Some(short) = &self.short {
            let position = |row: i64| (row * short.num_positions(), self.input.ext[0]);
            let ((a, n), (b, _)) = (position(a), position(b));
            if a % n == 0 && b % n == 0 {
                // SAFETY: the caller upholds the contract for these results.
                return unsafe { short.run(self, (a / n, b / n), base, s) };
            }
        }
        let each = self.num_result_tiles() / self.input.ext[0];
        // SAFETY: the caller upholds the contract for these results.
        unsafe { self.run_tile_range(a * each..b * each, base, s) }
    }
    /// Computes a range of tiles of the result.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for these tiles.
    unsafe fn run_tile_range(&self, tasks: Range<i64>, base: &[*mut u8], s: &mut Scratch) {
        // SAFETY: the caller upholds the contract for these tiles.
        unsafe {
            if let Some(plain) = self.row_program.as_ref() {
                return plain.run(tasks.start, tasks.end, base, s);
            }
            if let Some(rows) = &self.weighted_rows {
                return self.sum_weighted_rows(rows, tasks, base, s);
            }
            s.reserve(self.input.num_registers as usize, self.input.max_operands);
            self.reduce_tiles(tasks, base, s);
        }
    }
    /// Computes a range of tiles of the result, one by one, in one stage.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds, and scratch memory has been reserved for
    /// `input`.
    unsafe fn reduce_tiles(&self, tasks: Range<i64>, base: &[*mut u8], s: &mut Scratch) {
        for task in tasks {
            let (copy, mut x, n, dst) = self.locate_tile(task, base);
            let ranks = &self.partials[copy];
            // SAFETY: the tile of the result has `n` elements, and the caller upholds the contract
            // for its input.
            unsafe {
                if let (Some(f), Some(d)) = (self.reduce_eight_rows, self.reduced.iter().position(|r| *r)) {
                    x[d] = ranks[0].0[d];
                    let m = &self.input.boxes[0].segments[0].mems[0];
                    let step = (ranks[1].0[d] - ranks[0].0[d]) * m.strides[d];
                    f(n as usize, dst, interpreter::address(m, base, &x, self.input.rank), step as isize);
                    continue;
                }
                if ranks.is_empty() {
                    self.fill_neutral(s.accumulator(0), n);
                    self.store_tile(s.accumulator(0), dst, n);
                    continue;
                }
                if self.reduces_innermost
                    && let [r] = &ranks[..]
                    && self.num_units(r) == 1
                {
                    // a single unit needs no tree
                    let m = self.num_reduced(r);
                    let v = self.load_unit(base, &mut x, (&r.0, &r.1), 0, m, 0, s);
                    (self.reduce)(m as usize, dst, v, v, v, &[0.0; 4]);
                    continue;
                }
                let mut tree = MergeStack::new(0);
                for r in ranks {
                    let d = self.reduce_units(&x, n, r, 0, self.num_units(r), base, tree.depth, s);
                    debug_assert_eq!(d, tree.depth);
                    tree.push(|a, b| self.merge_accumulators(a, b, n, s));
                }
                tree.finish(|a, b| self.merge_accumulators(a, b, n, s));
                self.store_tile(s.accumulator(0), dst, n);
            }
        }
        if self.stream {
            kernels::fence();
        }
    }
    /// Combines the results of spans, for one task of the second stage.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds, and `spans` points to the results of all spans,
    /// which the first stage has computed.
    unsafe fn combine_spans(&self, task: KernelTask, base: &[*mut u8], spans: *mut u8, s: &mut Scratch) {
        for task in task.share_of(self.num_result_tiles()) {
            let (copy, _, n, dst) = self.locate_tile(task, base);
            // SAFETY: the first stage has filled `spans`, and the tile of the result has `n`
            // elements (caller contract).
            unsafe {
                if self.partials[copy].is_empty() {
                    self.fill_neutral(s.accumulator(0), n);
                    self.store_tile(s.accumulator(0), dst, n);
                    continue;
                }
                let mut tree = MergeStack::new(0);
                for (k, r) in self.partials[copy].iter().enumerate() {
                    let mut inner = MergeStack::new(tree.depth);
                    let units = self.num_units(r);
                    for span in 0..(units + self.span_units - 1) / self.span_units {
                        let at = ((task * self.max_shards() + k as i64) * self.num_spans + span)
                            * self.span_slot_bytes();
                        let from = spans.wrapping_offset(at as isize);
                        std::ptr::copy_nonoverlapping(
                            from,
                            s.accumulator(inner.depth),
                            (n * self.element_bytes) as usize,
                        );
                        inner.push(|a, b| self.merge_accumulators(a, b, n, s));
                    }
                    inner.finish(|a, b| self.merge_accumulators(a, b, n, s));
                    tree.push(|a, b| self.merge_accumulators(a, b, n, s));
                }
                tree.finish(|a, b| self.merge_accumulators(a, b, n, s));
                self.store_tile(s.accumulator(0), dst, n);
            }
        }
    }
    /// Sets the reduced indices of the dimensions before `dims` to the `k`-th reduced index of a
    /// shard.
    #[inline(always)]
    pub(super) fn set_reduced_index(
        &self,
        x: &mut LoopVec,
        (lo, hi): (&LoopVec, &LoopVec),
        mut k: i64,
        dims: usize,
    ) {
        for d in (0..dims).rev().filter(|d| self.reduced[*d]) {
            let e = hi[d] - lo[d];
            x[d] = lo[d] + k % e;
            k /= e;
        }
    }
    /// Returns the address of `m` consecutive elements of a shard, from element `from` on.
    ///
    /// If they are contiguous in memory or in the result register, they stay there. Otherwise they
    /// are collected in accumulator `at`.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for these elements.
    #[expect(clippy::too_many_arguments)]
    #[inline(always)]
    unsafe fn load_unit(
        &self,
        base: &[*mut u8],
        x: &mut LoopVec,
        rank: (&LoopVec, &LoopVec),
        from: i64,
        m: i64,
        at: usize,
        s: &mut Scratch,
    ) -> *mut u8 {
        let last = self.input.rank - 1;
        let row = rank.1[last] - rank.0[last];
        let most = if self.input_in_memory { m } else { self.input.tile_elements };
        self.set_reduced_index(x, rank, from, last + 1);
        // SAFETY: the elements are in the space (caller contract); a unit of at most
        // `tile_elements` elements fits an accumulator (`ACCUMULATOR_BYTES`). `run` and
        // `run_tile_range` have reserved `s` for `input`.
        unsafe {
            if from % row + m <= row && m <= most {
                return interpreter::run_tile(&self.input, base, x, m, s);
            }
            let to = s.accumulator(at);
            let mut done = 0;
            while done < m {
                self.set_reduced_index(x, rank, from + done, last + 1);
                let n = (m - done).min(row - (from + done) % row).min(most);
                let to = to.wrapping_offset((done * self.element_bytes) as isize);
                interpreter::run_tile_into(&self.input, base, x, n, self.element_bytes, to, s);
                done += n;
            }
            to
        }
    }
    /// Copies a tile of the result from an accumulator to memory.
    ///
    /// # Safety
    /// `from` points to `n` initialized elements, and `dst` to the `n` elements of the result's
    /// tile, which are writable and do not overlap those at `from`.
    pub(super) unsafe fn store_tile(&self, from: *mut u8, dst: *mut u8, n: i64) {
        let step = self.out_strides[self.input.rank - 1];
        // SAFETY: source and destination have `n` elements each, and do not overlap (caller
        // contract).
        unsafe {
            if self.reduces_innermost || n == 1 || step == self.element_bytes {
                return std::ptr::copy_nonoverlapping(from, dst, (n * self.element_bytes) as usize);
            }
            for i in 0..n {
                let (from, to) = (
                    from.wrapping_offset((i * self.element_bytes) as isize),
                    dst.wrapping_offset((i * step) as isize),
                );
                std::ptr::copy_nonoverlapping(from, to, self.element_bytes as usize);
            }
        }
    }
    /// Fills `n` elements with the neutral element.
    ///
    /// # Safety
    /// `dst` points to `n` writable elements.
    pub(super) unsafe fn fill_neutral(&self, dst: *mut u8, n: i64) {
        let k = [self.neutral[0], self.neutral[1], 0.0, 0.0];
        if let Some(f) = kernels::fill(self.element_bytes as usize) {
            // SAFETY: `dst` points to `n` writable elements (caller contract).
            unsafe { f(n as usize, dst, dst, dst, dst, &k) }
        }
    }
    /// Combines accumulator `b` into accumulator `a`.
    pub(super) fn merge_accumulators(&self, a: usize, b: usize, n: i64, s: &Scratch) {
        let (a, b) = (s.accumulator(a), s.accumulator(b));
        // SAFETY: a `MergeStack` merges different accumulators that have both been filled; their
        // `n` elements are one tile, which fits an accumulator.
        unsafe { (self.combine)(n as usize, a, a, b, b, &[0.0; 4]) }
    }
    /// Reduces units `a..b` of a shard to accumulator `depth`, for a tile of `n` results at `x`.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for these units.
    #[expect(clippy::too_many_arguments)]
    unsafe fn reduce_units(
        &self,
        x: &LoopVec,
        n: i64,
        (lo, hi): &(LoopVec, LoopVec),
        a: i64,
        b: i64,
        base: &[*mut u8],
        depth: usize,
        s: &mut Scratch,
    ) -> usize {
        let last = self.input.rank - 1;
        let mut x = *x;
        let mut tree = MergeStack::new(depth);
        if self.reduces_innermost {
            let all = self.num_reduced(&(*lo, *hi));
            for u in a..b {
                let (from, to) = (u * self.tile_elements, s.accumulator(tree.depth));
                let m = (all - from).min(self.tile_elements);
                // SAFETY: the unit is in the shard (caller contract); `to` is an accumulator of
                // `Scratch`, which has `ACCUMULATOR_BYTES`, and the result is one element.
                unsafe {
                    let v = self.load_unit(base, &mut x, (lo, hi), from, m, tree.depth + 1, s);
                    (self.reduce)(m as usize, to, v, v, v, &[0.0; 4]);
                }
                tree.push(|a, b| self.merge_accumulators(a, b, 1, s));
            }
            tree.finish(|a, b| self.merge_accumulators(a, b, 1, s));
            return depth;
        }
        let rows: i64 = (0..last).filter(|d| self.reduced[*d]).map(|d| hi[d] - lo[d]).product();
        let inner = (0..last).rev().find(|d| self.reduced[*d]);
        for u in a..b {
            let (mut r, end) = (u * BLOCK_ROWS, ((u + 1) * BLOCK_ROWS).min(rows));
            let to = s.accumulator(tree.depth);
            // SAFETY: the rows are in the shard (caller contract); a tile of `n` elements fits an
            // accumulator of `Scratch` (`ACCUMULATOR_BYTES`).
            unsafe {
                self.fill_neutral(to, n);
                while r < end {
                    self.set_reduced_index(&mut x, (lo, hi), r, last);
                    if let (true, Some(d)) = (self.input_in_memory, inner) {
                        // rows at equal distances in memory, in multiples of the number of rows
                        // that are combined at a time
                        let run = (hi[d] - x[d]).min(end - r);
                        let run = if r + run == end { run } else { run / ROWS_PER_CALL * ROWS_PER_CALL };
                        if run > 0 {
                            let v = interpreter::run_tile(&self.input, base, &x, n, s);
                            let step = self.input.boxes[0].segments[0].mems[0].strides[d];
                            (self.reduce_rows)(n as usize, to, v, run as usize, step as isize);
                            r += run;
                            continue;
                        }
                    }
                    let now = (end - r).min(ROWS_PER_CALL);
                    for k in 0..now {
                        self.set_reduced_index(&mut x, (lo, hi), r + k, last);
                        let row = s.accumulator(tree.depth + 1 + k as usize);
                        interpreter::run_tile_into(&self.input, base, &x, n, self.element_bytes, row, s);
                    }
                    let rows = s.accumulator(tree.depth + 1);
                    (self.reduce_rows)(n as usize, to, rows, now as usize, ACCUMULATOR_BYTES as isize);
                    r += now;
                }
            }
            tree.push(|a, b| self.merge_accumulators(a, b, n, s));
        }
        tree.finish(|a, b| self.merge_accumulators(a, b, n, s));
        depth
    }
}
