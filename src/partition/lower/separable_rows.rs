//! Lowers row kernels that run along one dimension after another, such as Fourier transforms.
//!
//! If a dimension of the row is split, or if there is one large row, each dimension becomes a
//! step, which the workers share. Before the step of a split dimension, devices exchange blocks, so
//! that another dimension is split instead: an all-to-all moves a fraction of what a gather of the
//! rows moves.

use crate::core::{DType, Scalar};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, RowKernel, RowKernelCall, RowSharding, Source,
    StridedRange,
};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::lower::equations::Lowering;
use crate::partition::program::Slot;
use std::sync::Arc;

/// The minimum number of elements of a large row, in which the workers share each step.
const LARGE_ROW_ELEMENTS: usize = 1 << 16;

/// A step along one dimension.
struct Stage {
    kernel: Arc<dyn RowKernel>,
    /// The dimension.
    dim: usize,
    /// The element type of the result.
    dtype: DType,
    /// The shape of the result.
    shape: Vec<usize>,
    /// The layout of the result, in which the dimension is unsplit.
    dims: Vec<DimLayout>,
}

impl Lowering {
    /// Lowers a separable row kernel, and returns the result of each step.
    ///
    /// `None` if rows are not split, and small or several, or if no other dimension can be split
    /// instead.
    pub(super) fn lower_separable_rows(
        &mut self,
        list: &[LoopNest],
        layouts: &[Layout],
    ) -> Option<Vec<Slot>> {
        let ([nest], [to]) = (list, layouts) else { return None };
        let call = nest.compute.row_kernel()?;
        let dtypes: Vec<DType> = nest.accesses.iter().map(|access| access.dtype).collect();
        let RowSharding::Separable { stages } = call.kernel.sharding(&dtypes) else { return None };
        let operand = self.plain_operand(nest, call)?;
        let stored = &self.draft.slots[operand];
        let held = &stored.layout;
        let split = call.row_loops.iter().any(|d| held.dims[*d].num_shards() > 1);
        let row_elements: usize = call.row_loops.iter().map(|d| stored.shape[*d]).product();
        // (of several rows, each is transformed by one worker in one pass over memory)
        let large = stages.len() > 1
            && row_elements >= LARGE_ROW_ELEMENTS
            && stored.shape.num_elements() == row_elements;
        if !(split || large) || held.partial.is_some() || to.partial.is_some() {
            return None;
        }
        let stages = self.plan_stages(operand, call, stages)?;
        let (mut made, mut from) = (Vec::new(), operand);
        let last = stages.len() - 1;
        for (k, stage) in stages.into_iter().enumerate() {
            let layout =
                if k == last { to.clone() } else { Layout { dims: stage.dims.clone(), partial: None } };
            let nest = self.stage_nest(from, stage);
            from = self.draft.add_local(nest, layout, &self.origin);
            made.push(from);
        }
        Some(made)
    }

    /// Returns the operand of a row kernel, if dimension `d` of it is dimension `d` of the result.
    fn plain_operand(&self, nest: &LoopNest, call: &RowKernelCall) -> Option<Slot> {
        let [access] = &nest.accesses[..] else { return None };
        let [piece] = &access.pieces[..] else { return None };
        let Source::Value(slot) = piece.source else { return None };
        let read_at = |d: usize| match call.row_loops.iter().position(|l| *l == d) {
            Some(k) => AffineExpr::linear(0, nest.rank + k, 1),
            None => AffineExpr::linear(0, d, 1),
        };
        let plain = piece.map.len() == nest.rank
            && nest.extents.len() == nest.rank + call.row_loops.len()
            && piece.map.iter().enumerate().all(|(d, at)| *at == read_at(d));
        plain.then_some(slot)
    }

    /// Returns the steps, with a layout of each result; `None` if a dimension must be gathered.
    fn plan_stages(
        &self,
        operand: Slot,
        call: &RowKernelCall,
        stages: Vec<(usize, Arc<dyn RowKernel>)>,
    ) -> Option<Vec<Stage>> {
        let stored = &self.draft.slots[operand];
        let (mut dtype, mut shape) = (stored.dtype, stored.shape.to_vec());
        let mut dims = stored.layout.dims.clone();
        let mut planned: Vec<Stage> = Vec::new();
        for (row_dim, kernel) in stages {
            let dim = call.row_loops[row_dim];
            let done = |d: &usize| planned.iter().any(|stage| stage.dim == *d);
            let open = |d: &usize| call.row_loops.contains(d) && !done(d);
            // a dimension that a later step needs unsplit is split only if there is no other
            let order = |d: &usize| (open(d), !done(d), *d);
            let mut others: Vec<usize> = (0..shape.len()).filter(|d| *d != dim).collect();
            others.sort_unstable_by_key(order);
            dims = with_unsplit_dim(&dims, &shape, dim, &others)?;
            let (made, row) = kernel.shapes(&[(dtype, [shape[dim]].into())]).ok()?.into_iter().next()?;
            let [size] = row[..] else { return None };
            (dtype, shape[dim], dims[dim]) = (made, size, DimLayout::new(size, []));
            planned.push(Stage { kernel, dim, dtype, shape: shape.clone(), dims: dims.clone() });
        }
        Some(planned)
    }

    /// Returns the loop nest of a step that reads `from`.
    fn stage_nest(&self, from: Slot, stage: Stage) -> LoopNest {
        let Stage { kernel, dim, dtype, shape, .. } = stage;
        let stored = &self.draft.slots[from];
        let rank = shape.len();
        let extents: Vec<usize> = shape.into_iter().chain([stored.shape[dim]]).collect();
        let map = (0..rank).map(|d| AffineExpr::linear(0, if d == dim { rank } else { d }, 1)).collect();
        let piece =
            AccessPiece { source: Source::Value(from), ranges: StridedRange::full_box(&extents), map };
        let access = Access { dtype: stored.dtype, pieces: vec![piece], fill: Scalar::zero(stored.dtype) };
        let row_loops = std::iter::once(dim).collect();
        let compute = Compute::RowKernel(RowKernelCall { kernel, result_index: 0, row_loops });
        LoopNest { extents, rank, dtype, accesses: vec![access], compute }
    }
}

/// Returns layouts in which dimension `dim` is unsplit, and one of the others takes its shards.
///
/// The first of the others that divides evenly is preferred. `None` if none has enough elements.
fn with_unsplit_dim(
    dims: &[DimLayout],
    shape: &[usize],
    dim: usize,
    others: &[usize],
) -> Option<Vec<DimLayout>> {
    let mut dims = dims.to_vec();
    let shards = dims[dim].num_shards();
    if shards == 1 {
        return Some(dims);
    }
    let fits = |d: &&usize| shape[**d] >= shards * dims[**d].num_shards();
    let even = |d: &&usize| fits(d) && shape[**d].is_multiple_of(shards * dims[**d].num_shards());
    let taker = *others.iter().find(even).or_else(|| others.iter().find(fits))?;
    let sub_axes = dims[taker].sub_axes.iter().chain(&dims[dim].sub_axes).copied();
    dims[taker] = DimLayout::new(shape[taker], sub_axes.collect::<Vec<_>>());
    dims[dim] = DimLayout::new(shape[dim], []);
    Some(dims)
}
