//! Row programs: tile programs that run one after another on each row.
//!
//! The addresses of operands advance by strides, so a row costs little more than its instructions.
//! Programs alternate on each row, so the loads, arithmetic and stores of different programs can
//! overlap.

mod tiles;

use crate::core::DType;
use crate::exec::compile::codegen::interpreter::{self, Scratch};
use crate::exec::compile::codegen::tile_program::{Instruction, REGISTER_BYTES, TileProgram, TileStep};
use crate::exec::compile::codegen::values::{MemAccess, POSITION_SLOT};
use crate::ir::program::Reducer;
use crate::kernels::{self, SliceKernel};
use std::ops::Range;

/// A reduction of each row to one element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowReduction {
    /// The kernel that reduces a unit.
    pub(crate) reduce: SliceKernel,
    /// The reducer and the element type.
    pub(crate) reducer: (Reducer, DType),
    /// The kernel that combines two results.
    pub(crate) combine: SliceKernel,
    /// The number of elements of a unit.
    pub(crate) unit_elements: i64,
    /// The slot of the results.
    pub(crate) out: u32,
    /// The bytes from the result of one row to that of the next.
    pub(crate) out_stride: i64,
    /// The size of a result, in bytes.
    pub(crate) result_bytes: usize,
}

/// A memory operand of a row program.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MemOperand {
    /// The slot.
    slot: u32,
    /// The offset at row 0, in bytes.
    offset: i64,
    /// The bytes from one row to the next.
    row_stride: i64,
    /// True if this is a scratch buffer, with space for the rows of one block only.
    in_scratch: bool,
    /// The bytes from one element to the next.
    element_stride: i64,
    /// The size of an element, in bytes.
    element_bytes: u8,
}

/// A stage of a row program: the code of a tile program, and a reduction if it has one.
#[derive(Clone, Debug)]
struct RowStage {
    /// The number of elements of a row.
    row_len: i64,
    /// True if each row is a single element, and the next one follows it in memory.
    one_element_rows: bool,
    /// The number of elements of a tile.
    tile_elements: i64,
    /// The code that runs before the first row: constants.
    constant_code: Vec<Instruction>,
    /// The code that runs once per row.
    row_code: Vec<Instruction>,
    /// The code that runs for each tile.
    tile_code: Vec<TileStep>,
    /// The register numbers of the operands in registers.
    registers: Vec<u16>,
    /// The operands in memory, after those in registers; the result of a reduction is the last.
    mems: Vec<MemOperand>,
    /// The position of its operands in the table.
    table_start: usize,
    /// True if tiles are aligned to the last operand.
    aligned: bool,
    /// The reduction, and the operand that it reduces; `None` if there is none.
    reduction: Option<(RowReduction, u16)>,
    /// The instruction that computes and reduces that operand in one loop, if there is one.
    fused_reduction: Option<Instruction>,
    /// True if that instruction takes rows of any length.
    any_length: bool,
    /// The operands in memory that are set for each row, and the bytes from row to row.
    row_advances: Vec<(u16, i64)>,
}

/// Stages that run one after another on each row.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowProgram {
    /// The stages.
    row_stages: Vec<RowStage>,
    /// The ranges of stages that run together, tile by tile.
    tile_groups: Vec<Range<usize>>,
    /// The number of registers of all stages.
    /// Stages share registers whose values are in use for one tile or one row.
    num_registers: usize,
    /// The number of operands of all stages.
    num_operands: usize,
    /// The number of rows of a block. A stage of one element per row runs once for a block.
    block_rows: i64,
    /// True if some stage stores past the caches, so that a fence must follow.
    stream: bool,
    /// The operands to prefetch one row ahead, as (slot, offset at row 0, bytes per row).
    /// These are read from large values. There are none if a row of all operands fits the cache
    /// budget, unless prefetching pays on this processor anyway.
    prefetches: Vec<(u32, i64, i64)>,
}

