//! Primitives from what methods know of them.

use crate::mesh::{Axes, Mesh};
use crate::ops::collective::{
    AllGather, AllToAll, Along, AxisIndex, Cast, Gathered, Pcast, Ppermute, Preduce, PsumScatter,
};
use crate::ops::creation::{Full, Iota};
use crate::ops::elementwise::{Bitcast, Convert, Select};
use crate::ops::indexing::{DynamicSlice, DynamicUpdateSlice};
use crate::ops::lines::{Argsort, Recurrence, Running, Scan, Sort, TopK};
use crate::ops::product::DotGeneral;
use crate::ops::reduce::{Reduce, Reduction};
use crate::ops::shape::{BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose};
use crate::ops::sharding::{Constrain, Reshard};
use crate::ops::slicing::{Concatenate, Pad, Slice, UpdateSlice};
use crate::program::Prim;
use crate::program::sentence::Combine;
use crate::sharding::Spec;
use crate::trace::Setting;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

pub(crate) fn select() -> Prim {
    Arc::new(Select)
}
pub(crate) fn convert(dtype: DType) -> Prim {
    Arc::new(Convert { dtype })
}
pub(crate) fn bitcast(dtype: DType) -> Prim {
    Arc::new(Bitcast { dtype })
}
pub(crate) fn reduce(kind: Reduction, axes: &[usize], out: Option<Spec>) -> Prim {
    Arc::new(Reduce::new(kind, axes, out))
}
pub(crate) fn dot_general(how: &super::Contraction, out: Option<Spec>, preferred: Option<DType>) -> Prim {
    let pair = |list: &[(usize, usize)]| {
        let (a, b): (Vec<usize>, Vec<usize>) = list.iter().copied().unzip();
        [a, b]
    };
    Arc::new(DotGeneral { contracting: pair(&how.contracting), batch: pair(&how.batch), out, preferred })
}
pub(crate) fn scan(kind: Running, axis: usize, reverse: bool) -> Prim {
    Arc::new(Scan { kind, axis, reverse })
}
pub(crate) fn sort(axis: usize, keys: usize) -> Prim {
    Arc::new(Sort { axis, keys })
}
pub(crate) fn argsort(axis: usize) -> Prim {
    argsort_by(axis, 1)
}
pub(crate) fn argsort_by(axis: usize, keys: usize) -> Prim {
    Arc::new(Argsort { axis, keys })
}
pub(crate) fn top_k(k: usize, axis: usize) -> Prim {
    Arc::new(TopK { k, axis })
}
pub(crate) fn recurrence(axis: usize, reverse: bool) -> Prim {
    Arc::new(Recurrence { axis, reverse })
}
pub(crate) fn full(ty: ArrayType, value: Scalar) -> Prim {
    Arc::new(Full { ty, value })
}
pub(crate) fn iota(ty: ArrayType, dimension: usize) -> Prim {
    Arc::new(Iota { ty, dimension })
}
pub(crate) fn broadcast(shape: &Shape, dims: &[usize], out: Option<Spec>) -> Prim {
    Arc::new(BroadcastInDim { shape: shape.clone(), broadcast_dimensions: dims.into(), out })
}
pub(crate) fn reshape(sizes: &Shape, out: Option<Spec>) -> Prim {
    Arc::new(Reshape { new_sizes: sizes.clone(), out })
}
pub(crate) fn transpose(permutation: &[usize]) -> Prim {
    Arc::new(Transpose { permutation: permutation.into() })
}
pub(crate) fn squeeze(dimensions: &[usize]) -> Prim {
    Arc::new(Squeeze { dimensions: dimensions.into() })
}
pub(crate) fn expand_dims(dimensions: &[usize]) -> Prim {
    Arc::new(ExpandDims { dimensions: dimensions.into() })
}
pub(crate) fn rev(dimensions: &[usize]) -> Prim {
    Arc::new(Rev { dimensions: dimensions.into() })
}
/// `bounds` has start, limit and step of each dimension.
pub(crate) fn slice(bounds: &[(usize, usize, usize)]) -> Prim {
    slice_to(bounds, None)
}
/// [`slice`], sharded as `out` says.
pub(crate) fn slice_to(bounds: &[(usize, usize, usize)], out: Option<Spec>) -> Prim {
    Arc::new(Slice {
        start: bounds.iter().map(|b| b.0).collect(),
        limit: bounds.iter().map(|b| b.1).collect(),
        strides: bounds.iter().map(|b| b.2).collect(),
        out,
    })
}
/// `widths` has how many before, behind and between, for each dimension.
pub(crate) fn pad(widths: &[(i64, i64, usize)], value: Scalar) -> Prim {
    pad_to(widths, value, None)
}
/// [`pad`], sharded as `out` says.
pub(crate) fn pad_to(widths: &[(i64, i64, usize)], value: Scalar, out: Option<Spec>) -> Prim {
    Arc::new(Pad {
        low: widths.iter().map(|w| w.0).collect(),
        high: widths.iter().map(|w| w.1).collect(),
        interior: widths.iter().map(|w| w.2).collect(),
        value,
        out,
    })
}
pub(crate) fn concatenate(dimension: usize) -> Prim {
    Arc::new(Concatenate { dimension })
}
pub(crate) fn update_slice(start: &[usize]) -> Prim {
    Arc::new(UpdateSlice { start: start.into() })
}
pub(crate) fn dynamic_slice(sizes: Shape, dims: Vec<usize>, out: Option<Spec>) -> Prim {
    Arc::new(DynamicSlice { sizes, dims, lead: Vec::new(), out })
}
pub(crate) fn dynamic_update_slice(dims: Vec<usize>, combine: Option<Combine>, out: Option<Spec>) -> Prim {
    Arc::new(DynamicUpdateSlice { dims, lead: Vec::new(), combine, out })
}
pub(crate) fn reshard(mesh: &Mesh, spec: Spec) -> Prim {
    Arc::new(Reshard::new(mesh.clone(), spec))
}
pub(crate) fn constrain(mesh: &Mesh, spec: Spec, open: Vec<usize>) -> Prim {
    Arc::new(Constrain { open, ..Constrain::new(mesh.clone(), spec) })
}

fn along(at: &Setting, axes: &Axes) -> Along {
    Along { mesh: at.mesh.clone(), axes: axes.clone(), checked: at.checked }
}
pub(crate) fn preduce(at: &Setting, combine: Combine, axes: &Axes) -> Prim {
    Arc::new(Preduce { along: along(at, axes), combine })
}
pub(crate) fn all_gather(at: &Setting, axes: &Axes, dim: usize, tiled: bool, to: Gathered) -> Prim {
    Arc::new(AllGather { along: along(at, axes), dim, tiled, to })
}
pub(crate) fn psum_scatter(at: &Setting, axes: &Axes, dim: usize, tiled: bool) -> Prim {
    Arc::new(PsumScatter { along: along(at, axes), dim, tiled })
}
pub(crate) fn all_to_all(at: &Setting, axes: &Axes, split: usize, concat: usize, tiled: bool) -> Prim {
    Arc::new(AllToAll { along: along(at, axes), split, concat, tiled })
}
pub(crate) fn ppermute(at: &Setting, axes: &Axes, pairs: Vec<(usize, usize)>) -> Prim {
    Arc::new(Ppermute { along: along(at, axes), pairs })
}
pub(crate) fn axis_index(at: &Setting, axes: &Axes) -> Prim {
    Arc::new(AxisIndex { along: along(at, axes) })
}
pub(crate) fn pcast(at: &Setting, axes: &Axes, to: Cast) -> Prim {
    Arc::new(Pcast { along: along(at, axes), to })
}
