//! Sums of squares of differences between all rows of two arrays: pairwise distances.
//!
//! One operand is the same for many results. A tile of its columns is copied to contiguous memory
//! once, and serves all of them.

use super::{ReductionKernel, ReductionLoops};
use crate::core::Result;
use crate::exec::compile::codegen::interpreter::{self, ACCUMULATOR_BYTES, MergeStack, Scratch};
use crate::exec::compile::codegen::segments::{self, CodegenRequest};
use crate::exec::compile::codegen::values::MemAccess;
use crate::exec::compile::fusion::FusionPlan;
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::ir::program::Reducer;
use crate::kernels::{self, AddSquares, StridedMatrix, Unzip};
use crate::partition::fusion::space::reduction_memory_order;
use smallvec::SmallVec;

/// The maximum number of terms of a sum.
const MAX_TERMS: i64 = 64;
/// The minimum number of results that read the same elements.
const MIN_USES: i64 = 16;
/// The size of a tile of columns, in bytes.
const TILE_BYTES: i64 = 32 << 10;
/// The order in which the lanes of a row are added, as leaves of a tree.
const LANES: [u8; 64] = lanes();

/// Returns the numbers below 64 with their bits reversed.
const fn lanes() -> [u8; 64] {
    let mut lanes = [0; 64];
    let mut k = 0;
    while k < 64 {
        lanes[k] = (k as u8).reverse_bits() >> 2;
        k += 1;
    }
    lanes
}

/// The sums of squares of `factors[0]·a + factors[1]·b`.
#[derive(Clone, Debug)]
pub(super) struct Distances {
    /// The sizes of the kept dimensions; `a` does not depend on the last one, and `b` does not
    /// depend on the one before.
    ext: SmallVec<[i64; 4]>,
    /// The operands.
    operands: [MemAccess; 2],
    /// The factors.
    factors: [f64; 2],
    /// The number of terms of a sum, and the dimension along which they are.
    terms: (i64, usize),
    /// The number of columns of a tile.
    tile: i64,
    /// The bytes from one index of the result to the next.
    out_strides: LoopVec,
    /// The kernel that copies columns.
    unzip: Unzip,
    /// The kernel that adds squares.
    add: AddSquares,
}

/// Binds a reduction as one of distances; `None` if it is something else.
pub(super) fn bind(
    g: &FusionPlan<'_, '_>,
    group: usize,
    f: &ReductionLoops,
    base: u32,
    kernel: &ReductionKernel,
) -> Result<Option<Distances>> {
    let (reducer, dtype) = kernel.reducer;
    let (Some(add), Reducer::Add) = (kernels::add_squares_of(dtype), reducer) else { return Ok(None) };
    let order = reduction_memory_order(f);
    let (last, k) = (order.len().saturating_sub(2), order.last().map_or(0, |l| f.ext[*l]));
    let reduced =
        order.iter().filter(|l| **l >= f.rank).count() == 1 && order.last().is_some_and(|l| *l >= f.rank);
    if !kernels::HAS_FAST_PATHS || !reduced || last == 0 || k > MAX_TERMS || !kernel.is_whole() {
        return Ok(None);
    }
    let ask = CodegenRequest { order: &order, stream: false, alias: None, overwrites: &[], slot_base: base };
    let Some((mut operands, mut factors)) = segments::square_of_sum(g, group, &ask)? else { return Ok(None) };
    if operands[0].strides[last] != 0 {
        operands.swap(0, 1);
        factors.swap(0, 1);
    }
    let ext: SmallVec<[i64; 4]> = order[..=last].iter().map(|l| f.ext[*l]).collect();
    let v = &g.program.values[f.out];
    let own = usize::from(v.num_partials > 1);
    let (mut out_strides, size) = ([0; MAX_LOOPS], kernel.element_bytes);
    for (to, l) in out_strides.iter_mut().zip(&order[..=last]) {
        *to = v.strides[l + own] * size;
    }
    let steps = operands[1].strides;
    let fits = operands[0].strides[last] == 0
        && steps[last - 1] == 0
        && ext[last - 1] >= MIN_USES
        && ext[last] >= MIN_USES
        && out_strides[last] == size
        && [steps[last], steps[last + 1]].iter().all(|s| s % size == 0 && s.abs() < 1 << 24);
    let Some(unzip) = kernels::unzip_of(size as usize).filter(|_| fits) else { return Ok(None) };
    // (tiles of equal widths)
    let rows = if kernel.reduces_innermost { LANES.len() as i64 } else { k };
    let most = (TILE_BYTES / size / rows).min(ACCUMULATOR_BYTES as i64 / size);
    let tiles = (ext[last] + most - 1) / most;
    let tile = (ext[last] + tiles - 1) / tiles;
    let terms = (k, last + 1);
    Ok(Some(Distances { ext, operands, factors, terms, tile, out_strides, unzip, add }))
}

