//! Reads and updates at positions given by integer arrays (advanced indexing).
//!
//! [`Array::take`] and [`Array::take_along_axis`] gather slices along one dimension; `ix!` with
//! index arrays uses the same gather and scatter primitives. By default out-of-bounds indices read
//! a fill value in `take`, and are clamped in `ix!`; updates at such indices are dropped.

use super::{Array, dims::resolve_dim, operand, prims};
use crate::api::trace::{ArrayOrLiteral, apply1};
use crate::core::{ArrayType, Axes, AxisType, DType, ErrorKind, Fault, Shape, Spec};
use crate::ir::ops::indexing::{Gather, GatherDims, Scatter, fill_value};
use crate::ir::program::{CallSite, OutOfBounds, Reducer, UserOperand};
use std::sync::Arc;

/// How to treat out-of-bounds indices.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0]);
/// let at = Array::from([1, 7]);
/// let clipped = x.take_with(&at, 0, IndexOptions::default().mode(IndexMode::Clip));
/// assert_eq!(clipped.to_vec::<f32>()?, [2.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias("GatherScatterMode", "promise_in_bounds", "fill_or_drop"))]
pub enum IndexMode {
    /// Clamps indices to the nearest valid index.
    Clip,
    /// Reads a fill value, and drops updates.
    ///
    /// The fill value is NaN for floats, the minimum of signed and the maximum of unsigned integer
    /// types, and `true` for booleans.
    Fill,
}

impl IndexMode {
    /// Returns the corresponding mode of the IR.
    pub(super) fn out_of_bounds(self) -> OutOfBounds {
        match self {
            IndexMode::Clip => OutOfBounds::Clip,
            IndexMode::Fill => OutOfBounds::Drop,
        }
    }
}

/// Options of operations with index arrays: `IndexOptions::default().mode(IndexMode::Clip)`.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0]);
/// let options = IndexOptions::default().mode(IndexMode::Fill);
/// assert!(x.take_with(&Array::from([7]), 0, options).to_vec::<f32>()?[0].is_nan());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct IndexOptions {
    /// How to treat out-of-bounds indices; `None` means [`IndexMode::Fill`].
    pub mode: Option<IndexMode>,
    /// The result's sharding; `None` if it follows from the operands.
    pub out_sharding: Option<Spec>,
}

impl IndexOptions {
    setters! {
        /// Sets how out-of-bounds indices are treated.
        pub fn mode(mode: IndexMode) = mode: Some(mode);
        /// Sets the result's sharding.
        pub fn out_sharding(out: Spec) = out_sharding: Some(out);
    }
    /// Returns the mode of the IR; the default is `Fill`.
    pub(super) fn out_of_bounds(self) -> OutOfBounds {
        self.mode.unwrap_or(IndexMode::Fill).out_of_bounds()
    }
}

/// The dimension numbers and index vectors of a gather or scatter.
pub(super) struct GatherIndices {
    /// The dimension numbers.
    pub(super) dims: GatherDims,
    /// The index vectors, along the last dimension.
    pub(super) indices: Array,
}

impl GatherIndices {
    /// Returns the type of the user's index array, if the index vectors have one component each.
    /// Errors refer to this array, not to the index vectors built from it.
    fn user_indices(&self) -> Option<ArrayType> {
        let ty = self.indices.type_ref().ok()?;
        let last = ty.rank().checked_sub(1).filter(|_| self.dims.start_index_map.len() == 1)?;
        let spec = ty.spec.with_dims(ty.spec.dims().iter().take(last).cloned().collect::<Vec<_>>());
        Some(ArrayType { shape: ty.shape[..last].into(), spec, ..ty.clone() })
    }
}

/// Checks that indices are integers.
pub(super) fn check_integers(i: &Array) -> Result<(), Fault> {
    let Ok(ty) = i.type_ref() else { return Ok(()) };
    if ty.dtype.is_integer() {
        return Ok(());
    }
    let fault = fault!(Dtype, "indices are integers, not {}", ty.dtype);
    Err(match ty.dtype {
        DType::Bool => fault
            .help("to choose elements by a mask: `mask.select(&x, 0)`")
            .help("to replace those where it holds: `mask.select(&new, &x)`"),
        _ => fault.help("convert it: `.astype(I32)`"),
    })
}