/// The cache budget of a row of all operands, in bytes.
const CACHE_BUDGET_BYTES: i64 = 20 << 10;
/// The maximum number of rows of a block.
const MAX_BLOCK_ROWS: i64 = 8;
/// The minimum size of a value that is prefetched, in bytes.
const MIN_PREFETCH_BYTES: i64 = 1 << 20;

/// Returns the number of elements of a row, and the number of indices of the outermost dimension
/// from one row to the next. Rows are the outer dimension, or equal runs of the only one.
fn row_shape(t: &TileProgram, rows: i64, is_reduction: bool) -> Option<(i64, i64)> {
    match t.rank {
        1 if !is_reduction && t.ext[0] % rows == 0 => Some((t.ext[0] / rows, t.ext[0] / rows)),
        1 if rows == 1 => Some((t.ext[0], 0)),
        2 if t.ext[0] == rows => Some((t.ext[1], 1)),
        _ => None,
    }
}

impl RowProgram {
    /// Adds a stage over `rows` rows; returns false if its program is not one segment of full rows.
    /// `strip` says which slots are scratch buffers.
    pub(crate) fn push_stage(
        &mut self,
        t: &TileProgram,
        rows: i64,
        fold: Option<RowReduction>,
        is_scratch: impl Fn(u32) -> bool,
    ) -> bool {
        let [b] = &t.boxes[..] else { return false };
        let [s] = &b.segments[..] else { return false };
        let last = t.rank - 1;
        let Some((n, each)) = row_shape(t, rows, fold.is_some()) else { return false };
        let is_full = s.lo == 0 && s.hi == t.ext[last] && (last == 0 || b.lo[0] == 0 && b.hi[0] == rows);
        // (registers have 16-bit numbers)
        let registers =
            self.row_stages.iter().map(|p| p.registers.len()).sum::<usize>() + usize::from(t.num_registers);
        if n == 0
            || registers > usize::from(u16::MAX)
            || !is_full
            || fold.is_some_and(|f| f.unit_elements > t.tile_elements && !s.tile_code.is_empty())
        {
            return false;
        }
        let place = |m: &MemAccess| {
            let is_scratch = m.slot != POSITION_SLOT && is_scratch(m.slot);
            MemOperand {
                slot: m.slot,
                offset: m.offset,
                row_stride: m.strides[0] * each,
                in_scratch: is_scratch,
                element_stride: m.strides[last],
                element_bytes: m.element_bytes,
            }
        };
        let mut places: Vec<MemOperand> = s.mems.iter().map(place).collect();
        let aligned =
            fold.is_none() && n > t.tile_elements && places.last().is_some_and(|p| p.slot != POSITION_SLOT);
        let constant = |i: &&Instruction| i.srcs[0] == i.dst;
        let once: Vec<Instruction> = s.row_code.iter().filter(constant).copied().collect();
        let mut registers: Vec<u16> = (0..t.num_registers).collect();
        for i in &once {
            // (operands are numbered at the end, when it is known which registers are shared)
            registers[i.dst as usize] = u16::MAX;
        }
        let mut code = s.tile_code.clone();
        let (mut last_one, mut long) = (None, false);
        if let Some(f) = &fold {
            let is_scratch = is_scratch(f.out);
            places.push(MemOperand {
                slot: f.out,
                offset: 0,
                row_stride: f.out_stride,
                in_scratch: is_scratch,
                element_stride: 0,
                element_bytes: f.result_bytes as u8,
            });
            (last_one, long) = f.fuse_last_instruction(s, t.num_registers, &places, &mut code);
        }
        self.row_stages.push(RowStage {
            row_len: n,
            one_element_rows: n == 1 && last == 0,
            tile_elements: fold.map_or(t.tile_elements, |f| f.unit_elements),
            constant_code: once,
            row_code: s.row_code.iter().filter(|i| !constant(i)).copied().collect(),
            tile_code: code,
            registers,
            mems: places,
            table_start: 0,
            aligned,
            reduction: fold.map(|f| (f, s.result)),
            fused_reduction: last_one,
            any_length: long,
            row_advances: Vec::new(),
        });
        self.stream |= t.stream;
        true
    }
    /// Completes a program over `rows` rows: numbers its operands, and chooses its blocks.
    pub(crate) fn finish(mut self, rows: i64) -> RowProgram {
        self.num_registers = self.row_stages.iter().map(|p| p.registers.len()).max().unwrap_or(0);
        for p in &mut self.row_stages {
            for r in p.registers.iter_mut().filter(|r| **r == u16::MAX) {
                *r = self.num_registers as u16;
                self.num_registers += 1;
            }
        }
        self.group_stages();
        let mut near: Vec<(u32, i64)> = Vec::new();
        for p in &self.row_stages {
            let own = p.registers.len();
            let mut code = p.tile_code.clone();
            let stored: Vec<u16> = code.iter_mut().filter_map(|c| c.operands().next().copied()).collect();
            for (k, x) in p.mems.iter().enumerate().filter(|(_, x)| x.slot != POSITION_SLOT) {
                let bytes = (p.row_len * x.element_stride).abs();
                let stored = stored.contains(&((own + k) as u16));
                match near.iter_mut().find(|n| n.0 == x.slot) {
                    Some(n) => n.1 = n.1.max(bytes),
                    None => near.push((x.slot, bytes)),
                }
                let read = !stored && !x.in_scratch && self.prefetches.iter().all(|f| f.0 != x.slot);
                if read
                    && bytes >= kernels::CACHE_LINE_BYTES as i64
                    && x.row_stride == bytes
                    && x.row_stride * rows >= MIN_PREFETCH_BYTES
                {
                    self.prefetches.push((x.slot, x.offset, x.row_stride));
                }
            }
        }
        let bytes = near.iter().map(|n| n.1).sum::<i64>();
        if bytes + (self.num_registers * REGISTER_BYTES) as i64 <= CACHE_BUDGET_BYTES
            && !kernels::prefetches_early()
        {
            self.prefetches.clear();
        }
        // A stage of one element per row waits for the stages before it, and takes as long for one
        // row as for eight, so blocks should be large. According to measurements, rows that are
        // kept in scratch buffers leave less of the cache for a block.
        let waits = |x: &MemOperand| x.in_scratch && x.row_stride >= kernels::CACHE_LINE_BYTES as i64;
        let budget = if self.row_stages.iter().flat_map(|p| &p.mems).any(waits) {
            CACHE_BUDGET_BYTES / 2
        } else {
            2 * CACHE_BUDGET_BYTES
        };
        self.block_rows = 1;
        while self.row_stages.iter().any(|p| p.one_element_rows)
            && 2 * self.block_rows * bytes <= budget
            && self.block_rows < MAX_BLOCK_ROWS
        {
            self.block_rows *= 2;
        }
        for p in &mut self.row_stages {
            // (the scratch buffer of a block of one row does not advance)
            let scratch_buffers = p.mems.iter_mut().filter(|x| x.in_scratch && self.block_rows == 1);
            scratch_buffers.for_each(|x| x.row_stride = 0);
            let moves = |(_, x): &(usize, &MemOperand)| {
                x.row_stride != 0 || x.element_stride != 0 && p.row_len > p.tile_elements
            };
            p.row_advances =
                p.mems.iter().enumerate().filter(moves).map(|(k, x)| (k as u16, x.row_stride)).collect();
            p.table_start = self.num_operands;
            self.num_operands += p.registers.len() + p.mems.len();
        }
        self
    }
    /// Returns the number of rows of a block, for which scratch buffers have space.
    pub(crate) fn rows_per_block(&self) -> i64 {
        self.block_rows
    }
    /// Sets the addresses of operands to those of row `a`, and computes constant registers.
    #[inline]
    fn fill_tables(
        &self,
        a: i64,
        base: &[*mut u8],
        registers: &[*mut u8],
        now: &mut [*mut u8],
        begins: &mut [*mut u8],
    ) {
        for p in &self.row_stages {
            let own = p.registers.len();
            for (to, r) in now[p.table_start..].iter_mut().zip(&p.registers) {
                *to = registers[*r as usize];
            }
            for (to, x) in begins[p.table_start + own..].iter_mut().zip(&p.mems) {
                let from = if x.slot == POSITION_SLOT { std::ptr::null_mut() } else { base[x.slot as usize] };
                let first = if x.in_scratch { 0 } else { a };
                *to = from.wrapping_offset((x.offset + first * x.row_stride) as isize);
            }
            let places = p.table_start + own..p.table_start + own + p.mems.len();
            now[places.clone()].copy_from_slice(&begins[places]);
            let n = p.tile_elements.min(if p.one_element_rows { self.block_rows } else { p.row_len });
            for i in &p.constant_code {
                // SAFETY: a register has space for a tile.
                unsafe { interpreter::execute_instr(i, &now[p.table_start..], n) }
            }
        }
    }
    /// Runs the stages on rows `a..b`.
    ///
    /// # Safety
    /// The contract of `interpreter::run` holds for these rows. The scratch buffers in `base` have
    /// space for a block of rows ([`RowProgram::rows_per_block`]), and only this worker uses them.
    pub(crate) unsafe fn run(&self, a: i64, b: i64, base: &[*mut u8], s: &mut Scratch) {
        s.reserve(self.num_registers, self.num_registers + self.num_operands);
        let sums = s.accumulator(0);
        let (registers, now, begins) = s.operand_tables(self.num_operands);
        self.fill_tables(a, base, registers, now, begins);
        // stages of one element per row are too short to prefetch anything
        let flat = |stage: &Range<usize>| self.row_stages[stage.start].one_element_rows;
        let askers = self.tile_groups.iter().filter(|s| !flat(s)).count();
        let mut first = a;
        while first < b {
            let rows = self.block_rows.min(b - first);
            let mut asker = 0;
            for stage in &self.tile_groups {
                let (flat, stages) = (flat(stage), &self.row_stages[stage.clone()]);
                // the number of runs of the stage, and the number of rows in each
                let (many, each) = if flat { (1, rows) } else { (rows, 1) };
                for r in first..first + many {
                    for (slot, off, row) in self.prefetches.iter().filter(|_| !flat) {
                        let next = base[*slot as usize].wrapping_offset((off + (r + rows) * row) as isize);
                        let cache_lines = *row as usize / kernels::CACHE_LINE_BYTES;
                        for line in cache_lines * asker / askers..cache_lines * (asker + 1) / askers {
                            kernels::prefetch_l2(next.wrapping_add(line * kernels::CACHE_LINE_BYTES));
                        }
                    }
                    for p in stages {
                        let own = p.table_start + p.registers.len();
                        let (now, begins) = (&mut now[own..], &mut begins[own..]);
                        for (k, row) in &p.row_advances {
                            let from = &mut begins[*k as usize];
                            now[*k as usize] = *from;
                            *from = from.wrapping_offset((each * row) as isize);
                        }
                    }
                    // SAFETY: the table has the operands of these rows, for which the caller
                    // upholds the contract. `sums` is the first of `NUM_ACCUMULATORS` accumulators,
                    // more than the stages that run together.
                    unsafe {
                        match stages {
                            [p] => {
                                let n = if flat { rows } else { p.row_len };
                                let now =
                                    &mut now[p.table_start..p.table_start + p.registers.len() + p.mems.len()];
                                for i in &p.row_code {
                                    interpreter::execute_instr(i, now, p.tile_elements.min(n));
                                }
                                p.run_row(n, now, sums);
                            }
                            _ => tiles::run_tiles(stages, now, sums),
                        }
                    }
                }
                asker += usize::from(!flat);
                for p in stages.iter().filter(|_| self.block_rows > 1) {
                    let own = p.table_start + p.registers.len();
                    for (from, x) in begins[own..].iter_mut().zip(&p.mems).filter(|(_, x)| x.in_scratch) {
                        *from = from.wrapping_offset((-rows * x.row_stride) as isize);
                    }
                }
            }
            first += rows;
        }
        if self.stream {
            kernels::fence();
        }
    }
}

