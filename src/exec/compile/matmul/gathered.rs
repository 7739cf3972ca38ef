//! Matmuls whose rows, columns or terms are several loops, such as convolutions.

use super::{ContractionBlock, MatmulKernel};
use crate::core::DType;
use crate::exec::compile::index::LoopVec;
use crate::exec::runtime::thread_pool;
use crate::kernels::gemm::ProductKind;
use crate::kernels::gemm::gathered::{ProductSide, ProductTerms, gathered, usable};
use crate::partition::fusion::matmul::MatmulSpace;
use smallvec::SmallVec;

/// The number of float32 elements in a vector; of float64, there are half as many.
const VECTOR_LANES: i64 = 16;
/// The size of each side and the number of terms of a turn from which on one matrix after the
/// other is faster.
const LARGE_MATRIX: i64 = 128;
/// The maximum number of elements of a tile, whose epilogue reads them from the cache.
const TILE_ELEMENTS: i64 = 1 << 18;

/// The sides of a product whose rows and columns are anywhere in memory.
#[derive(Clone, Debug)]
pub(super) struct GatheredSides {
    /// The operand that fills vectors: 0 is the left one.
    lanes: usize,
    /// The dimensions of the result that are rows of each operand, in order.
    dims: [SmallVec<[usize; 4]>; 2],
    /// The dimensions of the result that are in both operands, or in none.
    batch: SmallVec<[usize; 4]>,
    /// For each partial of the result, the terms of its shards.
    terms: Vec<Vec<ProductTerms>>,
}

impl GatheredSides {
    /// Returns the sides if the product is computed faster this way than matrix by matrix.
    pub(super) fn choose(m: &MatmulSpace, partials: &[Vec<ContractionBlock>]) -> Option<GatheredSides> {
        let float = matches!(m.dtype(), DType::F32 | DType::F64);
        let empty = m.elements() == 0 || partials.iter().any(Vec::is_empty);
        if !usable() || !float || m.kind != ProductKind::MatMat || empty {
            return None;
        }
        let stride = |k: usize, d: usize| m.operands[k].strides[d];
        let of = |k: usize| (0..m.rank).filter(move |d| stride(k, *d) != 0 && stride(1 - k, *d) == 0);
        let dims: [SmallVec<[usize; 4]>; 2] = [of(0).collect(), of(1).collect()];
        let batch = (0..m.rank).filter(|d| !dims.iter().any(|k| k.contains(d))).collect();
        let turn = partials[0][0].loops.last()?;
        let turns = partials[0][0].loops.len() > 1;
        let matrix = [m.row_dim, m.column_dim].map(|d| d.map_or(1, |d| m.ext[d]));
        let large = matrix.into_iter().chain([turn.0]).all(|n| n >= LARGE_MATRIX);
        if large || !turns && dims.iter().all(|d| d.len() == 1) {
            return None;
        }
        let sides = GatheredSides { lanes: 0, dims, batch, terms: Vec::new() };
        let costs = [0, 1].map(|lanes| sides.cost(m, lanes, turn));
        let lanes = usize::from(costs[1] <= costs[0]);
        let terms = |b: &ContractionBlock| {
            let order = |x: [i64; 2]| [x[1 - lanes] as isize, x[lanes] as isize];
            let ((size, x, y), outer) = b.loops.split_last()?;
            Some(ProductTerms {
                offsets: order([b.a_offset, b.b_offset]),
                outer: outer.iter().map(|(n, x, y)| (*n as usize, order([*x, *y]))).collect(),
                size: *size as usize,
                strides: order([*x, *y]),
            })
        };
        let terms = partials.iter().map(|p| p.iter().filter_map(terms).collect()).collect();
        Some(GatheredSides { lanes, terms, ..sides })
    }
    /// Returns the approximate cycles of a multiply-add if operand `lanes` fills vectors.
    fn cost(&self, m: &MatmulSpace, lanes: usize, turn: &(i64, i64, i64)) -> f64 {
        let size = |k: usize| self.dims[k].iter().map(|d| m.ext[*d]).product::<i64>() as f64;
        let vector = VECTOR_LANES as f64;
        let (n, rows) = (size(lanes), size(1 - lanes));
        let steps = [turn.1, turn.2];
        let filled = (n / vector).ceil() * vector / n;
        // broadcasting elements of many cache lines takes longer
        let broadcast = if steps[1 - lanes] == 1 { 1.0 } else { 1.3 };
        // copying contiguous lanes is cheap
        let near = self.dims[lanes].iter().filter(|d| m.operands[lanes].strides[**d].abs() == 1);
        let copied = match near.map(|d| m.ext[*d]).max() {
            Some(run) => 0.4 + 4.0 / run as f64,
            None if steps[lanes] == 1 => 0.7,
            None => 1.5,
        };
        let adjacent = self.dims[lanes].iter().any(|d| m.operands[2].strides[*d].abs() == 1);
        let written = if adjacent { 0.0 } else { 1.0 };
        filled * broadcast / (2.0 * vector) + copied / rows + written / m.depth as f64
    }
    /// Chooses the sizes of a tile.
    ///
    /// Each worker gets at least two tiles. Tiles are cut along the outermost dimension of the
    /// lanes, which are then copied once, or else along the rows.
    pub(super) fn choose_tile(&self, m: &MatmulSpace) -> LoopVec {
        let mut tile = m.ext;
        self.batch.iter().for_each(|d| tile[*d] = 1);
        let workers = thread_pool::thread_pool().num_workers() as i64;
        let least = if workers == 1 { 1 } else { workers.max((2 * workers).min(8)) };
        loop {
            let all = |dims: &[usize], tile: &LoopVec| dims.iter().map(|d| tile[*d]).product::<i64>();
            let elements = (0..m.rank).map(|d| tile[d]).product::<i64>();
            let tiles = (0..m.rank).map(|d| (m.ext[d] + tile[d] - 1) / tile[d]).product::<i64>();
            let few = tiles < least && 2.0 * elements as f64 * m.depth as f64 > 1e6;
            let long = |dims: &[usize], least: i64| {
                dims.iter().copied().find(|d| tile[*d] > 1).filter(|_| all(dims, &tile) > least)
            };
            let cut = long(&self.dims[self.lanes], 4 * VECTOR_LANES)
                .or_else(|| long(&self.dims[1 - self.lanes], 96))
                .or_else(|| long(&self.dims[self.lanes], 2 * VECTOR_LANES))
                .or_else(|| long(&self.dims[1 - self.lanes], 12));
            match cut {
                Some(d) if few || elements > TILE_ELEMENTS => tile[d] = (tile[d] + 1) / 2,
                _ => return tile,
            }
        }
    }
}

