//! Matrix products: computes the result tile by tile, each with its epilogue.
//!
//! For each tile the products of all shards are computed and added in the fixed summation tree;
//! then the fused elementwise operations run on the tile. Tile sizes depend on shapes and on the
//! number of workers, but no bit of the result depends on them. Operands are passed to gemm with
//! their strides, so transposed and sliced ones are not copied.

use super::index::{LoopVec, MAX_LOOPS};
use super::task_kernel::{KernelTask, SlotAccess, TaskKernel};
use crate::core::DType;
use crate::exec::compile::codegen::interpreter::{self, Scratch};
use crate::exec::{compile::codegen::tile_program::TileProgram, runtime::Buffer};
use crate::kernels::gemm::{ProductKind, add_partial, gemm};
use smallvec::SmallVec;
use std::mem::MaybeUninit;

mod bind;
mod gathered;
mod rows;
pub(crate) use bind::bind;

/// An operand or the result of a matmul.
#[derive(Clone, Copy, Debug)]
struct MatrixOperand {
    /// The slot.
    slot: u32,
    /// The offset, in elements.
    offset: i64,
    /// The strides of the result's dimensions, in elements.
    strides: LoopVec,
}

/// The contraction indices of one shard, as loops; gemm runs the last loop.
#[derive(Clone, Debug)]
struct ContractionBlock {
    /// The offset in the left operand, in elements.
    a_offset: i64,
    /// The offset in the right operand, in elements.
    b_offset: i64,
    /// The loops, as (size, stride in the left operand, stride in the right operand).
    loops: SmallVec<[(i64, i64, i64); 2]>,
}

/// A matmul that is bound to memory.
#[derive(Clone, Debug)]
pub(crate) struct MatmulKernel {
    /// The element type of operands, sums and result.
    dtype: DType,
    /// The left operand.
    a: MatrixOperand,
    /// The right operand.
    b: MatrixOperand,
    /// The result.
    c: MatrixOperand,
    /// The elements from one partial of the result to the next.
    partial_stride: i64,
    /// The sizes of the result's dimensions, which are merged where possible.
    ext: LoopVec,
    /// The number of dimensions of the result.
    rank: usize,
    /// The dimension of the result that is the rows of a matrix; `None` if there is one row only.
    row_dim: Option<usize>,
    /// The dimension of the result that is the columns of a matrix, if there are several.
    column_dim: Option<usize>,
    /// The kind of the product, which is also that of each tile.
    method: ProductKind,
    /// The sizes of a tile.
    tile: LoopVec,
    /// The sides of the product if it is computed from rows and columns that are anywhere in
    /// memory, as that of a convolution is.
    gathered: Option<gathered::GatheredSides>,
    /// For each partial of the result, the contraction blocks of its shards.
    partials: Vec<Vec<ContractionBlock>>,
    /// The factor of each element, which is applied after the sum has been rounded.
    scale: f64,
    /// The operations that run on each tile of the result.
    pub(crate) epilogue: Option<TileProgram>,
    /// The approximate cost, in microseconds.
    cost_us: f64,
}

impl TaskKernel for MatmulKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        self.operand_slots().map(SlotAccess::read).into_iter().for_each(&mut *visit);
        visit(SlotAccess::write(self.c.slot));
        if let Some(t) = &self.epilogue {
            t.visit_accesses(visit);
        }
    }
    fn num_tasks(&self) -> i64 {
        let all = self.num_tiles();
        // small matrices of a batch share a task, and a negligible product is a single task
        let per = (20.0 * all as f64 / self.cost_us.max(1e-3)).ceil().max(1.0) as i64;
        let per = per.min(all.max(1));
        (all + per - 1) / per
    }
    fn cost_us(&self) -> f64 {
        self.cost_us
    }
    // (tiles are chosen for the work of a task)
    fn limit_tasks(&mut self, _most: i64) {}
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], scratch: &mut Scratch) {
        for mut t in task.share_of(self.num_tiles()) {
            let (mut lo, mut hi) = ([0; MAX_LOOPS], [1; MAX_LOOPS]);
            // (columns of tiles come last, then rows of tiles)
            let matrix = |d: &usize| Some(*d) == self.row_dim || Some(*d) == self.column_dim;
            let others = (0..self.rank).rev().filter(|d| !matrix(d));
            for d in self.column_dim.into_iter().chain(self.row_dim).chain(others) {
                let tiles = (self.ext[d] + self.tile[d] - 1) / self.tile[d];
                lo[d] = t % tiles * self.tile[d];
                hi[d] = (lo[d] + self.tile[d]).min(self.ext[d]);
                t /= tiles;
            }
            // SAFETY: the tile is in the result, which overlaps no operand of the product
            // (guaranteed by the planner), and the caller upholds the contract for its operands.
            unsafe { self.run_tile(&lo, &hi, memory, scratch) }
        }
    }
}

