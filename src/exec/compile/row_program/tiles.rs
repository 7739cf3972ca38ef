//! Tile-level fusion in a row program: stages that run together, tile by tile.
//!
//! A stage reads a tile immediately after an earlier stage has computed it. So a value that only
//! these stages use needs scratch for one tile instead of one row. If products are only summed, the
//! summing stage multiplies the factors itself, and the products are not stored. Each stage
//! computes what it would compute alone, and reductions keep their order of addition, so no bit
//! changes.

use super::{MemOperand, RowProgram, RowReduction, RowStage};
use crate::core::DType;
use crate::exec::compile::codegen::interpreter::{self, ACCUMULATOR_BYTES, MergeStack};
use crate::exec::compile::codegen::tile_program::{Instruction, TileSegment, TileStep};
use crate::exec::compile::codegen::values::POSITION_SLOT;
use crate::ir::program::{Reducer, ScalarOp};
use crate::kernels::{self, BroadcastOp, FoldInput, SliceKernel};
use std::ops::Range;

/// The maximum number of stages that run together.
const MAX_STAGES: usize = 8;

/// Returns true if the elements of an operand are contiguous.
fn is_contiguous(x: &MemOperand) -> bool {
    x.element_stride == i64::from(x.element_bytes)
}

impl RowStage {
    /// Returns the number of operands.
    fn num_operands(&self) -> usize {
        self.registers.len() + self.mems.len()
    }
    /// Returns how often tile code writes, and how often it reads, an operand in memory.
    fn access_counts(&self, index: usize) -> (usize, usize) {
        let at = (self.registers.len() + index) as u16;
        let (mut writes, mut reads) = (0, 0);
        for mut step in self.tile_code.iter().cloned() {
            let mut all = step.operands();
            writes += usize::from(all.next().is_some_and(|d| *d == at));
            reads += usize::from(all.any(|s| *s == at));
        }
        (writes, reads)
    }
    /// Returns true if this operand is the result of the stage's reduction.
    fn is_reduction_result(&self, index: usize) -> bool {
        self.reduction.is_some() && index + 1 == self.mems.len()
    }
    /// Returns true if the stage writes this operand.
    fn writes(&self, index: usize) -> bool {
        self.is_reduction_result(index) || self.access_counts(index).0 > 0
    }
    /// Returns true if the stage only reduces a value in memory.
    fn only_reduces(&self) -> bool {
        let plain = |i: &Instruction, f: &RowReduction| {
            i.srcs == [0; 3]
                && kernels::fold_row(FoldInput::Elements, f.reducer.0, f.reducer.1)
                    .is_some_and(|f| is_same_kernel(f, i.kernel))
        };
        let all = self
            .reduction
            .as_ref()
            .is_some_and(|(f, _)| self.fused_reduction.as_ref().is_none_or(|i| plain(i, f)));
        all && self.tile_code.is_empty() && self.registers.is_empty()
    }
}

/// Returns true if stage `q` may run together with the stages before it.
fn can_join(stage: &[RowStage], q: &RowStage) -> bool {
    let alike =
        |p: &RowStage| p.row_len == q.row_len && p.tile_elements == q.tile_elements && p.row_code.is_empty();
    if stage.len() == MAX_STAGES || q.row_len == 1 || !q.row_code.is_empty() || !stage.iter().all(alike) {
        return false;
    }
    let mut reads = false;
    for (j, x) in q.mems.iter().enumerate().filter(|(_, x)| x.slot != POSITION_SLOT) {
        for (p, k, y) in stage.iter().flat_map(|p| p.mems.iter().enumerate().map(move |(k, y)| (p, k, y))) {
            if x.slot != y.slot {
                continue;
            }
            if p.writes(k) {
                // elements must be read where they were written, and sums only after they are
                // complete
                if p.is_reduction_result(k) || q.writes(j) || x != y || !is_contiguous(x) {
                    return false;
                }
                reads = true;
            } else if q.writes(j) {
                return false;
            }
        }
        // a result may be stored over an argument: all operands must then advance in the same way
        let result = !x.in_scratch && x.row_stride != 0 && q.writes(j) && !q.is_reduction_result(j);
        let beside = |y: &MemOperand| {
            y.in_scratch
                || y.row_stride == 0
                || (y.offset, y.row_stride, y.element_stride) == (x.offset, x.row_stride, x.element_stride)
        };
        let line = kernels::CACHE_LINE_BYTES as i64;
        if result
            && (x.row_stride % line != 0
                || x.offset % line != 0
                || !stage.iter().chain([q]).all(|p| p.mems.iter().all(beside)))
        {
            return false;
        }
    }
    reads
}

