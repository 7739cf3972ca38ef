//! Two-phase row kernels: rows whose blocks are on several devices.
//!
//! Each device processes its blocks, and devices exchange a small summary: the total of each block
//! for a scan, the k best elements of each block for `top_k`. If that moves more than moving or
//! gathering the rows, the rows are not split, and the layout of the step is chosen with all
//! others.

use crate::core::{DType, Scalar};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, RowKernel, RowKernelCall, RowSharding, ScalarArg,
    ScalarCode, ScalarOp, Source, StridedRange,
};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, StoredValue};
use crate::partition::{draft, lower::equations::Lowering};
use std::sync::Arc;

/// Operands of a row kernel, all split in the same way along the row.
/// Each device has blocks of rows.
struct RowBlocks {
    /// The operands, of one shape, with their element types.
    operands: Vec<(Slot, DType)>,
    /// The shape of the operands, with the number of blocks instead of the row length.
    shape: Vec<usize>,
    /// The dimension of the row.
    axis: usize,
    /// The length of a row, in elements.
    size: usize,
    /// The length of a block, in elements.
    /// The last blocks may be shorter.
    block_size: usize,
    /// The layout of each dimension.
    /// That of the row is a layout of its blocks.
    dims: Vec<DimLayout>,
}

impl Lowering {
    /// Lowers row kernels in two phases.
    /// `None` if the rows are not split, or if that would move more.
    pub(crate) fn lower_two_phase(&mut self, list: &[LoopNest], layouts: &[Layout]) -> Option<Vec<Slot>> {
        let row_kernel = list.first()?.compute.row_kernel()?;
        let dtypes: Vec<DType> = list[0].accesses.iter().map(|r| r.dtype).collect();
        let cut = row_kernel.kernel.sharding(&dtypes);
        if let RowSharding::Sum { dims: over } = &cut {
            return self.lower_partial_rows(list, over, layouts);
        }
        let mut blocks = self.row_blocks(&list[0], row_kernel, layouts)?;
        let (n, size) = (blocks.shape[blocks.axis], blocks.size);
        match cut {
            RowSharding::Scan {
                totals,
                total_dtypes: told,
                exclusive_scan: before,
                carry_dtype: state,
                block,
                neutral,
            } => {
                // the result must be sharded like the operands, and the totals must be fewer
                // elements than those of operands and result, which would otherwise move: (1 +
                // operands)·size/n per device
                let alike = layouts[0].dims[blocks.axis]
                    == self.draft.slots[blocks.operands[0].0].layout.dims[blocks.axis];
                if list.len() != 1 || !alike || told.len() * n * n >= (1 + blocks.operands.len()) * size {
                    return None;
                }
                self.pad_blocks(&mut blocks, &neutral);
                let totals = self.block_totals(&blocks, &totals, &told);
                let states = self.block_prefixes(&blocks, totals, before, state);
                Some(vec![self.second_pass(&blocks, states, block, (list[0].dtype, state), &layouts[0])])
            }
            RowSharding::TopK { k, block, merge: of, neutral } => {
                // a candidate consists of a value and an index, hence the factor of 2
                if 2 * n * k >= size || k > blocks.block_size {
                    return None;
                }
                self.pad_blocks(&mut blocks, &[neutral]);
                let found = self.candidates(&blocks, k, block, list);
                Some(
                    list.iter()
                        .zip(layouts)
                        .map(|(s, to)| self.merge_candidates(&blocks, k, &of, found, s, to))
                        .collect(),
                )
            }
            RowSharding::Sum { .. } | RowSharding::Separable { .. } | RowSharding::NotSharded => None,
        }
    }