/// Stacks index arrays of equal shape into index vectors along a new last dimension.
pub(super) fn index_vectors(numbers: &[Array], call: CallSite<'_>) -> Array {
    let wide = |i: &Array| i.type_ref().is_ok_and(|t| t.dtype != DType::I32);
    let alike = numbers.len() == 1 || !numbers.iter().any(wide);
    let each: Vec<Array> = numbers
        .iter()
        .map(|i| {
            let rank = i.type_ref().map_or(0, |t| t.rank());
            let i = if alike { i.clone() } else { i.astype_at(DType::I64, call) };
            i.expand_dims_at(&[rank], call)
        })
        .collect();
    match &each[..] {
        [one] => one.clone(),
        all => {
            let rank = all[0].type_ref().map_or(1, |t| t.rank());
            apply1(
                prims::concatenate(rank - 1),
                &all.iter().map(Into::into).collect::<Vec<ArrayOrLiteral>>(),
                call,
            )
        }
    }
}

/// Restricts a spec to explicit axes; `None` if the array's mesh has no explicit axes.
pub(super) fn explicit_spec(ty: &ArrayType, spec: Spec) -> Option<Spec> {
    let mesh = ty.mesh.as_ref().filter(|m| m.axis_types().contains(&AxisType::Explicit))?;
    Some(spec.filter_axes(|a| mesh.axis_type(a) == Some(AxisType::Explicit)))
}

