//! Converts sharded values to partial ones without communication.
//!
//! Each device keeps its block and has zeros elsewhere.

use crate::core::sharding::sub_axes::{in_device_order, intersection, num_shards, subtract};
use crate::core::{DType, Scalar, SubAxes};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, Source,
    StridedRange,
};
use crate::partition::draft::{self, DraftStep};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lowering;
use crate::partition::program::{Slot, Step};

impl Lowering {
    /// Returns `src` converted to the partial layout `to`.
    ///
    /// `None` if it is not split over the new partial sub-axes, or not evenly.
    pub(crate) fn lower_to_partial(&mut self, src: Slot, to: &Layout) -> Option<Slot> {
        let from = self.draft.slots[src].clone();
        let parts_of = |l: &Layout| l.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default();
        let (before, after) = (parts_of(&from.layout), parts_of(to));
        let stay = intersection(&before, &after);
        let made = subtract(&after, &stay)?;
        // the sub-axes that now split a dimension and will index partial values
        let sub_axes: Vec<SubAxes> =
            from.layout.dims.iter().map(|l| intersection(&l.sub_axes, &made)).collect();
        if sub_axes.iter().all(|d| d.is_empty()) {
            return None;
        }
        // the layout of the result, with its blocks split further over these sub-axes
        let mut split = Vec::new();
        for ((l, d), n) in to.dims.iter().zip(&sub_axes).zip(&from.shape[..]) {
            if !d.is_empty() && (*n == 0 || n % (l.num_shards() * num_shards(d)) != 0) {
                return None;
            }
            split.push(if d.is_empty() {
                l.clone()
            } else {
                DimLayout::new(*n, l.sub_axes.iter().chain(d).copied())
            });
        }
        let partial = (!stay.is_empty()).then(|| (Reducer::Add, in_device_order(stay)));
        let src = self.draft.with_layout(src, Layout { dims: split, partial }, &self.origin);

        let mut loops = BlockLoops::new(&from.shape, to, &sub_axes);
        let (rank, parted) = (loops.extents.len(), loops.extents.clone());
        let rest = sub_axes.iter().try_fold(made, |left, d| subtract(&left, d))?;
        let (code, folded) = loops.add_partial_loops(&sub_axes, rest, from.dtype)?;
        let BlockLoops { extents, dims, map, .. } = loops;
        let span = extents.iter().map(|n| StridedRange::full(*n)).collect();
        let part = AccessPiece { source: Source::Value(src), ranges: span, map };
        let reads = vec![Access { dtype: from.dtype, pieces: vec![part], fill: Scalar::zero(from.dtype) }];
        let body = Compute::Reduce { reducer: Reducer::Add, code };
        let s = LoopNest { extents, rank, dtype: from.dtype, accesses: reads, compute: body };
        let there = self.draft.add_local(s, Layout { dims, partial: to.partial.clone() }, &self.origin);
        if let Some(DraftStep { step: Step::Local { layout, .. }, .. }) = self.draft.last_step() {
            *layout = folded;
        }
        let s = draft::reshape_nest(there, from.dtype, &parted, &from.shape);
        Some(self.emit(s, to.clone(), true))
    }
}

/// The loops that copy the blocks of a value into partial values.
struct BlockLoops {
    /// The sizes of the loops.
    extents: Vec<usize>,
    /// The layouts of the loops over the result.
    dims: Vec<DimLayout>,
    /// The position in each dimension of the value.
    map: Vec<AffineExpr>,
    /// The dimensions that are split, each with the loop over its device blocks, and their size.
    blocks: Vec<(usize, usize, usize)>,
}

impl BlockLoops {
    /// Creates the loops over a result of layout `to`.
    ///
    /// A dimension that is split over `sub_axes` becomes three: blocks of the result, device blocks
    /// within them, elements.
    fn new(shape: &[usize], to: &Layout, sub_axes: &[SubAxes]) -> BlockLoops {
        let mut loops =
            BlockLoops { extents: Vec::new(), dims: Vec::new(), map: Vec::new(), blocks: Vec::new() };
        for (d, n) in shape.iter().enumerate() {
            let at = loops.extents.len();
            if sub_axes[d].is_empty() {
                loops.map.push(AffineExpr::linear(0, at, 1));
                loops.extents.push(*n);
                loops.dims.push(to.dims[d].clone());
                continue;
            }
            let (outer, inner) = (to.dims[d].num_shards(), num_shards(&sub_axes[d]));
            let each = n / outer / inner;
            loops.extents.extend([outer, inner, each]);
            loops.dims.push(DimLayout::new(outer, to.dims[d].sub_axes.clone()));
            loops.dims.extend([inner, each].map(|size| DimLayout::new(size, [])));
            let mut position = AffineExpr::linear(0, at, (inner * each) as i64);
            position.terms.push((at + 2, 1));
            loops.map.push(position);
            loops.blocks.push((d, at + 1, each));
        }
        loops
    }

    /// Adds reduction loops over the partial sub-axes, of which `rest` split no dimension.
    /// Returns the code of an element and the layouts of these loops.
    ///
    /// An element is kept by the iteration of the block that it is in, and by the first iteration
    /// for sub-axes that split no dimension.
    fn add_partial_loops(
        &mut self,
        sub_axes: &[SubAxes],
        rest: SubAxes,
        dtype: DType,
    ) -> Option<(ScalarCode, Vec<DimLayout>)> {
        let mut code = ScalarCode { insts: Vec::new() };
        let mut mine: Option<ScalarArg> = None;
        let mut folded = Vec::new();
        let mut only = |code: &mut ScalarCode, is: [ScalarArg; 2]| {
            let here = code.push(ScalarOp::Eq, DType::I64, DType::Bool, &is);
            mine = Some(match mine {
                Some(others) => code.push(ScalarOp::And, DType::Bool, DType::Bool, &[others, here]),
                None => here,
            });
        };
        for (d, block, each) in std::mem::take(&mut self.blocks) {
            let (part, n) = (self.extents.len(), self.extents[block]);
            self.extents.push(n);
            folded.push(DimLayout::new(n, sub_axes[d].clone()));
            self.map[d].terms.push((part, each as i64));
            only(&mut code, [ScalarArg::Index(block), ScalarArg::Index(part)]);
        }
        if !rest.is_empty() {
            let first = ScalarArg::Const(Scalar::Int(0));
            only(&mut code, [ScalarArg::Index(self.extents.len()), first]);
            self.extents.push(num_shards(&rest));
            folded.push(DimLayout::new(num_shards(&rest), in_device_order(rest)));
        }
        let zero = ScalarArg::Const(Scalar::zero(dtype));
        code.push(ScalarOp::Select, dtype, dtype, &[mine?, ScalarArg::Access(0), zero]);
        Some((code, folded))
    }
}
