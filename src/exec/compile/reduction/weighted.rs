//! Reductions that add products of rows in memory, such as depthwise convolutions.

use super::ReductionKernel;
use crate::core::Reducer;
use crate::exec::compile::codegen::interpreter::{self, Scratch};
use crate::exec::compile::codegen::values::MemAccess;
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::ir::program::{ScalarArg, ScalarOp};
use crate::kernels::cpu;
use crate::kernels::weighted_rows::{WeightedRowsKernel, weighted_rows};
use std::ops::Range;

/// The rows of a sum of products, and the kernel that adds them.
#[derive(Clone, Debug)]
pub(super) struct WeightedRows {
    /// The rows, and their factors.
    operands: [MemAccess; 2],
    kernel: WeightedRowsKernel,
}

impl ReductionKernel {
    /// Returns the kernel for sums of products of rows, if it applies.
    ///
    /// Each result must be one unit of one shard, whose order is that of the kernel.
    pub(super) fn choose_weighted_rows(&self, g: &FusionPlan<'_, '_>, group: usize) -> Option<WeightedRows> {
        let FusionRoot::Reduction(k) = g.groups[group].root else { return None };
        let (code, last) = (&g.reduction_op(k).code, self.input.rank - 1);
        let plain = matches!(&code.insts[..], [i] if i.op == ScalarOp::Mul
            && matches!(i.args[..], [ScalarArg::Access(p), ScalarArg::Access(q)] if p != q));
        let alone = g.groups[group].members.is_empty() && self.reducer.0 == Reducer::Add;
        let one_unit = matches!(&self.partials[..], [c] if matches!(&c[..], [r] if self.num_units(r) == 1));
        let ([b], true) = (&self.input.boxes[..], plain && alone && one_unit && !self.reduces_innermost)
        else {
            return None;
        };
        let [segment] = &b.segments[..] else { return None };
        let [x, w] = &segment.mems[..] else { return None };
        let is_row = |m: &MemAccess| m.strides[last] == self.element_bytes;
        let (x, w) = if is_row(x) { (x, w) } else { (w, x) };
        let equal = w.strides[last] == 0;
        if !is_row(x) || !equal && !is_row(w) {
            return None;
        }
        let kernel = weighted_rows(self.reducer.1, equal, cpu::level())?;
        Some(WeightedRows { operands: [*x, *w], kernel })
    }
    /// Computes a range of tiles of the result from products of rows.
    ///
    /// # Safety
    /// The contract of `TaskKernel::run` holds for these tiles.
    pub(super) unsafe fn sum_weighted_rows(
        &self,
        rows: &WeightedRows,
        tiles: Range<i64>,
        base: &[*mut u8],
        s: &mut Scratch,
    ) {
        let (last, shard) = (self.input.rank - 1, &self.partials[0][0]);
        let in_place = self.out_strides[last] == self.element_bytes;
        let mut terms = Vec::new();
        for k in 0..self.num_reduced(shard) {
            let mut x = [0; _];
            self.set_reduced_index(&mut x, (&shard.0, &shard.1), k, last);
            let offset = |m: &MemAccess| (0..last).map(|d| x[d] * m.strides[d]).sum::<i64>() as isize;
            terms.push(rows.operands.each_ref().map(offset));
        }
        // tiles that follow one another along the innermost kept dimension before the last
        let along = (0..last).rev().find(|d| !self.reduced[*d]).filter(|_| self.num_columns == 1);
        let mut tile = tiles.start;
        while tile < tiles.end {
            let (_, x, n, dst) = self.locate_tile(tile, base);
            let [a, b] = rows.operands.each_ref().map(|m| interpreter::address(m, base, &x, self.input.rank));
            let count = along.map_or(1, |d| (self.input.ext[d] - x[d]).min(tiles.end - tile));
            let steps = along.map_or([0; 3], |d| {
                [rows.operands[0].strides[d], rows.operands[1].strides[d], self.out_strides[d]]
            });
            for k in 0..count {
                let [a, b, dst] = [(a, 0), (b, 1), (dst, 2)]
                    .map(|(p, i): (*mut u8, usize)| p.wrapping_offset((k * steps[i]) as isize));
                let to = if in_place { dst } else { s.accumulator(0) };
                // SAFETY: rows and factors are in memory for all terms, and so is the tile of the
                // result (caller contract); a tile fits an accumulator (`ACCUMULATOR_BYTES`).
                unsafe {
                    (rows.kernel)(n as usize, to, a, b, &terms);
                    if !in_place {
                        self.store_tile(to, dst, n);
                    }
                }
            }
            tile += count;
        }
    }
}