/// # Indexing by arrays
impl Array {
    forward! {
        /// Takes the elements at `indices` along dimension `d`, which the indices' dimensions
        /// replace.
        ///
        /// Negative indices count from the end. Out-of-bounds indices read a fill value; see
        /// [`IndexMode::Fill`].
        ///
        /// Dimension `d` and the indices must be unsharded; otherwise use [`Array::take_to`] to
        /// give the result's sharding. If the array is sharded over `d`, each device looks up the
        /// rows it holds, and the results are combined.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1, 2], [3, 4], [5, 6]]);
        /// let ids = Array::from([2, 0, -1]);
        /// assert_eq!(x.take(&ids, 0).to_vec::<i32>()?, [5, 6, 1, 2, 5, 6]);
        /// assert_eq!(x.take(&ids.reshape([3, 1]), 0).shape()?, [3, 1, 2]);
        /// // the gradient accumulates elements that are taken more than once
        /// let g = grad(x.astype(F32), |x| x.take(&ids, 0).sum(..));
        /// assert_eq!(g.to_vec::<f32>()?, [1.0, 1.0, 0.0, 0.0, 2.0, 2.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("gather", "embedding", "index_select"))]
        pub fn take(indices: &Array, d: i32)
            = take_at(indices, d, IndexOptions::default()), or "x.take_to(&indices, d, {})";
        /// Computes [`Array::take`] with the result sharded as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let table = Array::arange(0..8).reshape([4, 2]).put(&mesh, p!["X"]);
        /// let ids = Array::from([3, 0, 3]);
        /// let rows = table.take_to(&ids, 0, p![]);
        /// assert_eq!(rows.to_vec::<i32>()?, [6, 7, 0, 1, 6, 7]);
        /// assert_eq!(table.take(&ids, 0).ty().unwrap_err().kind(), atmesh::ErrorKind::Sharding);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_to(indices: &Array, d: i32, out: Spec)
            = take_at(indices, d, IndexOptions::default().out_sharding(out));
        /// Computes [`Array::take`] with options: the index mode and the result's sharding.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::{IndexOptions, IndexMode};
        /// let x = Array::from([1, 2, 3]);
        /// let ids = Array::from([1, 7]);
        /// assert_eq!(x.take(&ids, 0).to_vec::<i32>()?, [2, i32::MIN]);
        /// let clipped = x.take_with(&ids, 0, IndexOptions::default().mode(IndexMode::Clip));
        /// assert_eq!(clipped.to_vec::<i32>()?, [2, 3]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_with(indices: &Array, d: i32, options: IndexOptions)
            = take_at(indices, d, options);
        /// Takes one element along dimension `d` for each position in the other dimensions.
        ///
        /// `indices` has the same rank as the array; sizes in dimensions other than `d` are equal,
        /// or one of them is 1. The result has the broadcast shape, with the size of `indices`
        /// along `d`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[3, 1, 2], [9, 7, 8]]);
        /// let best = Array::from([[0], [2]]);
        /// assert_eq!(x.take_along_axis(&best, 1).to_vec::<i32>()?, [3, 8]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_along_axis(indices: &Array, d: i32)
            = take_along_axis_at(indices, d, IndexOptions::default()),
            or "x.take_along_axis_to(&indices, d, {})";
        /// Computes [`Array::take_along_axis`] with the result sharded as `out`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::arange(0..8).reshape([2, 4]).put(&mesh, p![_, "X"]);
        /// let y = x.take_along_axis_to(&Array::from([[3], [0]]), 1, p![]);
        /// assert_eq!(y.to_vec::<i32>()?, [3, 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_along_axis_to(indices: &Array, d: i32, out: Spec)
            = take_along_axis_at(indices, d, IndexOptions::default().out_sharding(out));
        /// Computes [`Array::take_along_axis`] with options: the index mode and the result's
        /// sharding.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::{IndexOptions, IndexMode};
        /// let x = Array::from([[1, 2], [3, 4]]);
        /// let clip = IndexOptions::default().mode(IndexMode::Clip);
        /// assert_eq!(x.take_along_axis_with(&Array::from([[9], [0]]), 1, clip).to_vec::<i32>()?,
        ///     [2, 3]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_along_axis_with(indices: &Array, d: i32, options: IndexOptions)
            = take_along_axis_at(indices, d, options);
    }
    /// Implements [`Array::take`].
    pub(super) fn take_at(
        &self,
        indices: &Array,
        d: i32,
        options: IndexOptions,
        call: CallSite<'_>,
    ) -> Array {
        let [ty, of] = ok_or_return!(operand::types([self, indices]));
        let axis =
            ok_or_return!(check_integers(indices).and_then(|()| resolve_dim(d.into(), ty.rank())), |fault| {
                operand::reject(fault, &[self.into(), indices.into()], call)
            });
        let numbers = index_vectors(&[indices.resolve_negative(ty.shape[axis], call)], call);
        let at = GatherIndices {
            dims: GatherDims::rows(ty.rank(), axis, of.rank(), options.out_of_bounds()),
            indices: numbers,
        };
        self.gather_windows(&at, options.out_sharding, call)
    }
    /// Implements [`Array::take_along_axis`].
    fn take_along_axis_at(
        &self,
        indices: &Array,
        d: i32,
        options: IndexOptions,
        call: CallSite<'_>,
    ) -> Array {
        let [ty, of] = ok_or_return!(operand::types([self, indices]));
        let reject = |fault| operand::reject(fault, &[self.into(), indices.into()], call);
        let axis =
            ok_or_return!(check_integers(indices).and_then(|()| resolve_dim(d.into(), ty.rank())), |fault| {
                reject(fault)
            });
        let fits = |d: usize| d == axis || ty.shape[d] == of.shape[d] || ty.shape[d] == 1 || of.shape[d] == 1;
        if of.rank() != ty.rank() {
            return reject(
                fault!(Shape, "the indices have {} dimensions, but the array has {}", of.rank(), ty.rank())
                    .help("give them one rank: `.expand_dims(…)`"),
            );
        }
        if let Some(d) = (0..ty.rank()).find(|d| !fits(*d)) {
            let message = format!(
                "dimension {d} has size {} in the array and {} in the indices",
                ty.shape[d], of.shape[d]
            );
            let fault = Fault::new(ErrorKind::Shape, message).highlight_dim(0, d).highlight_dim(1, d);
            return reject(fault.help("make them equal, or one of them 1"));
        }
        // a dimension of size 1 in one operand takes the size of the other
        let both = |d: &usize| *d != axis && ty.shape[*d] == of.shape[*d];
        let one: Vec<usize> =
            (0..ty.rank()).filter(|d| *d != axis && !both(d) && of.shape[*d] == 1).collect();
        let numbers = indices.resolve_negative(ty.shape[axis], call).squeeze_at(&one, call);
        let kept: Vec<usize> = (0..ty.rank()).filter(|d| !one.contains(d)).collect();
        let batching = kept.iter().enumerate().filter(|(_, d)| both(d)).map(|(k, d)| (*d, k)).collect();
        let of_one = |d: &usize| *d == axis || !both(d) && !one.contains(d);
        let collapsed = (0..ty.rank()).filter(of_one).collect();
        let (of, beyond) = (vec![axis], options.out_of_bounds());
        let places = GatherDims {
            start_index_map: of,
            collapsed_dims: collapsed,
            batching_dims: batching,
            offset_dims: one,
            mode: beyond,
        };
        let at = GatherIndices { dims: places, indices: index_vectors(&[numbers], call) };
        self.gather_windows(&at, options.out_sharding, call)
    }
    /// Gathers windows of size 1 along collapsed and batching dimensions, and of full size along
    /// others.
    pub(super) fn gather_windows(&self, at: &GatherIndices, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let one =
            |d: usize| at.dims.collapsed_dims.contains(&d) || at.dims.batching_dims.iter().any(|b| b.0 == d);
        let sizes = (0..ty.rank()).map(|d| if one(d) { 1 } else { ty.shape[d] }).collect();
        let fill = fill_value(ty.dtype);
        let prim = Gather { dims: at.dims.clone(), slice_sizes: sizes, fill, out_sharding: out };
        let apply = |call| apply1(Arc::new(prim), &[self.into(), (&at.indices).into()], call);
        let indices = at.user_indices().filter(|_| !call.has_user_operands());
        let Some(indices) = indices else { return apply(call) };
        let sources = [
            UserOperand { index: 0, ty: Some(ty), dims: None },
            UserOperand { index: 1, ty: Some(&indices), dims: None },
        ];
        apply(call.with_operands(&|| vec![ty.to_string(), indices.to_string()], &sources))
    }
    /// Scatters updates to windows: replaces them, or combines them with `combine`.
    pub(super) fn scatter_windows(
        &self,
        at: &GatherIndices,
        u: &Array,
        combine: Option<Reducer>,
        out: Option<Spec>,
        call: CallSite<'_>,
    ) -> Array {
        let prim = Scatter { dims: at.dims.clone(), reducer: combine, out_sharding: out };
        apply1(Arc::new(prim), &[self.into(), u.into(), (&at.indices).into()], call)
    }
}

