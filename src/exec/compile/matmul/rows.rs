//! Runs matmuls a batch of rows at a time, for values whose rows stay in cache (row fusion).

use super::MatmulKernel;
#[cfg(doc)]
use crate::exec::compile::task_kernel::TaskKernel;
use crate::exec::{compile::codegen::interpreter::Scratch, compile::index::MAX_LOOPS};
use crate::partition::fusion::RowDims;

impl MatmulKernel {
    /// Returns the slots of both operands.
    pub(crate) fn operand_slots(&self) -> [u32; 2] {
        [self.a.slot, self.b.slot]
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
