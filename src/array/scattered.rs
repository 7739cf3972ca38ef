//! Windows at index vectors, with all parameters: what `ix!`, `take` and the like are made of.

use super::{Array, Places};
use crate::ops::indexing::{Gather, Scatter, nothing};
use crate::program::Call;
use crate::program::sentence::Combine;
use crate::sharding::Spec;
use crate::trace::{apply1, carried, poison};
use crate::types::Shape;
use std::sync::Arc;

/// # Windows at index vectors
impl Array {
    /// The windows of these sizes at index vectors, which the last dimension of `indices` holds: [`Places`] says what the parameters mean, and
    /// which dimensions come where. [`slice`](Array::slice), [`take`](Array::take) and [`take_along_axis`](Array::take_along_axis) are shorter.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::Places;
    /// let x = Array::arange(0..12).reshape([3, 4]);
    /// // two elements of a row from a place on, at three places
    /// let at = Array::from([[0, 1], [2, 2], [1, 0]]);
    /// let places = Places { of: vec![0, 1], collapsed: vec![0], windows: vec![1], ..Places::default() };
    /// assert_eq!(x.gather(&at, &places, [1, 2]).to_string(), "[[ 1  2]\n [10 11]\n [ 4  5]]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("GatherDimensionNumbers", "offset_dims", "start_index_map", "slice_sizes"))]
    #[track_caller]
    pub fn gather(&self, indices: &Array, places: &Places, sizes: impl Into<Shape>) -> Array {
        let call = Call::here("gather").twin("x.gather_to(&indices, &places, sizes, {})");
        self.gather_at(indices, places, sizes.into(), None, call)
    }
    /// [`Array::gather`] with the result sharded so.
    #[track_caller]
    pub fn gather_to(&self, indices: &Array, places: &Places, sizes: impl Into<Shape>, out: Spec) -> Array {
        self.gather_at(indices, places, sizes.into(), Some(out), Call::here("gather_to"))
    }
    fn gather_at(
        &self,
        indices: &Array,
        at: &Places,
        sizes: Shape,
        out: Option<Spec>,
        call: Call<'_>,
    ) -> Array {
        if let Some(error) = carried([self, indices].into_iter()) {
            return poison(error);
        }
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let prim = Gather { at: at.clone(), sizes, fill: nothing(ty.dtype), out };
        apply1(Arc::new(prim), &[self.into(), indices.into()], call)
    }
    fn scatter_at(
        &self,
        [indices, updates]: [&Array; 2],
        at: &Places,
        combine: Option<Combine>,
        out: Option<Spec>,
        call: Call<'_>,
    ) -> Array {
        if let Some(error) = carried([self, indices, updates].into_iter()) {
            return poison(error);
        }
        let prim = Scatter { at: at.clone(), combine, out };
        apply1(Arc::new(prim), &[self.into(), updates.into(), indices.into()], call)
    }
}

macro_rules! scatters { ($($(#[$doc:meta])* $name:ident $to:ident $combine:expr;)*) => {
    impl Array {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self, indices: &Array, updates: &Array, places: &Places) -> Array {
            let twin = concat!("x.", stringify!($to), "(&indices, &updates, &places, {})");
            self.scatter_at([indices, updates], places, $combine, None, Call::here(stringify!($name)).twin(twin))
        }
        #[doc = concat!("[`Array::", stringify!($name), "`] with the result sharded so.")]
        #[track_caller]
        pub fn $to(&self, indices: &Array, updates: &Array, places: &Places, out: Spec) -> Array {
            self.scatter_at([indices, updates], places, $combine, Some(out), Call::here(stringify!($to)))
        }
    )*}
} }

scatters! {
    /// The array with windows put at index vectors, which the last dimension of `indices` holds: [`Places`] says what the parameters mean, and
    /// which dimensions of the updates are whose. Of windows that meet, the last one in row-major order of the indices stays.
    /// [`at`](Array::at) is shorter.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::Places;
    /// let x = Array::zeros(I32.of([2, 4]));
    /// let (at, new) = (Array::from([[0, 1], [1, 2]]), Array::from([[1, 2], [3, 4]]));
    /// let places = Places { of: vec![0, 1], collapsed: vec![0], windows: vec![1], ..Places::default() };
    /// assert_eq!(x.scatter(&at, &new, &places).to_string(), "[[0 1 2 0]\n [0 0 3 4]]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("ScatterDimensionNumbers", "update_window_dims", "inserted_window_dims"))]
    scatter scatter_to None;
    /// As [`Array::scatter`], each window added to what is there.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::Places;
    /// let at = Array::from([[1], [0], [1]]);
    /// let places = Places { of: vec![0], collapsed: vec![0], ..Places::default() };
    /// let y = Array::from([1, 2]).scatter_add(&at, &Array::from([10, 20, 30]), &places);
    /// assert_eq!(y.to_vec::<i32>()?, [21, 42]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    scatter_add scatter_add_to Some(Combine::Add);
    /// As [`Array::scatter`], each window multiplied by what is there.
    scatter_mul scatter_mul_to Some(Combine::Mul);
    /// As [`Array::scatter`], the greater of each window and what is there.
    scatter_max scatter_max_to Some(Combine::Max);
    /// As [`Array::scatter`], the smaller of each window and what is there.
    scatter_min scatter_min_to Some(Combine::Min);
}
