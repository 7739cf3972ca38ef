//! Binds matmuls to memory, and chooses their tiles.

use super::gathered::GatheredSides;
use super::{ContractionBlock, MatmulKernel, MatrixOperand};
use crate::core::{DType, Error, Result};
use crate::exec::compile::codegen::segments::{self, CodegenRequest};
use crate::exec::compile::fusion::{FusionPlan, FusionRoot};
use crate::exec::{
    compile::codegen::tile_program::TileProgram, compile::codegen::values::scalar_bits,
    compile::index::LoopVec, compile::index::MAX_LOOPS, compile::ir::ReductionLoops, runtime::thread_pool,
};
use crate::ir::program::{ScalarArg, ScalarOp, Source};
use crate::kernels::gemm::{PANEL_TERMS, ProductKind};
use crate::partition::Slot;
use crate::partition::fusion::matmul::{MatmulOperand, MatmulSpace, matmul_flops_per_us};
use smallvec::SmallVec;

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
    let space = MatmulSpace::new(g, group, same);
    let epilogue = bind_epilogue(g, group, &space, base, same, over)?;
    let operand = |x: &MatmulOperand| MatrixOperand {
        slot: x.value as u32 + base,
        offset: x.offset,
        strides: x.strides,
    };
    let [a, b, c] = [0, 1, 2].map(|k| operand(&space.operands[k]));
    let (row_dim, column_dim, method) = (space.row_dim, space.column_dim, space.kind);
    let partials: Vec<Vec<ContractionBlock>> = f
        .partials
        .iter()
        .map(|c| c.iter().filter_map(|r| contraction_block(f, &r.lo, &r.hi)).collect())
        .collect();
    let size = |d: Option<usize>| d.map_or(1, |d| space.ext[d]);
    let (rows, columns) = (size(row_dim), size(column_dim));
    let elements = space.elements();
    let batch = elements / (rows.max(1) * columns.max(1)).max(1);
    let product = ProductSizes { rows, columns, batch, depth: space.depth, elements };
    let blocks: usize = partials.iter().map(Vec::len).sum();
    let gathered = GatheredSides::choose(&space, &partials);
    let tile = match &gathered {
        Some(sides) => sides.choose_tile(&space),
        None => {
            let (rows, columns) = product.choose_tile();
            let mut tile = [1; MAX_LOOPS];
            row_dim.into_iter().for_each(|d| tile[d] = rows);
            column_dim.into_iter().for_each(|d| tile[d] = columns);
            tile
        }
    };
    let num_tiles: i64 = (0..space.rank).map(|d| (space.ext[d] + tile[d] - 1) / tile[d]).product();
    let cost_us = product.flops() / matmul_flops_per_us(f.dtype)
        + 0.1 * blocks as f64 * num_tiles as f64
        + epilogue.as_ref().map_or(0.0, |t| t.ns_per_element * elements as f64 / 1000.0);
    let apart = gathered.is_some() || method != ProductKind::MatMat || !fits_one_panel(&partials);
    let scale = if apart { None } else { epilogue_scale(g, group, same) };
    Ok(MatmulKernel {
        dtype: f.dtype,
        a,
        b,
        c,
        partial_stride: if v.num_partials > 1 { v.strides[0] } else { 0 },
        ext: space.ext,
        rank: space.rank,
        row_dim,
        column_dim,
        method,
        tile,
        gathered,
        partials,
        epilogue: epilogue.filter(|_| scale.is_none()),
        scale: scale.unwrap_or(1.0),
        cost_us,
    })
}

/// Returns the code of the operations on each tile of the result, over the dimensions of `space`.
fn bind_epilogue(
    g: &FusionPlan<'_, '_>,
    group: usize,
    space: &MatmulSpace,
    base: u32,
    same: Option<Slot>,
    over: &[(Slot, Slot)],
) -> Result<Option<TileProgram>> {
    let FusionRoot::Matmul(k) = g.groups[group].root else { unreachable!("the root is a matmul") };
    if g.groups[group].members.is_empty() {
        return Ok(None);
    }
    let request = CodegenRequest {
        order: &space.order,
        stream: false,
        alias: same.map(|s| (g.reduction_loops(k).out, s)),
        overwrites: over,
        slot_base: base,
    };
    let mut tiles = segments::tile_program(g, group, &request)?;
    for d in &space.merged {
        if !tiles.can_collapse(*d) {
            return Err(Error::internal("the code of a matmul's epilogue is cut where its accesses are not"));
        }
        tiles.collapse_pair(*d);
    }
    Ok(Some(tiles))
}

/// The sizes of a batch of matrix products.
struct ProductSizes {
    /// The number of rows of a matrix.
    rows: i64,
    /// The number of columns of a matrix.
    columns: i64,
    /// The number of matrices.
    batch: i64,
    /// The number of terms of an element.
    depth: i64,
    /// The number of elements of the result.
    elements: i64,
}

impl ProductSizes {
    /// Returns the number of floating-point operations.
    fn flops(&self) -> f64 {
        2.0 * self.elements as f64 * self.depth as f64
    }
    /// Returns the number of tiles of these sizes.
    fn num_tiles(&self, tm: i64, tn: i64) -> i64 {
        (self.rows + tm - 1) / tm * ((self.columns + tn - 1) / tn) * self.batch
    }
    /// Chooses the numbers of rows and columns of a tile.
    fn choose_tile(&self) -> (i64, i64) {
        let (mut tm, mut tn) = (self.rows.max(1), self.columns.max(1));
        let each = |tm: i64, tn: i64| 2.0 * (tm * tn) as f64 * self.depth as f64;
        // (partial sums need temporary memory, one tile each)
        let large = |tm: i64, tn: i64| each(tm, tn) > 2.2e9 || tm * tn > 1 << 22;
        // Each of a few workers gets at least two tiles, so that other workers can take over tiles
        // of a delayed one, and all get the same number of tiles. There are no more tiles than
        // that, since each tile packs its operands.
        let workers = thread_pool::thread_pool().num_workers() as i64;
        let least = if workers == 1 { 1 } else { workers.max((2 * workers).min(8)) };
        let even =
            |tiles: i64| tiles >= least && 5 * tiles >= 4 * ((tiles + workers - 1) / workers * workers);
        // (a long contraction justifies a task even if few rows and columns use the packed operands)
        let small = |tm: i64, tn: i64| tm.max(tn) <= if each(tm, tn) > 1.2e7 { 32 } else { 64 };
        while self.flops() > 2e6 && !small(tm, tn) && (!even(self.num_tiles(tm, tn)) || large(tm, tn)) {
            if tm >= tn {
                tm = (tm + 1) / 2;
            } else {
                tn = (tn + 1) / 2;
            }
        }
        (tm, tn)
    }
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