/// An advanced index: index arrays for some dimensions of an array, which broadcast together.
pub(super) struct AdvancedIndex {
    /// The indexed dimensions, each with its index array.
    pub(super) indices: Vec<(usize, Array)>,
    /// The common shape of the index arrays.
    pub(super) shape: Shape,
    /// The position in the result at which the dimensions of the index arrays start.
    pub(super) first_dim: usize,
}

impl AdvancedIndex {
    /// Returns the result dimensions of these array dimensions, which have size 1.
    fn dropped_result_dims(&self, dims: &[usize], rank: usize) -> Vec<usize> {
        let indexed = |d: &usize| self.indices.iter().any(|n| n.0 == *d);
        let rest = (0..rank).filter(|d| !indexed(d)).enumerate();
        let at = |k: usize| if k < self.first_dim { k } else { k + self.shape.rank() };
        rest.filter(|(_, d)| dims.contains(d)).map(|(k, _)| at(k)).collect()
    }
    /// Returns the dimension numbers and index vectors for an array of type `ty`.
    fn gather_indices(&self, ty: &ArrayType, beyond: OutOfBounds, call: CallSite<'_>) -> GatherIndices {
        let (of, numbers): (Vec<usize>, Vec<Array>) = self.indices.iter().cloned().unzip();
        let each = of.iter().zip(&numbers);
        let numbers: Vec<Array> = each
            .map(|(d, i)| i.resolve_negative(ty.shape[*d], call).broadcast_like(&self.shape, None, call))
            .collect();
        let rank = ty.rank() - of.len() + self.shape.rank();
        let windows =
            (0..rank).filter(|w| !(self.first_dim..self.first_dim + self.shape.rank()).contains(w)).collect();
        let places = GatherDims {
            collapsed_dims: of.clone(),
            start_index_map: of,
            batching_dims: Vec::new(),
            offset_dims: windows,
            mode: beyond,
        };
        GatherIndices { dims: places, indices: index_vectors(&numbers, call) }
    }
    /// Reads the indexed elements, without the dimensions `dropped` of the array.
    pub(super) fn get(
        &self,
        x: &Array,
        dropped: &[usize],
        (mode, out): (Option<IndexMode>, Option<Spec>),
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let dropped = self.dropped_result_dims(dropped, ty.rank());
        let (shape, _) = self.result_shape(ty);
        let out = out.map(|spec| {
            let mut dims = spec.padded(shape.rank() - dropped.len()).dims().to_vec();
            dropped.iter().for_each(|d| dims.insert((*d).min(dims.len()), Axes::none()));
            spec.with_dims(dims)
        });
        let places = self.gather_indices(ty, mode.unwrap_or(IndexMode::Clip).out_of_bounds(), call);
        x.gather_windows(&places, out, call).squeeze_at(&dropped, call)
    }
    /// Replaces the indexed elements by a value, or combines them with it.
    ///
    /// The value broadcasts to the indexed elements without the dimensions `dropped`.
    pub(super) fn put(
        &self,
        x: &Array,
        (value, dropped): (&Array, &[usize]),
        (combine, mode): (Option<Reducer>, Option<IndexMode>),
        out: Option<Spec>,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let at = self.gather_indices(ty, mode.unwrap_or(IndexMode::Fill).out_of_bounds(), call);
        let (shape, entries) = self.result_shape(ty);
        let like = ty.mesh.clone().zip(explicit_spec(ty, Spec::from_dims(entries))).filter(|_| out.is_none());
        let dropped = self.dropped_result_dims(dropped, ty.rank());
        let kept: Shape = (0..shape.rank()).filter(|d| !dropped.contains(d)).map(|d| shape[d]).collect();
        // a dimension of the value must be sharded like the corresponding one of the elements, or
        // unsharded
        if let (Some((mesh, spec)), Ok(of)) = (&like, value.type_ref()) {
            let entries: Vec<&[crate::core::mesh::Axis]> =
                (0..shape.rank()).filter(|d| !dropped.contains(d)).map(|d| spec.dim(d)).collect();
            let lead = kept.rank().saturating_sub(of.rank());
            let apart = (0..of.rank()).find(|e| {
                let own = of.spec.dim(*e);
                !own.is_empty() && entries.get(lead + e).is_some_and(|entry| *entry != own)
            });
            if let Some(e) = apart.filter(|_| of.mesh.as_ref() == Some(mesh)) {
                let elements = match entries.get(lead + e) {
                    Some(entry) if !entry.is_empty() => {
                        format!("that of the indexed elements over {}", Axes::from(*entry))
                    }
                    _ => "that of the indexed elements is unsharded".to_string(),
                };
                let message = format!(
                    "dimension {e} of the new value is sharded over {}, but {elements}",
                    Axes::from(of.spec.dim(e)),
                );
                let unsharded = of.spec.padded(of.rank()).with_dim(e, &Axes::none());
                let fault = Fault::new(ErrorKind::Sharding, message).highlight_dim(1, e);
                let fault = match explicit_spec(ty, ty.spec) {
                    Some(spec) => fault.out_sharding("say the result's sharding", spec),
                    None => fault,
                };
                let fault = fault.help(format!("reshard it: `.reshard({unsharded})`"));
                return operand::reject(fault, &[x.into(), value.into()], call);
            }
        }
        let update = match dropped.is_empty() {
            true => value.clone(),
            false => value.broadcast_like(&kept, None, call).expand_dims_at(&dropped, call),
        };
        let update = update.broadcast_like(&shape, like.as_ref(), call);
        let (Some(indices), Ok(of)) = (at.user_indices(), value.type_ref()) else {
            return x.scatter_windows(&at, &update, combine, out, call);
        };
        // errors refer to the user's value and index array
        let lead = kept.rank().saturating_sub(of.rank());
        let mut own = 0usize..;
        let dims: Vec<usize> = (0..shape.rank())
            .map(|d| if dropped.contains(&d) { None } else { own.next()?.checked_sub(lead) })
            .map(|d| d.unwrap_or(usize::MAX))
            .collect();
        let types = [ty, of, &indices];
        let sources = [None, Some(&dims[..]), None];
        let sources = [0, 1, 2].map(|k| UserOperand { index: k, ty: Some(types[k]), dims: sources[k] });
        let describe = || types.iter().map(ToString::to_string).collect();
        x.scatter_windows(&at, &update, combine, out, call.with_operands(&describe, &sources))
    }
    /// Returns the shape of the indexed elements, and the sharding that the typing rules give them.
    pub(super) fn result_shape(&self, ty: &ArrayType) -> (Shape, Vec<Axes>) {
        let indexed = |d: &usize| self.indices.iter().any(|n| n.0 == *d);
        let mut of = (0..ty.rank()).filter(|d| !indexed(d));
        let rank = ty.rank() - self.indices.len() + self.shape.rank();
        let one = |w: usize| match w.checked_sub(self.first_dim).filter(|k| *k < self.shape.rank()) {
            Some(k) => (self.shape[k], Axes::none()),
            None => of.next().map_or((1, Axes::none()), |d| (ty.shape[d], Axes::from(ty.spec.dim(d)))),
        };
        let (shape, entries): (Vec<usize>, Vec<Axes>) = (0..rank).map(one).unzip();
        (shape.into(), entries)
    }
}
