//! Products some rows at a time: those of a value whose rows stay in cache, which the product makes or reads.

use super::{Block, Mat, ProductKernel};
use crate::compile::expr::{Mem, POSITION};
use crate::compile::index::MAX;
use crate::compile::kernel::Scratch;
use crate::runtime::gemm::Way;
use smallvec::SmallVec;

/// More terms an element than these, and what an element costs in memory is little beside the product.
const TERMS: i64 = 256;

/// Whether so many terms make an element of a row, or so many elements are made of one, that rows are what is large.
fn long(row: i64, terms: i64) -> bool {
    terms <= TERMS && 2 * terms <= row
}

/// How a product goes along the rows of a value: the dimensions of its result that number them, outermost first.
#[derive(Clone, Debug)]
pub(crate) struct Along {
    dims: SmallVec<[usize; 4]>,
}

impl ProductKernel {
    /// Whether the product makes, row by row, the value in this slot, of so many rows of so many elements, and all else that it makes: `made`
    /// says the bytes of a row of each such slot.
    pub(crate) fn makes_rows(
        &self,
        slot: u32,
        (rows, row): (i64, i64),
        made: impl Fn(u32) -> Option<i64>,
    ) -> Option<Along> {
        let terms: i64 = self.copies.iter().flatten().map(terms).sum();
        let along =
            (self.c.slot == slot && long(row, terms)).then(|| self.along(&self.c, rows, row, &[]))??;
        let number = |d: usize| if along.dims.contains(&d) { self.c.st[d] / row } else { 0 };
        let local = |m: &Mem| {
            let Some(bytes) = made(m.slot).filter(|_| m.slot != POSITION) else { return true };
            let inside = |d: &usize| !along.dims.contains(d);
            let last = |d: usize| m.st[d] * (self.ext[d] - 1);
            let high: i64 = (0..self.rank).filter(inside).map(last).sum();
            let forward = (0..self.rank).all(|d| m.st[d] >= 0) && m.off >= 0;
            forward
                && along.dims.iter().all(|d| m.st[*d] == number(*d) * bytes)
                && m.off + high + i64::from(m.size) <= bytes
        };
        self.reads().all(local).then_some(along)
    }
    /// Whether the product reads the value in this slot row by row, and as its one operand.
    pub(crate) fn reads_rows(&self, slot: u32, rows: i64, row: i64) -> Option<Along> {
        let blocks = || self.copies.iter().flatten();
        let (x, at): (&Mat, SmallVec<[(i64, i64); 1]>) = match (self.a.slot == slot, self.b.slot == slot) {
            (true, false) => (&self.a, blocks().map(|b| (b.a, reach(b, |l| l.1))).collect()),
            (false, true) => (&self.b, blocks().map(|b| (b.b, reach(b, |l| l.2))).collect()),
            _ => return None,
        };
        let columns: i64 = (0..self.rank).filter(|d| x.st[*d] == 0).map(|d| self.ext[d]).product();
        let backward = blocks().flat_map(|b| &b.loops).any(|l| l.1 < 0 || l.2 < 0);
        if !long(row, columns) || backward {
            return None;
        }
        self.along(x, rows, row, &at)
    }
    /// The operands in memory of what is computed from the result.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &Mem> {
        self.epilogue.iter().flat_map(|t| &t.bands).flat_map(|b| &b.segs).flat_map(|s| &s.mems)
    }
    /// The slots of both operands.
    pub(crate) fn operands(&self) -> [u32; 2] {
        [self.a.slot, self.b.slot]
    }
    /// How many rows are beside one another in a matrix.
    pub(crate) fn beside(&self, along: &Along) -> i64 {
        along.dims.last().map_or(1, |d| self.ext[*d])
    }
    /// The dimensions that number the rows of a matrix's value: what is at an index of theirs is in one row, wherever a block (its first
    /// element, and how far it reaches) is.
    fn along(&self, x: &Mat, rows: i64, row: i64, blocks: &[(i64, i64)]) -> Option<Along> {
        if self.way != Way::Matrices || self.copies.len() != 1 || x.off < 0 || row == 0 {
            return None;
        }
        let used = || (0..self.rank).filter(|d| x.st[*d] != 0);
        let mut dims: SmallVec<[usize; 4]> = used().filter(|d| x.st[*d] >= row).collect();
        crate::sorted::sort_by_key(&mut dims, |d| std::cmp::Reverse(x.st[*d]));
        let mut step = row;
        for d in dims.iter().rev() {
            if x.st[*d] != step {
                return None;
            }
            step *= self.ext[*d];
        }
        let last = dims.last()?;
        let inside = || used().filter(|d| x.st[*d] < row);
        let within: i64 = inside().map(|d| x.st[d] * (self.ext[d] - 1)).sum();
        let first = blocks.iter().map(|b| b.0).min().unwrap_or(0);
        let most = blocks.iter().map(|b| b.0 + b.1).max().unwrap_or(0);
        let fine = step == row * rows
            && inside().all(|d| x.st[d] > 0)
            && (Some(*last) == self.m || Some(*last) == self.n)
            && x.off + first >= 0
            && x.off + most + within < row;
        fine.then_some(Along { dims })
    }
    /// All of the result at rows `a..b` of the value.
    ///
    /// # Safety
    /// As for [`kernel::run`](crate::compile::kernel::run); of that value these rows are enough.
    pub(crate) unsafe fn run_rows(
        &self,
        along: &Along,
        (mut a, b): (i64, i64),
        base: &[*mut u8],
        s: &mut Scratch,
    ) {
        let Some((inner, outer)) = along.dims.split_last() else { return };
        let (m, n) = (self.m, self.n);
        let matrix = |d: usize| Some(d) == m || Some(d) == n;
        let free = |d: &usize| !along.dims.contains(d) && !matrix(*d);
        let others: i64 = (0..self.rank).filter(free).map(|d| self.ext[d]).product();
        while a < b {
            let (mut lo, mut hi) = ([0; MAX], [1; MAX]);
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
                // SAFETY: the caller's; the tile is in the result
                unsafe { self.tile(&lo, &hi, base, s) }
            }
            a += hi[*inner] - from;
        }
    }
}

/// Terms of a block.
fn terms(b: &Block) -> i64 {
    b.loops.iter().map(|l| l.0).product()
}

/// How far a block reaches in an operand.
fn reach(b: &Block, step: impl Fn(&(i64, i64, i64)) -> i64) -> i64 {
    b.loops.iter().map(|l| (l.0 - 1) * step(l)).sum()
}
