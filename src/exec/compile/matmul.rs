//! Matrix products: computes the result tile by tile, each with its epilogue.
//!
//! For each tile the products of all shards are computed and added in the fixed summation tree;
//! then the fused elementwise operations run on the tile. Tile sizes depend on shapes and on the
//! number of workers, but no bit of the result depends on them. Operands are passed to gemm with
//! their strides, so transposed and sliced ones are not copied.

use super::fusion::{FusionPlan, FusionRoot};
use super::index::{LoopVec, MAX_LOOPS};
use super::ir::{OperandAccess, ReductionLoops};
use crate::core::diagnostic::Result;
use crate::core::types::DType;
use crate::exec::compile::codegen::interpreter;
use crate::exec::compile::codegen::interpreter::Scratch;
use crate::exec::compile::codegen::segments;
use crate::exec::compile::codegen::segments::CodegenRequest;
use crate::exec::compile::codegen::tile_program::TileProgram;
use crate::exec::compile::codegen::values::scalar_bits;
use crate::exec::runtime::Buffer;
use crate::exec::runtime::thread_pool;
use crate::ir::program::loop_nest::{ScalarArg, ScalarOp, Source};
use crate::kernels::gemm::{PANEL_TERMS, ProductKind, add_partial, gemm};
use crate::partition::Slot;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

mod rows;
pub(crate) use rows::RowDims;

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
    /// The number of rows of a tile.
    tile_rows: i64,
    /// The number of columns of a tile.
    tile_columns: i64,
    /// For each partial of the result, the contraction blocks of its shards.
    partials: Vec<Vec<ContractionBlock>>,
    /// The factor of each element, which is applied after the sum has been rounded.
    scale: f64,
    /// The operations that run on each tile of the result.
    pub(crate) epilogue: Option<TileProgram>,
    /// The approximate cost, in microseconds.
    pub(crate) cost_us: f64,
}

/// The role of a dimension of the result.
#[derive(Clone, Copy, PartialEq, Debug)]
enum DimClass {
    /// Only the left operand has it.
    Row,
    /// Only the right operand has it.
    Column,
    /// Both operands have it, or neither.
    Batch,
}

