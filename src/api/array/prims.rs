//! Constructors of the primitives that array methods apply.
//!
//! Each function takes resolved, non-negative dimensions and returns a [`Prim`], so that methods
//! need no paths into `ops` and no `Arc::new`.

use super::{collective_options::AxisGroups, contraction::Contraction};
use crate::api::trace::Setting;
use crate::core::{ArrayType, DType, Mesh, Precision, Scalar, Shape, Spec, types::default_matmul_precision};
use crate::ir::ops::along_axis::{Argsort, CumulativeOp, CumulativeScan, Recurrence, Sort, TopK};
use crate::ir::ops::collective::{
    AllGather, AllGatherTo, AllToAllPrim, AxisIndex, CollectiveGroup, Pbroadcast, Pcast, PcastTo, Ppermute,
    Preduce, PsumScatter,
};
use crate::ir::ops::creation::{Full, Iota};
use crate::ir::ops::dot_general::DotGeneral;
use crate::ir::ops::elementwise::{Bitcast, Convert, Select};
use crate::ir::ops::indexing::{DynamicSlice, DynamicUpdateSlice};
use crate::ir::ops::ragged_dot::{RaggedDot, RaggedDotMode};
use crate::ir::ops::reduce::{Reduce, Reduction};
use crate::ir::ops::shape::{BroadcastInDim, ExpandDims, Reshape, Rev, Roll, Squeeze, Transpose};
use crate::ir::ops::sharding::{Constrain, Reshard};
use crate::ir::ops::slicing::{Concatenate, Pad, Slice, UpdateSlice};
use crate::ir::program::{Prim, Reducer};
use std::sync::Arc;