impl RowReduction {
    /// Returns an instruction that computes and reduces the last value in one loop, if it exists.
    ///
    /// It replaces the last instruction of `code`, or reads the value from memory. The flag is true
    /// if the instruction takes rows of any length.
    pub(super) fn fuse_last_instruction(
        &self,
        s: &TileSegment,
        regs: u16,
        places: &[MemOperand],
        code: &mut Vec<TileStep>,
    ) -> (Option<Instruction>, bool) {
        let of = |what: FoldInput| kernels::fold_row(what, self.reducer.0, self.reducer.1);
        // in memory, with one element per index
        let there = |x: u16| {
            let place = usize::from(x).checked_sub(usize::from(regs)).and_then(|x| places.get(x));
            place.is_some_and(|x| x.element_stride == i64::from(x.element_bytes))
        };
        let (one, reads) = match (s.fusible_reduction.and_then(of), code.last()) {
            (Some(f), Some(TileStep::Instr(i))) => {
                let one = Instruction { kernel: f, ..*i };
                code.pop();
                (
                    one,
                    there(one.srcs[0])
                        && (s.fusible_reduction != Some(FoldInput::Products) || there(one.srcs[1])),
                )
            }
            _ => {
                let (Some(f), true) = (of(FoldInput::Elements), there(s.result)) else {
                    return (None, false);
                };
                (Instruction { kernel: f, dst: s.result, srcs: [s.result; 3], consts: [0.0; 4] }, true)
            }
        };
        (Some(one), reads && code.is_empty() && self.unit_elements == kernels::UNIT_ELEMENTS as i64)
    }
}