/// Binds the matmul of a group to memory.
/// If the result is computed in the memory of another value, `same` is that value. `over` lists the
/// values that the epilogue stores over its operands.
pub(crate) fn bind(
    g: &FusionPlan<'_, '_>,
    group: usize,
    base: u32,
    same: Option<Slot>,
    over: &[(Slot, Slot)],
) -> Result<MatmulKernel> {
    let FusionRoot::Matmul(k) = g.groups[group].root else { unreachable!("the root is a matmul") };
    let f = g.reduction_loops(k);
    let v = &g.program.values[f.out];
    let own = usize::from(v.num_partials > 1);
    let order: Vec<usize> = (0..f.rank).filter(|l| f.ext[*l] != 1).collect();
    let slot = same.unwrap_or(f.out);
    let mut c = MatrixOperand { slot: slot as u32 + base, offset: 0, strides: [0; MAX_LOOPS] };
    let mut a = matrix_operand(g, &f.reads[0], base, &order);
    let mut b = matrix_operand(g, &f.reads[1], base, &order);
    let mut ext = [1; MAX_LOOPS];
    for (e, &l) in order.iter().enumerate() {
        c.strides[e] = v.strides[l + own];
        ext[e] = f.ext[l];
    }
    let mut rank = order.len();
    let members = !g.groups[group].members.is_empty();
    let ask = CodegenRequest {
        order: &order,
        stream: false,
        alias: same.map(|s| (f.out, s)),
        overwrites: over,
        slot_base: base,
    };
    let mut epilogue = if members { Some(segments::tile_program(g, group, &ask)?) } else { None };
    let class = |a: &MatrixOperand, b: &MatrixOperand, d: usize| match (a.strides[d] != 0, b.strides[d] != 0)
    {
        (true, false) => DimClass::Row,
        (false, true) => DimClass::Column,
        _ => DimClass::Batch,
    };
    // merge adjacent dimensions of the same class
    for d in (0..rank.saturating_sub(1)).rev() {
        let e = ext[d + 1];
        let alike = [&a, &b, &c].iter().all(|x| x.strides[d] == x.strides[d + 1] * e);
        if class(&a, &b, d) != class(&a, &b, d + 1)
            || !alike
            || epilogue.as_ref().is_some_and(|t| !t.can_collapse(d))
        {
            continue;
        }
        if let Some(t) = &mut epilogue {
            t.collapse_pair(d);
        }
        for x in [&mut a.strides, &mut b.strides, &mut c.strides] {
            x.copy_within(d + 1.., d);
            x[MAX_LOOPS - 1] = 0;
        }
        ext[d + 1] *= ext[d];
        ext.copy_within(d + 1.., d);
        ext[MAX_LOOPS - 1] = 1;
        rank -= 1;
    }
    let largest = |k: DimClass| (0..rank).filter(|d| class(&a, &b, *d) == k).max_by_key(|d| ext[*d]);
    let (m, n) = (largest(DimClass::Row), largest(DimClass::Column));
    let every = |k: DimClass| (0..rank).filter(|d| class(&a, &b, *d) == k).map(|d| ext[d] as usize).product();
    let way = ProductKind::for_shape(every(DimClass::Row), every(DimClass::Column));
    let size = |d: Option<usize>| d.map_or(1, |d| ext[d]);
    let depth: i64 = (f.rank..f.num_loops).map(|l| f.ext[l]).product();
    let all: i64 = ext[..rank].iter().product();
    let flops = 2.0 * all as f64 * depth as f64;
    let (mut tm, mut tn) = (size(m).max(1), size(n).max(1));
    let batch = all / (tm * tn).max(1);
    let tiles = |tm: i64, tn: i64| (size(m) + tm - 1) / tm * ((size(n) + tn - 1) / tn) * batch;
    let each = |tm: i64, tn: i64| 2.0 * (tm * tn) as f64 * depth as f64;
    // (partial sums need temporary memory, one tile each)
    let large = |tm: i64, tn: i64| each(tm, tn) > 2.2e9 || tm * tn > 1 << 22;
    // Each of a few workers gets at least two tiles, so that other workers can take over tiles of a
    // delayed one, and all get the same number of tiles. There are no more tiles than that, since
    // each tile packs its operands.
    let workers = thread_pool::thread_pool().num_workers() as i64;
    let least = if workers == 1 { 1 } else { workers.max((2 * workers).min(8)) };
    let even = |tiles: i64| tiles >= least && 5 * tiles >= 4 * ((tiles + workers - 1) / workers * workers);
    // (a long contraction justifies a task even if few rows and columns use the packed operands)
    let small = |tm: i64, tn: i64| tm.max(tn) <= if each(tm, tn) > 1.2e7 { 32 } else { 64 };
    while flops > 2e6 && !small(tm, tn) && (!even(tiles(tm, tn)) || large(tm, tn)) {
        if tm >= tn {
            tm = (tm + 1) / 2;
        } else {
            tn = (tn + 1) / 2;
        }
    }
    let copies: Vec<Vec<ContractionBlock>> = f
        .partials
        .iter()
        .map(|c| c.iter().filter_map(|r| contraction_block(f, &r.lo, &r.hi)).collect())
        .collect();
    let blocks: usize = copies.iter().map(Vec::len).sum();
    // the floating-point operations per microsecond of one core
    let rate = if matches!(f.dtype, DType::F32) {
        110e3
    } else if f.dtype.is_float() {
        55e3
    } else if f.dtype.is_complex() {
        8e3
    } else {
        4e3
    };
    let cost = flops / rate
        + 0.1 * blocks as f64 * tiles(tm, tn) as f64
        + epilogue.as_ref().map_or(0.0, |t| t.ns_per_element * all as f64 / 1000.0);
    let copy = if own > 0 { v.strides[0] } else { 0 };
    let apart = size_optimized!() || way != ProductKind::MatMat || !fits_one_panel(&copies);
    let by = if apart { None } else { epilogue_scale(g, group, same) };
    if by.is_some() {
        epilogue = None;
    }
    let by = by.unwrap_or(1.0);
    Ok(MatmulKernel {
        dtype: f.dtype,
        a,
        b,
        c,
        partial_stride: copy,
        ext,
        rank,
        row_dim: m,
        column_dim: n,
        method: way,
        tile_rows: tm,
        tile_columns: tn,
        partials: copies,
        scale: by,
        epilogue,
        cost_us: cost,
    })
}