/// Returns the `select` primitive.
pub(crate) fn select() -> Prim {
    Arc::new(Select)
}
/// Returns the primitive that converts to an element type.
pub(crate) fn convert(dtype: DType) -> Prim {
    Arc::new(Convert { dtype })
}
/// Returns the primitive that reinterprets bits as another element type.
pub(crate) fn bitcast(dtype: DType) -> Prim {
    Arc::new(Bitcast { dtype })
}
/// Returns the primitive that reduces over `axes`.
pub(crate) fn reduce(kind: Reduction, axes: &[usize], out: Option<Spec>) -> Prim {
    Arc::new(Reduce::new(kind, axes, out))
}
/// Returns the `dot_general` primitive.
/// `preferred` is the accumulation and result type; a precision of `None` is the process's default.
pub(crate) fn dot_general(
    how: &Contraction,
    out: Option<Spec>,
    preferred: Option<DType>,
    precision: Option<Precision>,
) -> Prim {
    let pair = |list: &[(usize, usize)]| {
        let (a, b): (Vec<usize>, Vec<usize>) = list.iter().copied().unzip();
        [a, b]
    };
    Arc::new(DotGeneral {
        contracting: pair(&how.contracting),
        batch: pair(&how.batch),
        out_sharding: out,
        accum_dtype: preferred,
        precision: precision.unwrap_or_else(default_matmul_precision),
    })
}
/// Returns the `ragged_dot` primitive, without batch dimensions.
/// A precision of `None` is the process's default.
pub(crate) fn ragged_dot(out_sharding: Option<Spec>, precision: Option<Precision>) -> Prim {
    let precision = precision.unwrap_or_else(default_matmul_precision);
    Arc::new(RaggedDot { out_sharding, precision, ..RaggedDot::new(RaggedDotMode::PerRow) })
}
/// Returns the primitive for a cumulative reduction along `axis`.
pub(crate) fn scan(kind: CumulativeOp, axis: usize, reverse: bool) -> Prim {
    Arc::new(CumulativeScan { kind, axis, reverse })
}
/// Returns the primitive that sorts along `axis` by the first `keys` operands.
pub(crate) fn sort(axis: usize, keys: usize) -> Prim {
    Arc::new(Sort { axis, keys })
}
/// Returns the primitive for an indirect sort along `axis` by one key.
pub(crate) fn argsort(axis: usize) -> Prim {
    argsort_by(axis, 1)
}
/// Returns the primitive for an indirect sort along `axis` by `keys` operands.
pub(crate) fn argsort_by(axis: usize, keys: usize) -> Prim {
    Arc::new(Argsort { axis, keys })
}
/// Returns the primitive for the `k` largest elements along `axis`.
pub(crate) fn top_k(k: usize, axis: usize) -> Prim {
    Arc::new(TopK { k, axis })
}
/// Returns the primitive for a linear recurrence along `axis`.
pub(crate) fn recurrence(axis: usize, reverse: bool) -> Prim {
    Arc::new(Recurrence { axis, reverse })
}
/// Returns the primitive that creates an array of equal elements.
pub(crate) fn full(ty: ArrayType, value: Scalar) -> Prim {
    Arc::new(Full { ty, value })
}
/// Returns the primitive that creates indices along a dimension.
pub(crate) fn iota(ty: ArrayType, dimension: usize) -> Prim {
    Arc::new(Iota { ty, dimension })
}
/// Returns the broadcast that maps operand dimension k to dimension `dims[k]` of the result.
pub(crate) fn broadcast(shape: &Shape, dims: &[usize], out: Option<Spec>) -> Prim {
    Arc::new(BroadcastInDim { shape: shape.clone(), broadcast_dimensions: dims.into(), out_sharding: out })
}
/// Returns the primitive that reshapes to these sizes.
pub(crate) fn reshape(sizes: &Shape, out: Option<Spec>) -> Prim {
    Arc::new(Reshape { new_sizes: sizes.clone(), out_sharding: out })
}
/// Returns the transpose whose result dimension k is operand dimension `permutation[k]`.
pub(crate) fn transpose(permutation: &[usize]) -> Prim {
    Arc::new(Transpose { permutation: permutation.into() })
}
/// Returns the primitive that drops dimensions of size 1.
pub(crate) fn squeeze(dimensions: &[usize]) -> Prim {
    Arc::new(Squeeze { dimensions: dimensions.into() })
}
/// Returns the primitive that inserts dimensions of size 1, at these positions of the result.
pub(crate) fn expand_dims(dimensions: &[usize]) -> Prim {
    Arc::new(ExpandDims { dimensions: dimensions.into() })
}
/// Returns the primitive that reverses dimensions.
pub(crate) fn rev(dimensions: &[usize]) -> Prim {
    Arc::new(Rev { dimensions: dimensions.into() })
}
/// Returns the primitive that shifts elements cyclically.
pub(crate) fn roll(shift: usize, dimension: usize) -> Prim {
    Arc::new(Roll { shift, dimension })
}
/// Returns the `slice` primitive; `bounds` has the start, limit and step of each dimension.
pub(crate) fn slice(bounds: &[(usize, usize, usize)]) -> Prim {
    slice_to(bounds, None)
}
/// Returns the [`slice`] primitive with result sharding `out`.
pub(crate) fn slice_to(bounds: &[(usize, usize, usize)], out: Option<Spec>) -> Prim {
    Arc::new(Slice {
        start: bounds.iter().map(|b| b.0).collect(),
        limit: bounds.iter().map(|b| b.1).collect(),
        strides: bounds.iter().map(|b| b.2).collect(),
        out_sharding: out,
    })
}
/// Returns the `pad` primitive; `widths` has low, high and interior padding of each dimension.
pub(crate) fn pad(widths: &[(i64, i64, usize)], value: Scalar) -> Prim {
    pad_to(widths, value, None)
}
/// Returns the [`pad`] primitive with result sharding `out`.
pub(crate) fn pad_to(widths: &[(i64, i64, usize)], value: Scalar, out: Option<Spec>) -> Prim {
    Arc::new(Pad {
        low: widths.iter().map(|w| w.0).collect(),
        high: widths.iter().map(|w| w.1).collect(),
        interior: widths.iter().map(|w| w.2).collect(),
        value,
        out_sharding: out,
    })
}
/// Returns the primitive that concatenates along a dimension.
pub(crate) fn concatenate(dimension: usize) -> Prim {
    Arc::new(Concatenate { dimension })
}
/// Returns the primitive that replaces a box starting at a static position.
pub(crate) fn update_slice(start: &[usize]) -> Prim {
    Arc::new(UpdateSlice { start: start.into() })
}
/// Returns the primitive that slices these sizes at a start that is dynamic along `dims`.
pub(crate) fn dynamic_slice(sizes: Shape, dims: Vec<usize>, out: Option<Spec>) -> Prim {
    Arc::new(DynamicSlice { sizes, dims, batch_dims: Vec::new(), out_sharding: out })
}
/// Returns the primitive that updates a box with a dynamic start; it replaces if `combine` is
/// `None`.
pub(crate) fn dynamic_update_slice(dims: Vec<usize>, combine: Option<Reducer>, out: Option<Spec>) -> Prim {
    Arc::new(DynamicUpdateSlice { dims, batch_dims: Vec::new(), reducer: combine, out_sharding: out })
}
/// Returns the primitive that reshards to a spec over a mesh.
pub(crate) fn reshard(mesh: &Mesh, spec: Spec) -> Prim {
    Arc::new(Reshard::new(mesh.clone(), spec))
}
/// Returns the sharding constraint; dimensions in `open` may be sharded further.
pub(crate) fn constrain(mesh: &Mesh, spec: Spec, open: Vec<usize>) -> Prim {
    Arc::new(Constrain { open_dims: open, ..Constrain::new(mesh.clone(), spec) })
}