impl RowProgram {
    /// Finds the stages that run together.
    pub(super) fn group_stages(&mut self) {
        self.tile_groups.clear();
        let mut first = 0;
        for k in 1..=self.row_stages.len() {
            if k == self.row_stages.len() || !can_join(&self.row_stages[first..k], &self.row_stages[k]) {
                self.tile_groups.push(first..k);
                first = k;
            }
        }
        for stage in self.tile_groups.clone().into_iter().filter(|s| s.len() > 1) {
            self.shrink_to_tile(&stage);
            for f in stage.clone() {
                self.fuse_producer(&stage, f);
            }
            for f in stage.skip(1) {
                self.fuse_squares(f);
            }
        }
    }
    /// Returns the number of the range that a stage is in.
    pub(crate) fn tile_group_of(&self, part: usize) -> usize {
        self.tile_groups.iter().position(|s| s.contains(&part)).unwrap_or(part)
    }
    /// Returns true if value `is` may be stored over value `was`, element by element.
    /// The stage that first writes `is` must be the last to read `was`, and no instruction of it
    /// may read `was` once `is` has been written.
    pub(crate) fn can_replace(&self, was: u32, is: u32) -> bool {
        let place = |p: &RowStage, slot: u32| {
            let mut all = p.mems.iter().enumerate().filter(|(_, x)| x.slot == slot);
            all.next().filter(|_| all.next().is_none()).map(|(k, x)| (k, *x))
        };
        let has = |p: &RowStage, slot: u32| p.mems.iter().any(|x| x.slot == slot);
        let Some(by) = self.row_stages.iter().position(|p| has(p, is)) else { return false };
        let p = &self.row_stages[by];
        let (Some((a, x)), Some((b, y))) = (place(p, was), place(p, is)) else { return false };
        let own = p.registers.len();
        let (a, b) = ((own + a) as u16, (own + b) as u16);
        let mut made = false;
        for mut step in p.tile_code.iter().cloned() {
            let mut all = step.operands();
            made |= all.next().is_some_and(|d| *d == b);
            if made && all.any(|s| *s == a) {
                return false;
            }
        }
        let alike = (x.offset, x.row_stride, x.element_stride, x.element_bytes)
            == (y.offset, y.row_stride, y.element_stride, y.element_bytes);
        made && alike && p.fused_reduction.is_none() && !self.row_stages[by + 1..].iter().any(|p| has(p, was))
    }
    /// Returns true if no stage outside this range uses the slot.
    fn is_used_only_in(&self, stage: &Range<usize>, slot: u32) -> bool {
        let has = |p: &RowStage| p.mems.iter().any(|x| x.slot == slot);
        !self.row_stages.iter().enumerate().any(|(k, p)| !stage.contains(&k) && has(p))
    }
    /// Reduces the scratch of values that only this range of stages uses to one tile.
    fn shrink_to_tile(&mut self, stage: &Range<usize>) {
        let made = self.row_stages[stage.clone()].iter().flat_map(|p| {
            let is_scratch = |(k, x): &(usize, &MemOperand)| {
                x.slot != POSITION_SLOT && x.in_scratch && p.access_counts(*k).0 > 0
            };
            p.mems.iter().enumerate().filter(is_scratch).map(|(_, x)| x.slot)
        });
        for slot in made.filter(|s| self.is_used_only_in(stage, *s)).collect::<Vec<u32>>() {
            for x in self.row_stages[stage.clone()].iter_mut().flat_map(|p| &mut p.mems) {
                if x.slot == slot {
                    x.element_stride = 0;
                }
            }
        }
    }
    /// Fuses a reduction with the instruction that computes its operand, a product or a multiple.
    ///
    /// That instruction must be in the previous stage, and no other stage may read the operand.
    fn fuse_producer(&mut self, stage: &Range<usize>, f: usize) {
        let fold = &self.row_stages[f];
        let row =
            |f: (RowReduction, u16)| kernels::fold_row(FoldInput::Products, f.0.reducer.0, f.0.reducer.1);
        let (Some(products), Some(made)) = (fold.reduction.and_then(row), fold.mems.first()) else { return };
        // (a stage that only reduces writes no registers)
        let folds = |p: &RowStage| p.reduction.is_some() && p.tile_code.is_empty();
        let Some(by) = (stage.start..f).rev().find(|k| !folds(&self.row_stages[*k])) else { return };
        let p = &self.row_stages[by];
        let own = p.registers.len();
        let Some(k) = p.mems.iter().position(|x| x.slot == made.slot) else { return };
        let readers =
            self.row_stages[stage.clone()].iter().flat_map(|p| &p.mems).filter(|x| x.slot == made.slot);
        if !fold.only_reduces()
            || made.element_stride != 0
            || !made.in_scratch
            || readers.count() != 2
            || p.access_counts(k) != (1, 0)
        {
            return;
        }
        let to = (own + k) as u16;
        let makes = |step: &TileStep| step.clone().operands().next().is_some_and(|d| *d == to);
        let Some(at) = p.tile_code.iter().position(makes) else { return };
        let TileStep::Instr(i) = &p.tile_code[at] else { return };
        let mul = kernels::select(ScalarOp::Mul, DType::F32, DType::F32);
        let lin = kernels::scaled_sum(DType::F32, 1);
        let nothing = (-0.0f64).to_bits();
        let (of, two) = match kernels::fold_scaled(Reducer::Add, DType::F32) {
            _ if mul.is_some_and(|f| is_same_kernel(f, i.kernel)) => (products, [i.srcs[0], i.srcs[1]]),
            Some(f)
                if i.consts[1].to_bits() == nothing && lin.is_some_and(|f| is_same_kernel(f, i.kernel)) =>
            {
                (f, [i.srcs[0]; 2])
            }
            _ => return,
        };
        let kept = |step: &TileStep| step.clone().operands().next().is_none_or(|d| !two.contains(d));
        if !p.tile_code[at + 1..].iter().all(kept) {
            return;
        }
        let k = i.consts;
        let (mut registers, mut places) = (Vec::new(), Vec::new());
        for x in two.map(usize::from) {
            if x < own {
                registers.push(p.registers[x]);
            } else {
                places.push(p.mems[x - own]);
            }
        }
        let mut next = [0, registers.len() as u16];
        let [x, y] = two.map(|x| {
            let n = &mut next[usize::from(usize::from(x) >= own)];
            *n += 1;
            *n - 1
        });
        self.row_stages[by].tile_code.remove(at);
        let fold = &mut self.row_stages[f];
        places.extend(fold.mems.last().copied());
        (fold.registers, fold.mems) = (registers, places);
        fold.fused_reduction = Some(Instruction { kernel: of, dst: 0, srcs: [x, y, x], consts: k });
    }
    /// Fuses a reduction of squares with the instruction that computes the values to square.
    ///
    /// These values must be a row minus a row scalar, and the last result of the previous stage.
    fn fuse_squares(&mut self, f: usize) {
        let (before, rest) = self.row_stages.split_at_mut(f);
        let (Some(p), Some(fold)) = (before.last_mut(), rest.first_mut()) else { return };
        let (Some(last), Some(out)) = (fold.fused_reduction, fold.mems.last().copied()) else { return };
        let products = kernels::fold_row(FoldInput::Products, Reducer::Add, DType::F32)
            .is_some_and(|f| is_same_kernel(f, last.kernel));
        let lin = kernels::broadcast_kernel(BroadcastOp::Lin2, 2, DType::F32, false);
        let (Some(TileStep::Instr(i)), Some(made)) =
            (p.tile_code.last(), kernels::fold_squares(Reducer::Add, DType::F32))
        else {
            return;
        };
        let place = |p: &RowStage, x: u16| usize::from(x).checked_sub(p.registers.len()).map(|x| p.mems[x]);
        let (Some(a), Some(b), Some(d)) = (place(p, i.srcs[0]), place(p, i.srcs[1]), place(p, i.dst)) else {
            return;
        };
        let squares = products
            && fold.tile_code.is_empty()
            && last.srcs[..2].iter().all(|x| place(fold, *x) == Some(d));
        if p.reduction.is_some() || !squares || !lin.is_some_and(|f| is_same_kernel(f, i.kernel)) {
            return;
        }
        let last = Instruction { kernel: made, dst: 0, srcs: [0, 1, 2], consts: i.consts };
        (fold.registers, fold.mems, fold.fused_reduction) = (Vec::new(), vec![a, b, d, out], Some(last));
        p.tile_code.pop();
    }
}