/// Returns true if each element is one contraction that fits into a single panel of gemm.
fn fits_one_panel(copies: &[Vec<ContractionBlock>]) -> bool {
    let [blocks] = copies else { return false };
    matches!(&blocks[..], [b] if matches!(b.loops[..], [(k, ..)] if k <= PANEL_TERMS as i64))
}

/// Returns the constant factor if the epilogue only scales the result, in place.
fn epilogue_scale(g: &FusionPlan<'_, '_>, group: usize, same: Option<Slot>) -> Option<f64> {
    let (FusionRoot::Matmul(k), [member]) = (g.groups[group].root, &g.groups[group].members[..]) else {
        return None;
    };
    let (f, m) = (g.reduction_loops(k), g.elementwise_op(member.op));
    let ([inst], rank) = (&m.code.insts[..], f.rank) else { return None };
    let (from, to) = (&g.program.values[f.out], &g.program.values[m.out]);
    let in_place = same == Some(m.out) && m.num_loops == rank && m.ext[..rank] == f.ext[..rank];
    let as_it_is = member.shift[..rank].iter().all(|s| *s == 0)
        && member.dims[..rank].iter().enumerate().all(|(d, to)| d == usize::from(*to))
        && from.num_partials == 1
        && to.strides == from.strides;
    let float =
        matches!(f.dtype, DType::F32 | DType::F64) && inst.operand_dtype == f.dtype && inst.dtype == f.dtype;
    if inst.op != ScalarOp::Mul || !in_place || !as_it_is || !float {
        return None;
    }
    let read = |a: &ScalarArg| match a {
        ScalarArg::Access(r) => match &m.reads[*r].boxes[..] {
            [p] if p.covers(&m.ext, rank) => Some(p),
            _ => None,
        },
        ScalarArg::Const(_) | ScalarArg::Inst(_) | ScalarArg::Index(_) => None,
    };
    let number = |a: &ScalarArg| match (a, read(a).map(|p| p.source)) {
        (ScalarArg::Const(c), _) => Some(scalar_bits(f.dtype, *c)),
        (_, Some(Source::Const(c))) => Some(scalar_bits(f.dtype, c)),
        _ => None,
    };
    let own = |a: &ScalarArg| {
        read(a).is_some_and(|p| {
            p.source == Source::Value(f.out) && p.offset == 0 && p.strides[..rank] == from.strides[..rank]
        })
    };
    let by = match &inst.args[..] {
        [x, c] if own(x) => number(c),
        [c, x] if own(x) => number(c),
        _ => None,
    }?;
    let by =
        if f.dtype == DType::F32 { f64::from(f32::from_bits(by as u32)) } else { f64::from_bits(by as u64) };
    // (a factor of 0 is left to the epilogue, because some libraries do not multiply by it)
    (by != 0.0).then_some(by)
}

/// Returns an operand with its strides along the dimensions `order`.
fn matrix_operand(g: &FusionPlan<'_, '_>, o: &OperandAccess, base: u32, order: &[usize]) -> MatrixOperand {
    let p = &o.boxes[0];
    let Source::Value(s) = p.source else { unreachable!("operands of a matmul are values") };
    let mut st = [0; MAX_LOOPS];
    for (e, &l) in order.iter().enumerate() {
        st[e] = p.strides[l];
    }
    MatrixOperand { slot: g.program.alias_root(s) as u32 + base, offset: p.offset, strides: st }
}