    /// Returns the blocks of a row kernel's operands.
    /// `None` if they are not all split in the same way along the row.
    fn row_blocks(&self, s: &LoopNest, row_kernel: &RowKernelCall, layouts: &[Layout]) -> Option<RowBlocks> {
        let [axis] = row_kernel.row_loops[..] else { return None };
        if s.extents.len() != s.rank + 1 || layouts.iter().any(|l| l.partial.is_some()) {
            return None;
        }
        let at = |d| AffineExpr::linear(0, if d == axis { s.rank } else { d }, 1);
        let read = |read: &Access| {
            let [part] = &read.pieces[..] else { return None };
            let Source::Value(slot) = part.source else { return None };
            let stored = &self.draft.slots[slot];
            let plain =
                stored.shape.rank() == s.rank && part.map.iter().enumerate().all(|(d, m)| *m == at(d));
            (plain && stored.layout.partial.is_none()).then_some((slot, stored.dtype))
        };
        let reads: Vec<_> = s.accesses.iter().map(read).collect::<Option<_>>()?;
        let first = &self.draft.slots[reads.first()?.0];
        let (held, size) = (&first.layout.dims[axis], first.shape[axis]);
        let alike = reads.iter().all(|(slot, _)| {
            let other = &self.draft.slots[*slot];
            other.shape == first.shape && other.layout.dims[axis] == *held
        });
        let n = held.num_shards();
        if !alike || n == 1 || size == 0 || *held != DimLayout::new(size, held.sub_axes.clone()) {
            return None;
        }
        let mut shape = first.shape.to_vec();
        shape[axis] = n;
        let mut dims = first.layout.dims.clone();
        dims[axis] = DimLayout::new(n, held.sub_axes.clone());
        Some(RowBlocks { operands: reads, shape, axis, size, block_size: size.div_ceil(n), dims })
    }
    /// Pads the last blocks with neutral elements, so that all blocks have equal size.
    fn pad_blocks(&mut self, b: &mut RowBlocks, neutral: &[Scalar]) {
        let n = b.shape[b.axis];
        if b.size == n * b.block_size {
            return;
        }
        for ((slot, dtype), fill) in b.operands.iter_mut().zip(neutral) {
            let StoredValue { shape, mut layout, .. } = self.draft.slots[*slot].clone();
            let mut extents = shape.to_vec();
            extents[b.axis] = n * b.block_size;
            let loops: Vec<_> = (0..extents.len()).map(Some).collect();
            let mut read = Access { fill: *fill, ..Access::from_loops(*slot, *dtype, &extents, &loops) };
            read.pieces[0].ranges[b.axis] = StridedRange::full(b.size);
            layout.dims[b.axis] = DimLayout::new(n * b.block_size, layout.dims[b.axis].sub_axes.clone());
            *slot = self.draft.add_local(draft::map_nest(read, &extents), layout, &self.origin);
        }
    }

    /// Computes the total of each block.
    fn block_totals(
        &mut self,
        b: &RowBlocks,
        of: &Arc<dyn RowKernel>,
        total_dtypes: &[DType],
    ) -> Vec<(Slot, DType)> {
        let rank = b.shape.len();
        let extents: Vec<usize> = b.shape.iter().copied().chain([b.block_size]).collect();
        let reads = b.block_accesses(&extents, |d| d, rank);
        let one = |(result, dtype): (usize, &DType)| {
            let body = Compute::RowKernel(RowKernelCall {
                kernel: of.clone(),
                result_index: result,
                row_loops: Default::default(),
            });
            let s = LoopNest {
                extents: extents.clone(),
                rank,
                dtype: *dtype,
                accesses: reads.clone(),
                compute: body,
            };
            (self.draft.add_local(s, Layout { dims: b.dims.clone(), partial: None }, &self.origin), *dtype)
        };
        total_dtypes.iter().enumerate().map(one).collect()
    }
    /// Computes, for each block, the total of the blocks before it.
    fn block_prefixes(
        &mut self,
        b: &RowBlocks,
        totals: Vec<(Slot, DType)>,
        of: Arc<dyn RowKernel>,
        dtype: DType,
    ) -> Slot {
        let rank = b.shape.len();
        let extents: Vec<usize> = b.shape.iter().copied().chain([b.shape[b.axis]]).collect();
        let loops: Vec<_> = (0..rank).map(|d| Some(if d == b.axis { rank } else { d })).collect();
        let reads = totals.into_iter().map(|(slot, dtype)| Access::from_loops(slot, dtype, &extents, &loops));
        let reads = reads.collect();
        let body = Compute::RowKernel(RowKernelCall {
            kernel: of,
            result_index: 0,
            row_loops: std::iter::once(b.axis).collect(),
        });
        let s = LoopNest { extents, rank, dtype, accesses: reads, compute: body };
        self.draft.add_local(s, Layout { dims: b.dims.clone(), partial: None }, &self.origin)
    }
    /// Computes the result from the blocks of the operands and the totals before them.
    fn second_pass(
        &mut self,
        b: &RowBlocks,
        states: Slot,
        of: Arc<dyn RowKernel>,
        (dtype, state): (DType, DType),
        to: &Layout,
    ) -> Slot {
        let (shape, dims) = b.with_block_dim(b.block_size);
        let rank = shape.len();
        let extents: Vec<usize> = shape.iter().copied().chain([b.block_size]).collect();
        let loops: Vec<_> = (0..b.shape.len()).map(|d| Some(b.dim_index(d))).collect();
        let mut reads = b.block_accesses(&extents, |d| b.dim_index(d), rank);
        reads.push(Access::from_loops(states, state, &extents, &loops));
        let body = Compute::RowKernel(RowKernelCall {
            kernel: of,
            result_index: 0,
            row_loops: std::iter::once(b.axis + 1).collect(),
        });
        let s = LoopNest { extents, rank, dtype, accesses: reads, compute: body };
        let partials = self.draft.add_local(s, Layout { dims, partial: None }, &self.origin);
        let mut full = b.shape.clone();
        full[b.axis] *= b.block_size;
        let s = draft::reshape_nest(partials, dtype, &shape, &full);
        let mut layout = to.clone();
        layout.dims[b.axis] = DimLayout::new(full[b.axis], to.dims[b.axis].sub_axes.clone());
        let all = self.draft.add_local(s, layout, &self.origin);
        if full[b.axis] == b.size {
            return all;
        }
        full[b.axis] = b.size;
        self.draft.add_local(draft::copy_nest(all, dtype, &full), to.clone(), &self.origin)
    }