/// Returns true if both are the same kernel.
fn is_same_kernel(f: SliceKernel, g: SliceKernel) -> bool {
    std::ptr::fn_addr_eq(f, g)
}

/// Runs all tiles of a row, each through all stages that run together.
///
/// # Safety
/// The contract of [`RowProgram::run`] holds for this row, whose operands are in the table `now`.
/// `sums` points to one accumulator (`ACCUMULATOR_BYTES`) for each stage.
pub(super) unsafe fn run_tiles(stages: &[RowStage], now: &mut [*mut u8], sums: *mut u8) {
    let Some(RowStage { row_len: n, tile_elements: tile, .. }) = stages.first() else { return };
    let at = |p: usize, k: usize| sums.wrapping_add(p * ACCUMULATOR_BYTES + k * kernels::CACHE_LINE_BYTES);
    let (mut left, tile) = (*n, *tile);
    let mut tree = MergeStack::new(0);
    // SAFETY: the operands are valid for the row, and each stage has an accumulator (caller
    // contract). It has space for the partial sums of 2^63 units: 64 cache lines.
    unsafe {
        loop {
            let n = left.min(tile);
            for (k, p) in stages.iter().enumerate() {
                let now = &now[p.table_start..];
                match &p.reduction {
                    Some(_) => p.reduce_tile(now, n, at(k, tree.depth)),
                    None => interpreter::execute_steps(&p.tile_code, now, n),
                }
            }
            tree.push(|a, b| merge_sums(stages, at, a, b));
            left -= n;
            if left == 0 {
                break;
            }
            for p in stages {
                p.advance(&mut now[p.table_start..p.table_start + p.num_operands()], n);
            }
        }
        tree.finish(|a, b| merge_sums(stages, at, a, b));
        for (k, p) in stages.iter().enumerate() {
            if let Some((f, _)) = &p.reduction {
                std::ptr::copy_nonoverlapping(
                    at(k, 0),
                    now[p.table_start + p.num_operands() - 1],
                    f.result_bytes,
                );
            }
        }
    }
}

/// Combines the partial sums at `b` with those at `a`, for all stages.
///
/// # Safety
/// For each stage `k` with a reduction, `at(k, a)` and `at(k, b)` point to different, initialized
/// partial sums.
#[inline(always)]
unsafe fn merge_sums(stages: &[RowStage], at: impl Fn(usize, usize) -> *mut u8, a: usize, b: usize) {
    for (k, p) in stages.iter().enumerate() {
        if let Some((f, _)) = &p.reduction {
            // SAFETY: there are partial sums at both positions (caller contract).
            unsafe { (f.combine)(1, at(k, a), at(k, a), at(k, b), at(k, b), &[0.0; 4]) }
        }
    }
}
