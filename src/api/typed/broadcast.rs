//! Broadcasting to a stated shape, and to the shape of another array.

use super::rules::reshape_dims::{BroadcastLike, BroadcastOf};
use super::shape::{DimInfo, Shape};
use super::{Typed, TypedArray, convert, equal_sizes, sets::Sets};
use crate::api::array::Array;
use crate::core::Element;
use crate::ir::program::CallSite;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Broadcasts to a shape with more leading dims, and with any size for each dim `~`.
    ///
    /// For example: `x.broadcast_to::<S![4, 8]>()`. Sizes of new dims are known when compiling;
    /// [`Typed::broadcast_like`] takes them from an array.
    #[track_caller]
    pub fn broadcast_to<R: BroadcastOf<S>>(&self) -> Typed<T, R, V> {
        let Ok(shape) = self.array.shape() else { return Typed::from_rule_result(self.array.clone()) };
        // a size that is known only at run time is that of a dim of this array
        let lead = R::DIMS.len() - shape.rank();
        let size = |(d, info): (usize, &DimInfo)| info.size.unwrap_or_else(|| shape[d - lead]);
        let to: Vec<usize> = R::DIMS.iter().enumerate().map(size).collect();
        Typed::from_rule_result(self.array.broadcast_to(to))
    }
    forward! {
        /// Broadcasts to the shape of another array, and shards the result like it.
        ///
        /// The dims of this array are the last dims of that shape, or `~`. They are sharded alike,
        /// or unsharded. Sizes that are known only at run time come from `like`.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// dim!(Batch);
        /// let pod = Pod::mesh()?;
        /// let x: T![f32; Batch@X, 3] = Array::zeros([4, 3]).put(&pod, p!["X"]).typed()?;
        /// let row = <T![f32; 3]>::ones(&pod);
        /// let rows: T![f32; Batch@X, 3] = row.broadcast_like(&x);
        /// assert_eq!(type_of(&rows), "float32[4@X,3]");
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn broadcast_like[R: TypedArray](&self, like: &R) -> Typed<T, R::Shape, V>
        where [R::Shape: BroadcastLike<S>]
            = equal_sizes::like::<S, R::Shape>(call, &self.array, like)
                => like_array::<R::Shape>(&self.array, like, call),
                with (call, like) = (CallSite::here("broadcast_like"), like.as_untyped());
    }
}

/// Broadcasts an array to the shape of `like`, sharded as the type `S` of `like` says.
fn like_array<S: Shape>(array: &Array, like: &Array, call: CallSite<'_>) -> Array {
    let Ok(ty) = like.type_ref() else { return like.clone() };
    let sharded = S::DIMS.iter().any(|d| !d.axes.is_empty());
    let mesh = ty.mesh.clone().filter(|_| sharded);
    array.broadcast_like(&ty.shape, mesh.map(|mesh| (mesh, convert::spec::<S, ()>())).as_ref(), call)
}