/// The maximum size of partial sums on the stack, in bytes. For such small tiles, allocating a
/// buffer would cost more than the sums.
const SMALL_TILE_BYTES: usize = 256;

impl MatmulKernel {
    /// Returns the number of tiles.
    fn num_tiles(&self) -> i64 {
        (0..self.rank).map(|d| (self.ext[d] + self.tile[d] - 1) / self.tile[d]).product()
    }
    /// Computes one tile of the result, and runs the epilogue on it.
    ///
    /// # Safety
    /// The contract of `interpreter::run` holds for the tile `lo..hi` and its operands. The tile
    /// overlaps no operand of the product.
    unsafe fn run_tile(&self, lo: &LoopVec, hi: &LoopVec, base: &[*mut u8], s: &mut Scratch) {
        // SAFETY: the caller upholds the contract for the tile. The epilogue runs over the space of
        // the result, so the tile is in it.
        unsafe {
            match &self.gathered {
                Some(sides) if cfg!(target_arch = "x86_64") => self.multiply_gathered(sides, lo, hi, base),
                _ => self.multiply_matrices(lo, hi, base),
            }
            if let Some(t) = &self.epilogue {
                interpreter::run(t, base, lo, hi, s)
            }
        }
    }
    /// Computes the products of one tile of the result, which is part of one matrix.
    ///
    /// # Safety
    /// The contract of [`run_tile`](Self::run_tile) holds.
    unsafe fn multiply_matrices(&self, lo: &LoopVec, hi: &LoopVec, base: &[*mut u8]) {
        let size = self.dtype.size() as i64;
        let extent = |d: Option<usize>| d.map_or(1, |d| (hi[d] - lo[d]) as usize);
        let (m, n) = (extent(self.row_dim), extent(self.column_dim));
        let (rs, cs) = (dim_stride(&self.c, self.row_dim), dim_stride(&self.c, self.column_dim));
        let by_rows = m == 1 || cs.abs() <= rs.abs();
        let from = [&self.a, &self.b].map(|x| self.address(x, lo, 0, base));
        let (prs, pcs) = if by_rows { (n as isize, 1) } else { (1, m as isize) };
        // partial sums that wait for others: the first is in the result, the others in temporary
        // memory
        let mut more: SmallVec<[Buffer; 4]> = SmallVec::new();
        let mut few = [[MaybeUninit::<u64>::uninit(); SMALL_TILE_BYTES / 8]; 4];
        for (copy, blocks) in self.partials.iter().enumerate() {
            let dst = self.address(&self.c, lo, copy as i64 * self.partial_stride, base);
            let bytes = m * n * size as usize;
            let mut place = |k: usize| {
                if k == 0 {
                    return (dst, rs, cs);
                }
                if bytes <= SMALL_TILE_BYTES && k <= few.len() {
                    return (few[k - 1].as_mut_ptr().cast(), prs, pcs);
                }
                while more.len() < k {
                    more.push(Buffer::allocate_or_unwind(bytes));
                }
                (more[k - 1].as_mut_ptr(), prs, pcs)
            };
            let mut waiting = 0;
            for (k, b) in blocks.iter().enumerate() {
                let mut merges = (k + 1).trailing_zeros();
                // SAFETY: operands and result are within their slots, and no operand overlaps the
                // result (caller contract).
                unsafe {
                    if merges > 0 && b.loops.len() == 1 {
                        self.multiply_block(b, (m, n), place(waiting - 1), true, from);
                        merges -= 1;
                    } else {
                        self.multiply_block(b, (m, n), place(waiting), false, from);
                        waiting += 1;
                    }
                    for _ in 0..merges {
                        add_partial(self.dtype, (m, n), place(waiting - 2), place(waiting - 1));
                        waiting -= 1;
                    }
                }
            }
            for k in (1..waiting).rev() {
                // SAFETY: both partial sums have m × n initialized elements (each block above wrote
                // its own), and are in the result or in separate temporary memory, so they do not
                // overlap.
                unsafe { add_partial(self.dtype, (m, n), place(k - 1), place(k)) }
            }
            if blocks.is_empty() {
                // an empty contraction is 0
                for i in 0..m as isize {
                    for j in 0..n as isize {
                        let off = (i * rs + j * cs) * size as isize;
                        // SAFETY: the element is in the result's tile, which is writable (caller
                        // contract).
                        unsafe { std::ptr::write_bytes(dst.wrapping_offset(off), 0, size as usize) }
                    }
                }
            }
        }
    }
    /// Returns the address of the tile at `lo` of an operand or the result, plus `more` elements.
    fn address(&self, x: &MatrixOperand, lo: &LoopVec, more: i64, base: &[*mut u8]) -> *mut u8 {
        let off: i64 = (0..self.rank).map(|d| lo[d] * x.strides[d]).sum();
        let bytes = (x.offset + off + more) * self.dtype.size() as i64;
        base[x.slot as usize].wrapping_offset(bytes as isize)
    }
    /// Computes the product of a contraction block, for an m × n tile.
    ///
    /// `x` and `y` point to the start of the operands' tiles.
    ///
    /// # Safety
    /// The contract of `interpreter::run` holds for the operands. `dst` points to space for an m ×
    /// n tile with these strides, which overlaps no operand. With `accumulate`, the tile is
    /// initialized and the block has one loop.
    #[inline]
    unsafe fn multiply_block(
        &self,
        b: &ContractionBlock,
        (m, n): (usize, usize),
        (dst, rs, cs): (*mut u8, isize, isize),
        accumulate: bool,
        [x, y]: [*mut u8; 2],
    ) {
        let size = self.dtype.size() as i64;
        let Some(((k, ak, bk), outer)) = b.loops.split_last().map(|(l, o)| (*l, o)) else { return };
        let (ars, bcs) = (dim_stride(&self.a, self.row_dim), dim_stride(&self.b, self.column_dim));
        let (k, acs, brs) = (k as usize, ak as isize, bk as isize);
        let count: i64 = outer.iter().map(|o| o.0).product();
        for turn in 0..count {
            let (mut i, mut oa, mut ob) = (turn, b.a_offset, b.b_offset);
            for o in outer.iter().rev() {
                oa += i % o.0 * o.1;
                ob += i % o.0 * o.2;
                i /= o.0;
            }
            let (x, y) = (x.wrapping_offset((oa * size) as isize), y.wrapping_offset((ob * size) as isize));
            let more = accumulate || turn > 0;
            // SAFETY: all elements are within the operands' tiles and the tile at `dst` (caller
            // contract).
            unsafe {
                gemm(
                    self.dtype,
                    self.method,
                    m,
                    k,
                    n,
                    dst,
                    rs,
                    cs,
                    x,
                    ars,
                    acs,
                    y,
                    brs,
                    bcs,
                    more,
                    self.scale,
                );
            }
        }
    }
}

/// Returns the stride of a dimension, in elements; 0 if there is no such dimension.
fn dim_stride(x: &MatrixOperand, d: Option<usize>) -> isize {
    d.map_or(0, |d| x.strides[d] as isize)
}
