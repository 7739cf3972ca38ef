//! Runs matmuls a batch of rows at a time, for values whose rows stay in cache (row fusion).

use super::{ContractionBlock, MatmulKernel, MatrixOperand};
use crate::exec::compile::codegen::interpreter::Scratch;
use crate::exec::compile::codegen::values::{MemAccess, POSITION_SLOT};
use crate::exec::compile::index::MAX_LOOPS;
#[cfg(doc)]
use crate::exec::compile::task_kernel::TaskKernel;
use crate::kernels::gemm::ProductKind;
use crate::partition::fusion::policy::rows_dominate;
use smallvec::SmallVec;

/// The dimensions of a matmul's result that enumerate the rows of a value, outermost first.
#[derive(Clone, Debug)]
pub(crate) struct RowDims {
    /// The dimensions.
    dims: SmallVec<[usize; 4]>,
}

impl MatmulKernel {
    /// Returns the row dimensions if the matmul computes the value in this slot row by row.
    ///
    /// The value has `rows` rows of `row` elements. All other values of the matmul must have the
    /// same rows; `made` returns the size of a row of a slot, in bytes.
    pub(crate) fn produces_rows(
        &self,
        slot: u32,
        (rows, row): (i64, i64),
        made: impl Fn(u32) -> Option<i64>,
    ) -> Option<RowDims> {
        let terms: i64 = self.partials.iter().flatten().map(num_terms).sum();
        let along = (self.c.slot == slot && rows_dominate(row, terms))
            .then(|| self.row_dims(&self.c, rows, row, &[]))??;
        let number = |d: usize| if along.dims.contains(&d) { self.c.strides[d] / row } else { 0 };
        let local = |m: &MemAccess| {
            let Some(bytes) = made(m.slot).filter(|_| m.slot != POSITION_SLOT) else { return true };
            let inside = |d: &usize| !along.dims.contains(d);
            let last = |d: usize| m.strides[d] * (self.ext[d] - 1);
            let high: i64 = (0..self.rank).filter(inside).map(last).sum();
            let forward = (0..self.rank).all(|d| m.strides[d] >= 0) && m.offset >= 0;
            forward
                && along.dims.iter().all(|d| m.strides[*d] == number(*d) * bytes)
                && m.offset + high + i64::from(m.element_bytes) <= bytes
        };
        self.epilogue_accesses().all(local).then_some(along)
    }
    /// Returns the row dimensions if exactly one operand reads the value in this slot, row by row.
    pub(crate) fn consumes_rows(&self, slot: u32, rows: i64, row: i64) -> Option<RowDims> {
        let blocks = || self.partials.iter().flatten();
        let (x, at): (&MatrixOperand, SmallVec<[(i64, i64); 1]>) =
            match (self.a.slot == slot, self.b.slot == slot) {
                (true, false) => (&self.a, blocks().map(|b| (b.a_offset, max_offset(b, |l| l.1))).collect()),
                (false, true) => (&self.b, blocks().map(|b| (b.b_offset, max_offset(b, |l| l.2))).collect()),
                _ => return None,
            };
        let columns: i64 = (0..self.rank).filter(|d| x.strides[*d] == 0).map(|d| self.ext[d]).product();
        let backward = blocks().flat_map(|b| &b.loops).any(|l| l.1 < 0 || l.2 < 0);
        if !rows_dominate(row, columns) || backward {
            return None;
        }
        self.row_dims(x, rows, row, &at)
    }
    /// Returns the memory accesses of the epilogue.
    pub(crate) fn epilogue_accesses(&self) -> impl Iterator<Item = &MemAccess> {
        self.epilogue.iter().flat_map(|t| &t.boxes).flat_map(|b| &b.segments).flat_map(|s| &s.mems)
    }
    /// Returns the slots of both operands.
    pub(crate) fn operand_slots(&self) -> [u32; 2] {
        [self.a.slot, self.b.slot]
    }
    /// Returns the number of consecutive rows that are rows of one matrix.
    pub(crate) fn rows_per_matrix(&self, along: &RowDims) -> i64 {
        along.dims.last().map_or(1, |d| self.ext[*d])
    }
    /// Returns the dimensions that enumerate the rows of `x`, if each index stays within one row.
    /// `blocks` has the first element of each contraction block and the distance to its last one.
    fn row_dims(&self, x: &MatrixOperand, rows: i64, row: i64, blocks: &[(i64, i64)]) -> Option<RowDims> {
        if self.method != ProductKind::MatMat || self.partials.len() != 1 || x.offset < 0 || row == 0 {
            return None;
        }
        let used = || (0..self.rank).filter(|d| x.strides[*d] != 0);
        let mut dims: SmallVec<[usize; 4]> = used().filter(|d| x.strides[*d] >= row).collect();
        crate::core::util::small_sort::sort_by_key(&mut dims, |d| std::cmp::Reverse(x.strides[*d]));
        let mut step = row;
        for d in dims.iter().rev() {
            if x.strides[*d] != step {
                return None;
            }
            step *= self.ext[*d];
        }
        let last = dims.last()?;
        let inside = || used().filter(|d| x.strides[*d] < row);
        let within: i64 = inside().map(|d| x.strides[d] * (self.ext[d] - 1)).sum();
        let first = blocks.iter().map(|b| b.0).min().unwrap_or(0);
        let most = blocks.iter().map(|b| b.0 + b.1).max().unwrap_or(0);
        let fine = step == row * rows
            && inside().all(|d| x.strides[d] > 0)
            && (Some(*last) == self.row_dim || Some(*last) == self.column_dim)
            && x.offset + first >= 0
            && x.offset + most + within < row;
        fine.then_some(RowDims { dims })
    }
    /// Computes all of the result at rows `a..b` of the value.
    ///
    /// # Safety
    /// The contract of [`TaskKernel::run`] holds for these rows; of the value, only these rows
    /// need to be in memory.
    pub(crate) unsafe fn run_rows(
        &self,
        along: &RowDims,
        (mut a, b): (i64, i64),
        base: &[*mut u8],
        s: &mut Scratch,
    ) {
        let Some((inner, outer)) = along.dims.split_last() else { return };
        let (m, n) = (self.row_dim, self.column_dim);
        let matrix = |d: usize| Some(d) == m || Some(d) == n;
        let free = |d: &usize| !along.dims.contains(d) && !matrix(*d);
        let others: i64 = (0..self.rank).filter(free).map(|d| self.ext[d]).product();
        while a < b {
            let (mut lo, mut hi) = ([0; MAX_LOOPS], [1; MAX_LOOPS]);
            hi[..self.rank].copy_from_slice(&self.ext[..self.rank]);
            let (mut k, from) = (a / self.ext[*inner], a % self.ext[*inner]);
            (lo[*inner], hi[*inner]) = (from, self.ext[*inner].min(from + b - a));
            for d in outer.iter().rev() {
                lo[*d] = k % self.ext[*d];
                hi[*d] = lo[*d] + 1;
                k /= self.ext[*d];
            }
            for mut k in 0..others {
                for d in (0..self.rank).filter(free) {
                    lo[d] = k % self.ext[d];
                    hi[d] = lo[d] + 1;
                    k /= self.ext[d];
                }
                // SAFETY: the tile is in the result, and the caller upholds the contract for these
                // rows.
                unsafe { self.run_tile(&lo, &hi, base, s) }
            }
            a += hi[*inner] - from;
        }
    }
}

/// Returns the number of terms of a block.
fn num_terms(b: &ContractionBlock) -> i64 {
    b.loops.iter().map(|l| l.0).product()
}

/// Returns the distance from the first to the last element of a block in an operand.
fn max_offset(b: &ContractionBlock, step: impl Fn(&(i64, i64, i64)) -> i64) -> i64 {
    b.loops.iter().map(|l| (l.0 - 1) * step(l)).sum()
}