impl ReductionKernel {
    /// Returns true if each result is all of one shard, and is computed in one stage.
    pub(super) fn is_whole(&self) -> bool {
        let [c] = &self.partials[..] else { return false };
        let [(lo, hi)] = &c[..] else { return false };
        (0..self.input.rank).filter(|d| self.reduced[*d]).all(|d| lo[d] == 0 && hi[d] == self.input.ext[d])
            && self.reduce_eight_rows.is_none()
            && !self.has_second_stage()
    }
}

impl Distances {
    /// Returns the number of tiles of results.
    pub(super) fn num_units(&self) -> i64 {
        let last = self.ext.len() - 1;
        self.ext[..last].iter().product::<i64>() * self.num_tiles()
    }
    fn num_tiles(&self) -> i64 {
        (self.ext[self.ext.len() - 1] + self.tile - 1) / self.tile
    }
    /// Computes tiles `a..b` of the result. Those that use the same columns follow one another.
    ///
    /// # Safety
    /// The contract of `TaskKernel::run` holds for these results of `kernel`.
    pub(super) unsafe fn run(
        &self,
        kernel: &ReductionKernel,
        (a, b): (i64, i64),
        base: &[*mut u8],
        s: &mut Scratch,
    ) {
        if !kernels::HAS_FAST_PATHS {
            unreachable!("`bind` returns no such reduction")
        }
        s.reserve(0, 0);
        let (size, last, leaves) = (kernel.element_bytes, self.ext.len() - 1, self.num_leaves(kernel));
        let columns = s.reserve_buffers((leaves * self.tile * size) as usize);
        for unit in a..b {
            let (mut x, mut k) = ([0; MAX_LOOPS], unit);
            (x[last - 1], k) = (k % self.ext[last - 1], k / self.ext[last - 1]);
            (x[last], k) = (k % self.num_tiles() * self.tile, k / self.num_tiles());
            for e in (0..last - 1).rev() {
                (x[e], k) = (k % self.ext[e], k / self.ext[e]);
            }
            let n = self.tile.min(self.ext[last] - x[last]);
            let [scalars, rows] = self.operands.map(|m| interpreter::address(&m, base, &x, last + 1));
            let out: i64 = (0..=last).map(|e| x[e] * self.out_strides[e]).sum();
            let to = base[kernel.out as usize].wrapping_offset(out as isize);
            // SAFETY: the operands have these elements (caller contract), and `columns` has space
            // for a tile.
            unsafe {
                if unit == a || x[last - 1] == 0 {
                    self.copy_columns(kernel, n, rows, columns);
                }
                self.copy_scalars(kernel, scalars, s.accumulator(0));
                self.add_squares(kernel, n, to, columns, s);
            }
        }
    }
    /// Returns the number of rows of a tile, with those of zeros that complete a tree.
    fn num_leaves(&self, kernel: &ReductionKernel) -> i64 {
        if kernel.reduces_innermost { LANES.len() as i64 } else { self.terms.0 }
    }
    /// Returns the term of each row of a tile; `None` if the row has zeros.
    fn leaf_terms(&self, kernel: &ReductionKernel) -> impl Iterator<Item = (i64, Option<i64>)> {
        let (k, _) = self.terms;
        let (lanes, n) = (kernel.reduces_innermost, self.num_leaves(kernel));
        (0..n).map(move |r| {
            let term = if lanes { i64::from(LANES[r as usize]) } else { r };
            (r, Some(term).filter(|t| *t < k))
        })
    }
    /// Copies `n` columns of the operand at `from` to the rows at `to`.
    ///
    /// # Safety
    /// The operand has these columns, and `to` has space for them.
    unsafe fn copy_columns(&self, kernel: &ReductionKernel, n: i64, from: *const u8, to: *mut u8) {
        let (size, (_, along)) = (kernel.element_bytes, self.terms);
        let steps = self.operands[1].strides;
        let rows = StridedMatrix {
            rows: n as usize,
            columns: 1,
            row_step: (steps[along - 1] / size) as isize,
            column_step: 0,
            to_step: 0,
        };
        for (r, term) in self.leaf_terms(kernel) {
            let to = to.wrapping_offset((r * n * size) as isize);
            // SAFETY: the column has `n` elements, and there is space for each row (caller
            // contract).
            unsafe {
                match term {
                    Some(t) => (self.unzip)(&rows, to, from.wrapping_offset((t * steps[along]) as isize)),
                    None => kernel.fill_neutral(to, n),
                }
            }
        }
    }
    /// Copies the terms of the operand at `from` to `to`.
    ///
    /// # Safety
    /// The operand has these elements, and `to` has space for them.
    unsafe fn copy_scalars(&self, kernel: &ReductionKernel, from: *const u8, to: *mut u8) {
        let size = kernel.element_bytes;
        for (r, term) in self.leaf_terms(kernel) {
            let to = to.wrapping_offset((r * size) as isize);
            // SAFETY: `from` has this term, and `to` has space for it (caller contract).
            unsafe {
                match term {
                    Some(t) => {
                        let from =
                            from.wrapping_offset((t * self.operands[0].strides[self.terms.1]) as isize);
                        std::ptr::copy_nonoverlapping(from, to, size as usize);
                    }
                    None => kernel.fill_neutral(to, 1),
                }
            }
        }
    }
    /// Adds the squares of a tile to `n` results at `to`.
    ///
    /// # Safety
    /// `columns` has the rows of the tile, accumulator 0 their scalars, and `to` has space for `n`
    /// results.
    unsafe fn add_squares(
        &self,
        kernel: &ReductionKernel,
        n: i64,
        to: *mut u8,
        columns: *const u8,
        s: &Scratch,
    ) {
        let (size, scalars) = (kernel.element_bytes, s.accumulator(0));
        let factors = [self.factors[1], self.factors[0]];
        let step = (n * size) as usize;
        // SAFETY: the caller upholds the contract; an accumulator has space for a tile.
        unsafe {
            if !kernel.reduces_innermost {
                kernel.fill_neutral(to, n);
                return (self.add)(n as usize, to, columns, self.terms.0 as usize, step, scalars, &factors);
            }
            // the leaves of eight rows, and a tree of their sums: as lanes are added in halves
            let mut tree = MergeStack::new(1);
            for r in (0..LANES.len()).step_by(8) {
                let sum = s.accumulator(tree.depth);
                kernel.fill_neutral(sum, n);
                let (rows, scalars) = (columns.add(r * step), scalars.add(r * size as usize));
                (self.add)(n as usize, sum, rows, 8, step, scalars, &factors);
                tree.push(|a, b| kernel.merge_accumulators(a, b, n, s));
            }
            std::ptr::copy_nonoverlapping(s.accumulator(1), to, step);
        }
    }
}