/// Returns the contraction block of a shard; `None` if it is empty.
fn contraction_block(f: &ReductionLoops, lo: &LoopVec, hi: &LoopVec) -> Option<ContractionBlock> {
    let (p, q) = (&f.reads[0].boxes[0], &f.reads[1].boxes[0]);
    let mut b = ContractionBlock { a_offset: 0, b_offset: 0, loops: SmallVec::new() };
    for l in f.rank..f.num_loops {
        let len = hi[l] - lo[l];
        if len <= 0 {
            return None;
        }
        b.a_offset += lo[l] * p.strides[l];
        b.b_offset += lo[l] * q.strides[l];
        if len > 1 {
            match b.loops.last_mut() {
                Some(o) if o.1 == p.strides[l] * len && o.2 == q.strides[l] * len => {
                    *o = (o.0 * len, p.strides[l], q.strides[l])
                }
                _ => b.loops.push((len, p.strides[l], q.strides[l])),
            }
        }
    }
    // gemm runs the longest loop
    if let Some(k) = (0..b.loops.len()).max_by_key(|k| b.loops[*k].0) {
        let last = b.loops.len() - 1;
        b.loops.swap(k, last);
    } else {
        b.loops.push((1, 0, 0));
    }
    Some(b)
}

/// The maximum size of partial sums on the stack, in bytes. For such small tiles, allocating a
/// buffer would cost more than the sums.
const SMALL_TILE_BYTES: usize = 256;

impl MatmulKernel {
    /// Returns the slot of the result.
    pub(crate) fn result_slot(&self) -> u32 {
        self.c.slot
    }
    /// Returns the number of matrices in the batch, and of tile rows and tile columns in each.
    fn tile_counts(&self) -> (i64, i64, i64) {
        let size = |d: Option<usize>| d.map_or(1, |d| self.ext[d]);
        let matrix = |d: usize| Some(d) == self.row_dim || Some(d) == self.column_dim;
        let batch = (0..self.rank).filter(|d| !matrix(*d)).map(|d| self.ext[d]).product();
        (
            batch,
            (size(self.row_dim) + self.tile_rows - 1) / self.tile_rows,
            (size(self.column_dim) + self.tile_columns - 1) / self.tile_columns,
        )
    }
    /// Returns the number of independent tasks.
    pub(crate) fn num_tasks(&self) -> i64 {
        let (b, m, n) = self.tile_counts();
        let all = b * m * n;
        // small matrices of a batch share a task, and a negligible product is a single task
        let per = (20.0 * all as f64 / self.cost_us.max(1e-3)).ceil().max(1.0) as i64;
        let per = per.min(all.max(1));
        (all + per - 1) / per
    }
    /// Runs one task of `chunks`.
    ///
    /// # Safety
    /// The contract of `interpreter::run` holds for the operands and for the tiles of this task.
    /// The result overlaps no operand of the product.
    pub(crate) unsafe fn run(&self, chunk: i64, chunks: i64, base: &[*mut u8], s: &mut Scratch) {
        let (batch, rows, columns) = self.tile_counts();
        let all = batch * rows * columns;
        for t in all * chunk / chunks..all * (chunk + 1) / chunks {
            let (mut k, r, c) = (t / (rows * columns), t / columns % rows, t % columns);
            let (mut lo, mut hi) = ([0; MAX_LOOPS], [1; MAX_LOOPS]);
            for d in (0..self.rank).rev() {
                if Some(d) == self.row_dim {
                    (lo[d], hi[d]) = (r * self.tile_rows, ((r + 1) * self.tile_rows).min(self.ext[d]));
                } else if Some(d) == self.column_dim {
                    (lo[d], hi[d]) = (c * self.tile_columns, ((c + 1) * self.tile_columns).min(self.ext[d]));
                } else {
                    lo[d] = k % self.ext[d];
                    hi[d] = lo[d] + 1;
                    k /= self.ext[d];
                }
            }
            // SAFETY: the tile is in the result, and the caller upholds the contract for its
            // operands.
            unsafe { self.run_tile(&lo, &hi, base, s) }
        }
    }
    /// Computes one tile of the result, and runs the epilogue on it.
    ///
    /// # Safety
    /// The contract of `interpreter::run` holds for the tile `lo..hi` and its operands. The tile
    /// overlaps no operand of the product.
    unsafe fn run_tile(&self, lo: &LoopVec, hi: &LoopVec, base: &[*mut u8], s: &mut Scratch) {
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
        if let Some(t) = &self.epilogue {
            // SAFETY: the epilogue runs over the space of the result, so the tile is in it; the
            // caller upholds the contract of `interpreter::run` for the tile.
            unsafe { interpreter::run(t, base, lo, hi, s) }
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