    /// Computes the best elements of each block, and their indices in the row.
    fn candidates(
        &mut self,
        b: &RowBlocks,
        k: usize,
        of: Arc<dyn RowKernel>,
        list: &[LoopNest],
    ) -> [Slot; 2] {
        let (shape, dims) = b.with_block_dim(k);
        let rank = shape.len();
        let extents: Vec<usize> = shape.iter().copied().chain([b.block_size]).collect();
        let layout = Layout { dims, partial: None };
        let [values, places] = [0, 1].map(|result| {
            let along = std::iter::once(b.axis + 1).collect();
            let body = Compute::RowKernel(RowKernelCall {
                kernel: of.clone(),
                result_index: result,
                row_loops: along,
            });
            let reads = b.block_accesses(&extents, |d| b.dim_index(d), rank);
            let dtype = [b.operands[0].1, DType::I32][result];
            let s = LoopNest { extents: extents.clone(), rank, dtype, accesses: reads, compute: body };
            self.draft.add_local(s, layout.clone(), &self.origin)
        });
        debug_assert!(list.len() <= 2, "values and indices");
        let mut code = ScalarCode { insts: Vec::new() };
        let block = code.push(ScalarOp::Convert, DType::I64, DType::I32, &[ScalarArg::Index(b.axis)]);
        let each = ScalarArg::Const(Scalar::Int(b.block_size as i128));
        let begin = code.push(ScalarOp::Mul, DType::I32, DType::I32, &[block, each]);
        code.push(ScalarOp::Add, DType::I32, DType::I32, &[ScalarArg::Access(0), begin]);
        let loops: Vec<_> = (0..rank).map(Some).collect();
        let reads = vec![Access::from_loops(places, DType::I32, &shape, &loops)];
        let s = LoopNest::map(shape, DType::I32, reads, code);
        [values, self.draft.add_local(s, layout, &self.origin)]
    }
    /// Computes a result from the candidates of all blocks.
    fn merge_candidates(
        &mut self,
        b: &RowBlocks,
        k: usize,
        of: &Arc<dyn RowKernel>,
        found: [Slot; 2],
        s: &LoopNest,
        to: &Layout,
    ) -> Slot {
        let row_kernel = s.compute.row_kernel().expect("its rows were split");
        let rank = s.rank;
        let extents: Vec<usize> = s.extents[..rank].iter().copied().chain([b.shape[b.axis], k]).collect();
        // the loops run over the blocks, then over their candidates
        let at = |d: usize| match d {
            d if d < b.axis => d,
            d if d == b.axis => rank,
            d if d == b.axis + 1 => rank + 1,
            d => d - 1,
        };
        let loops: Vec<_> = (0..=rank).map(|d| Some(at(d))).collect();
        let read = |(slot, dtype)| Access::from_loops(slot, dtype, &extents, &loops);
        let reads = found.into_iter().zip([b.operands[0].1, DType::I32]).map(read).collect();
        let body = Compute::RowKernel(RowKernelCall { kernel: of.clone(), ..row_kernel.clone() });
        let s = LoopNest { extents, rank, dtype: s.dtype, accesses: reads, compute: body };
        self.draft.add_local(s, to.clone(), &self.origin)
    }
}

impl RowBlocks {
    /// Returns the index of dimension `d` once a dimension follows that of the blocks.
    fn dim_index(&self, d: usize) -> usize {
        if d > self.axis { d + 1 } else { d }
    }
    /// Returns shape and layout with a dimension inserted after that of the blocks.
    fn with_block_dim(&self, size: usize) -> (Vec<usize>, Vec<DimLayout>) {
        let (mut shape, mut dims) = (self.shape.clone(), self.dims.clone());
        shape.insert(self.axis + 1, size);
        dims.insert(self.axis + 1, DimLayout::new(size, []));
        (shape, dims)
    }
    /// Returns accesses of the operands by blocks.
    /// Dimension `d` is read at loop `place(d)`, the elements of a block at loop `along`.
    fn block_accesses(
        &self,
        extents: &[usize],
        position: impl Fn(usize) -> usize,
        along: usize,
    ) -> Vec<Access> {
        let at = |d: usize| {
            let mut m =
                AffineExpr::linear(0, position(d), if d == self.axis { self.block_size as i64 } else { 1 });
            if d == self.axis {
                m.terms.push((along, 1));
            }
            m
        };
        let map: Vec<AffineExpr> = (0..self.shape.len()).map(at).collect();
        let read = |(slot, dtype): &(Slot, DType)| {
            let part = AccessPiece {
                source: Source::Value(*slot),
                ranges: StridedRange::full_box(extents),
                map: map.clone(),
            };
            Access { dtype: *dtype, pieces: vec![part], fill: Scalar::zero(*dtype) }
        };
        self.operands.iter().map(read).collect()
    }
}