impl RowStage {
    /// Runs all tiles of a row of `n` elements, whose operands are in the table.
    ///
    /// # Safety
    /// The contract of [`RowProgram::run`] holds for this row, whose operands are in the table
    /// `now`. `sums` points to an accumulator (`ACCUMULATOR_BYTES`).
    #[inline(always)]
    unsafe fn run_row(&self, n: i64, now: &mut [*mut u8], sums: *mut u8) {
        let mut left = n;
        let Some((f, _)) = &self.reduction else {
            let mut size = self.tile_elements;
            if self.aligned
                && let (Some(p), Some(to)) = (self.mems.last(), now.last())
            {
                size -= (to.addr() & 63) as i64 / i64::from(p.element_bytes);
            }
            loop {
                let n = left.min(size);
                // SAFETY: the operands of the table are valid for `n` elements (caller contract).
                unsafe { interpreter::execute_steps(&self.tile_code, now, n) }
                left -= n;
                if left == 0 {
                    return;
                }
                self.advance(now, n);
                size = self.tile_elements;
            }
        };
        let Some(dst) = now.last().copied() else { return };
        let k = [0.0; 4];
        // each partial sum has a cache line
        let at = |k: usize| sums.wrapping_add(k * kernels::CACHE_LINE_BYTES);
        // SAFETY: the operands are valid for the row, and `sums` points to an accumulator (caller
        // contract). Each partial sum takes one cache line of it; even 2^63 units need only 64
        // partial sums.
        unsafe {
            if left <= self.tile_elements || self.any_length {
                return self.reduce_tile(now, left, dst);
            }
            let merge = |a, b| (f.combine)(1, at(a), at(a), at(b), at(b), &k);
            let mut tree = interpreter::MergeStack::new(0);
            loop {
                let n = left.min(self.tile_elements);
                self.reduce_tile(now, n, at(tree.depth));
                tree.push(merge);
                left -= n;
                if left == 0 {
                    break;
                }
                self.advance(now, n);
            }
            tree.finish(merge);
            std::ptr::copy_nonoverlapping(at(0), dst, f.result_bytes);
        }
    }
    /// Runs one tile, and reduces it to the element at `to`.
    ///
    /// # Safety
    /// The contract of [`RowProgram::run`] holds for this tile of `n` elements, whose operands are
    /// in the table `now`. `to` points to space for one element of the result.
    #[inline(always)]
    unsafe fn reduce_tile(&self, now: &[*mut u8], n: i64, to: *mut u8) {
        let k = [0.0; 4];
        // SAFETY: the operands of the table are valid for `n` elements (caller contract).
        unsafe {
            interpreter::execute_steps(&self.tile_code, now, n);
            match (&self.fused_reduction, &self.reduction) {
                (Some(i), _) => {
                    let [x, y, z] = i.srcs.map(|x| now[x as usize]);
                    (i.kernel)(n as usize, to, x, y, z, &i.consts);
                }
                (None, Some((f, value))) => {
                    let x = now[*value as usize];
                    (f.reduce)(n as usize, to, x, x, x, &k);
                }
                (None, None) => {}
            }
        }
    }
    /// Advances the table's operands in memory by `n` elements.
    #[inline(always)]
    fn advance(&self, now: &mut [*mut u8], n: i64) {
        for (to, x) in now[self.registers.len()..].iter_mut().zip(&self.mems) {
            *to = to.wrapping_offset((n * x.element_stride) as isize);
        }
    }
}