/// Returns the device group (mesh, axes and groups) of a collective in a manual region.
fn collective_group(at: &Setting, over: &AxisGroups) -> CollectiveGroup {
    let checked = !over.axes().iter().any(|a| at.untracked.contains(a));
    let group = CollectiveGroup::new(at.mesh.clone(), over.axes().clone(), checked);
    CollectiveGroup { groups: over.groups().cloned(), ..group }
}
/// Returns the all-reduce primitive.
pub(crate) fn all_reduce(at: &Setting, combine: Reducer, over: &AxisGroups) -> Prim {
    Arc::new(Preduce { group: collective_group(at, over), reducer: combine })
}
/// Returns the all-gather primitive.
pub(crate) fn all_gather(at: &Setting, over: &AxisGroups, dim: usize, tiled: bool, to: AllGatherTo) -> Prim {
    Arc::new(AllGather { group: collective_group(at, over), dim, tiled, to })
}
/// Returns the reduce-scatter primitive, which sums.
pub(crate) fn psum_scatter(at: &Setting, over: &AxisGroups, dim: usize, tiled: bool) -> Prim {
    Arc::new(PsumScatter { group: collective_group(at, over), dim, tiled })
}
/// Returns the all-to-all primitive.
pub(crate) fn all_to_all(at: &Setting, over: &AxisGroups, split: usize, concat: usize, tiled: bool) -> Prim {
    Arc::new(AllToAllPrim { group: collective_group(at, over), split_dim: split, concat_dim: concat, tiled })
}
/// Returns the primitive that permutes blocks between devices.
pub(crate) fn ppermute(at: &Setting, over: &AxisGroups, pairs: Vec<(usize, usize)>) -> Prim {
    Arc::new(Ppermute { group: collective_group(at, over), pairs })
}
/// Returns the primitive that copies the block of one device to all.
pub(crate) fn pbroadcast(at: &Setting, over: &AxisGroups, source: usize) -> Prim {
    Arc::new(Pbroadcast { group: collective_group(at, over), source })
}
/// Returns the primitive that computes the device's index along axes.
pub(crate) fn axis_index(at: &Setting, over: &AxisGroups) -> Prim {
    Arc::new(AxisIndex { group: collective_group(at, over) })
}
/// Returns the primitive that casts the type over manual axes.
pub(crate) fn pcast(at: &Setting, over: &AxisGroups, to: PcastTo) -> Prim {
    Arc::new(Pcast { group: collective_group(at, over), to })
}