/// Returns the offset of each index of a box of the dimensions `dims`, in elements.
fn box_offsets(dims: &[usize], strides: &LoopVec, (lo, hi): (&LoopVec, &LoopVec)) -> Vec<isize> {
    let mut all = vec![0];
    for d in dims {
        let steps = 0..(hi[*d] - lo[*d]) as isize;
        let step = strides[*d] as isize;
        all = all.iter().flat_map(|at| steps.clone().map(move |i| at + i * step)).collect();
    }
    all
}

impl MatmulKernel {
    /// Computes the products of one tile of the result.
    ///
    /// # Safety
    /// The contract of [`run_tile`](Self::run_tile) holds.
    pub(super) unsafe fn multiply_gathered(
        &self,
        sides: &GatheredSides,
        lo: &LoopVec,
        hi: &LoopVec,
        base: &[*mut u8],
    ) {
        let at = |dims: &[usize], strides: &LoopVec| box_offsets(dims, strides, (lo, hi));
        let (size, operands) = (self.dtype.size(), [&self.a, &self.b]);
        let offsets = [0, 1].map(|k| at(&sides.dims[k], &operands[k].strides));
        let result_offsets = [0, 1].map(|k| at(&sides.dims[k], &self.c.strides));
        let batch = [&self.a, &self.b, &self.c].map(|x| at(&sides.batch, &x.strides));
        for ((a, b), c) in batch[0].iter().zip(&batch[1]).zip(&batch[2]) {
            let side = |x: usize| ProductSide {
                base: self.address(operands[x], lo, [*a, *b][x] as i64, base),
                offsets: &offsets[x],
                result_offsets: &result_offsets[x],
            };
            for (copy, blocks) in sides.terms.iter().enumerate() {
                let more = *c as i64 + copy as i64 * self.partial_stride;
                let to = self.address(&self.c, lo, more, base);
                // SAFETY: operands and result are within their slots, and no operand overlaps the
                // result (caller contract); the plan has this form only if it is usable.
                unsafe { gathered(size, to, &side(1 - sides.lanes), &side(sides.lanes), blocks) }
            }
        }
    }
}
