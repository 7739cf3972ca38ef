//! Converts sharded values to partial ones without communication.
//!
//! Each device keeps its block and has zeros elsewhere.

use crate::core::sharding::sub_axes::in_device_order;
use crate::core::sharding::sub_axes::{SubAxes, intersection, num_shards, subtract};
use crate::core::types::{DType, Scalar};
use crate::ir::program::loop_nest::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, Source,
    StridedRange,
};
use crate::partition::draft;
use crate::partition::draft::DraftStep;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lowering;
use crate::partition::program::{Slot, Step, StepOrigin};

impl Lowering {
    /// Returns `src` converted to the partial layout `to`.
    ///
    /// `None` if it is not split over the new partial sub-axes, or not evenly.
    pub(crate) fn lower_to_partial(&mut self, src: Slot, to: &Layout, why: &StepOrigin) -> Option<Slot> {
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
        let src = self.draft.with_layout(src, Layout { dims: split, partial }, why);

        // such a dimension becomes three: blocks of the result, device blocks within them, elements
        let (mut extents, mut dims, mut map) = (Vec::new(), Vec::new(), Vec::new());
        let mut blocks = Vec::new();
        for (d, n) in from.shape.iter().enumerate() {
            let at = extents.len();
            if sub_axes[d].is_empty() {
                map.push(AffineExpr::linear(0, at, 1));
                extents.push(*n);
                dims.push(to.dims[d].clone());
                continue;
            }
            let (outer, inner) = (to.dims[d].num_shards(), num_shards(&sub_axes[d]));
            let each = n / outer / inner;
            extents.extend([outer, inner, each]);
            dims.push(DimLayout::new(outer, to.dims[d].sub_axes.clone()));
            dims.extend([inner, each].map(|size| DimLayout::new(size, [])));
            let mut position = AffineExpr::linear(0, at, (inner * each) as i64);
            position.terms.push((at + 2, 1));
            map.push(position);
            blocks.push((d, at + 1, each));
        }
        let rank = extents.len();
        let parted = extents.clone();
        // add reduction loops over the partial sub-axes: an element is kept by the iteration of the
        // block that it is in, or by the first iteration for sub-axes that split no dimension
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
        for (d, block, each) in blocks {
            let part = extents.len();
            extents.push(parted[block]);
            folded.push(DimLayout::new(parted[block], sub_axes[d].clone()));
            map[d].terms.push((part, each as i64));
            only(&mut code, [ScalarArg::Index(block), ScalarArg::Index(part)]);
        }
        let rest = sub_axes.iter().try_fold(made, |left, d| subtract(&left, d))?;
        if !rest.is_empty() {
            only(&mut code, [ScalarArg::Index(extents.len()), ScalarArg::Const(Scalar::Int(0))]);
            extents.push(num_shards(&rest));
            folded.push(DimLayout::new(num_shards(&rest), in_device_order(rest)));
        }
        let zero = Scalar::zero(from.dtype);
        code.push(
            ScalarOp::Select,
            from.dtype,
            from.dtype,
            &[mine?, ScalarArg::Access(0), ScalarArg::Const(zero)],
        );
        let span = extents.iter().map(|n| StridedRange::full(*n)).collect();
        let part = AccessPiece { source: Source::Value(src), ranges: span, map };
        let reads = vec![Access { dtype: from.dtype, pieces: vec![part], fill: zero }];
        let body = Compute::Reduce { reducer: Reducer::Add, code };
        let s = LoopNest { extents, rank, dtype: from.dtype, accesses: reads, compute: body };
        let there = self.draft.add_local(s, Layout { dims, partial: to.partial.clone() }, why);
        if let Some(DraftStep { step: Step::Local { layout, .. }, .. }) = self.draft.last_step() {
            *layout = folded;
        }
        let s = draft::reshape_nest(there, from.dtype, &parted, &from.shape);
        Some(self.emit(s, to.clone(), why, true))
    }
}
