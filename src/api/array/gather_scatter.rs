//! Gather and scatter of windows with explicit dimension numbers, as in XLA.
//!
//! For common cases `ix!`, [`Array::take`] and [`Array::at`] are shorter; they apply the same
//! primitives.

use super::{Array, GatherDims, operand};
use crate::api::trace::{apply1, carried_errors, poison};
use crate::core::{Shape, Spec};
use crate::ir::ops::indexing::{Gather, Scatter, fill_value};
use crate::ir::program::{CallSite, Reducer};
use std::sync::Arc;

/// # Gather and scatter
impl Array {
    forward! {
        /// Gathers windows of the given sizes that start at index vectors.
        ///
        /// The last dimension of `indices` holds the index vectors. [`GatherDims`] defines the
        /// dimension numbers and how out-of-bounds windows are treated. [`slice`](Array::slice),
        /// [`take`](Array::take) and [`take_along_axis`](Array::take_along_axis) are shorter for
        /// common cases.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::GatherDims;
        /// let x = Array::arange(0..12).reshape([3, 4]);
        /// // a window of two elements in one row, at three positions
        /// let at = Array::from([[0, 1], [2, 2], [1, 0]]);
        /// let dims = GatherDims {
        ///     start_index_map: vec![0, 1],
        ///     collapsed_dims: vec![0],
        ///     offset_dims: vec![1],
        ///     ..GatherDims::default()
        /// };
        /// assert_eq!(x.gather(&at, &dims, [1, 2]).to_string(), "[[ 1  2]\n [10 11]\n [ 4  5]]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("GatherDimensionNumbers", "offset_dims", "start_index_map", "slice_sizes"))]
        pub fn gather(indices: &Array, dims: &GatherDims, sizes: impl Into<Shape>)
            = gather_at(indices, dims, sizes.into(), None),
            or "x.gather_to(&indices, &dims, sizes, {})";
        /// Computes [`Array::gather`] with the result sharded as `out`.
        pub fn gather_to(indices: &Array, dims: &GatherDims, sizes: impl Into<Shape>, out: Spec)
            = gather_at(indices, dims, sizes.into(), Some(out));
    }
    /// Implements [`Array::gather`].
    fn gather_at(
        &self,
        indices: &Array,
        at: &GatherDims,
        sizes: Shape,
        out: Option<Spec>,
        call: CallSite<'_>,
    ) -> Array {
        let [ty, _] = ok_or_return!(operand::types([self, indices]));
        let prim =
            Gather { dims: at.clone(), slice_sizes: sizes, fill: fill_value(ty.dtype), out_sharding: out };
        apply1(Arc::new(prim), &[self.into(), indices.into()], call)
    }
    /// Implements the scatter methods; `combine` is `None` to replace elements.
    fn scatter_at(
        &self,
        [indices, updates]: [&Array; 2],
        at: &GatherDims,
        combine: Option<Reducer>,
        out: Option<Spec>,
        call: CallSite<'_>,
    ) -> Array {
        if let Some(error) = carried_errors([self, indices, updates].into_iter()) {
            return poison(error);
        }
        let prim = Scatter { dims: at.clone(), reducer: combine, out_sharding: out };
        apply1(Arc::new(prim), &[self.into(), updates.into(), indices.into()], call)
    }
}

macro_rules! scatters { ($($(#[$doc:meta])* $name:ident $to:ident $combine:expr;)*) => {
    impl Array {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, indices: &Array, updates: &Array, places: &GatherDims) -> Array {
            let twin = concat!("x.", stringify!($to), "(&indices, &updates, &dims, {})");
            self.scatter_at([indices, updates], places, $combine, None, CallSite::here(stringify!($name)).with_explicit_form(twin))
        }
        #[doc = concat!("Computes [`Array::", stringify!($name), "`] with the result sharded as `out`.")]
        #[track_caller]
        pub fn $to(&self, indices: &Array, updates: &Array, places: &GatherDims, out: Spec) -> Array {
            self.scatter_at([indices, updates], places, $combine, Some(out), CallSite::here(stringify!($to)))
        }
    )*}
} }

scatters! {
    /// Replaces windows of the array that start at index vectors by `updates`.
    ///
    /// The last dimension of `indices` holds the index vectors. [`GatherDims`] defines the
    /// dimension numbers of the updates and how out-of-bounds windows are treated. Where windows
    /// overlap, the last one in row-major order of the indices wins. [`at`](Array::at) is shorter
    /// for common cases.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::GatherDims;
    /// let x = Array::zeros(I32.array_type([2, 4]));
    /// let (at, new) = (Array::from([[0, 1], [1, 2]]), Array::from([[1, 2], [3, 4]]));
    /// let dims = GatherDims {
    ///     start_index_map: vec![0, 1],
    ///     collapsed_dims: vec![0],
    ///     offset_dims: vec![1],
    ///     ..GatherDims::default()
    /// };
    /// assert_eq!(x.scatter(&at, &new, &dims).to_string(), "[[0 1 2 0]\n [0 0 3 4]]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("ScatterDimensionNumbers", "update_window_dims", "inserted_window_dims"))]
    scatter scatter_to None;
    /// Adds updates to the windows that [`Array::scatter`] would replace.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::GatherDims;
    /// let at = Array::from([[1], [0], [1]]);
    /// let dims = GatherDims {
    ///     start_index_map: vec![0],
    ///     collapsed_dims: vec![0],
    ///     ..GatherDims::default()
    /// };
    /// let y = Array::from([1, 2]).scatter_add(&at, &Array::from([10, 20, 30]), &dims);
    /// assert_eq!(y.to_vec::<i32>()?, [21, 42]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    scatter_add scatter_add_to Some(Reducer::Add);
    /// Multiplies the windows that [`Array::scatter`] would replace by updates.
    scatter_mul scatter_mul_to Some(Reducer::Mul);
    /// Takes the maximum of updates and the windows that [`Array::scatter`] would replace.
    scatter_max scatter_max_to Some(Reducer::Max);
    /// Takes the minimum of updates and the windows that [`Array::scatter`] would replace.
    scatter_min scatter_min_to Some(Reducer::Min);
}
