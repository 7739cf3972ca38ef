//! Creation of typed arrays.

use super::shape::{Formed, KnownShape, OnMesh, Shape};
use super::{Typed, axis::MeshType, convert, equal_sizes::any_open, mesh::MeshOf, sets::Sets};
use crate::api::array::Array;
use crate::core::{ArrayType, DType, Element};
use atmesh_typed::sealed::Sealed;

/// Where arrays of shape `S` are created: a typed mesh, or the device of a `shard_map` body.
///
/// `V` is the sets of the created array.
#[diagnostic::on_unimplemented(
    message = "no typed array can be created on `{Self}`",
    label = "expected a typed mesh: `&Pod::mesh()?`; in a `shard_map` body its device",
    note = "in a body, arrays are created equal on every device (`T![f32; 4; in Pod]`); `.pvary(X)` makes them vary",
    note = "a `Mesh` becomes a typed one by `mesh.typed::<Pod>()?`"
)]
pub trait Place<S, V>: Sealed {
    /// Returns the type of an array of this element type.
    #[doc(hidden)]
    fn array_type(&self, dtype: DType) -> ArrayType;
}
impl<M: MeshType, S: Shape + OnMesh<M>> Place<S, ()> for MeshOf<M> {
    fn array_type(&self, dtype: DType) -> ArrayType {
        dtype.array_type(sizes::<S>()).on(self, convert::spec::<S, ()>())
    }
}
impl<S, V, P: Place<S, V>> Place<S, V> for &P {
    fn array_type(&self, dtype: DType) -> ArrayType {
        P::array_type(self, dtype)
    }
}
/// Returns the sizes of a shape, which the bound [`KnownShape`] guarantees to be known.
pub(super) fn sizes<S: Shape>() -> Vec<usize> {
    const { assert!(!any_open(S::DIMS), "a size is known only at run time") };
    S::DIMS.iter().filter_map(|d| d.size).collect()
}

/// Creation. `place` is a typed mesh, whose axes shard the dims.
///
/// Sizes are known when compiling, the axes divide the dims that they shard, and no axis shards two
/// dims. In a `shard_map` body `place` is its [`DeviceOf`](super::DeviceOf): every device creates
/// the entire array, so its dims are unsharded.
///
/// The type of the new array is the one that is expected there. An operand of an operator has no
/// expected type: write a number, `x + 0.5`, or state the type as in
/// `x + <T![f32; 8@X]>::full(&pod, 0.5)`.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
/// let pod = Pod::mesh()?;
/// let x = <T![f32; 8@X, 16]>::zeros(&pod);
/// let rows = <T![i32; 2, 3]>::iota(&pod, D0);
/// let half: T![f32; 8@X, 16] = Typed::full(&pod, 0.5);
/// let sum = x + half;
/// assert_eq!((sum.to_vec()?[0], rows.to_vec()?), (0.5, vec![0, 0, 0, 1, 1, 1]));
/// # Ok::<(), atmesh::Error>(())
/// ```
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Creates an array of zeros.
    #[track_caller]
    pub fn zeros(place: &impl Place<S, V>) -> Self
    where
        S: KnownShape + Formed,
    {
        Typed::from_rule_result(Array::zeros(place.array_type(T::DTYPE)))
    }
    /// Creates an array of ones.
    #[track_caller]
    pub fn ones(place: &impl Place<S, V>) -> Self
    where
        S: KnownShape + Formed,
    {
        Typed::from_rule_result(Array::ones(place.array_type(T::DTYPE)))
    }
    /// Creates an array with one value everywhere.
    #[track_caller]
    pub fn full(place: &impl Place<S, V>, value: T) -> Self
    where
        S: KnownShape + Formed,
    {
        Typed::from_rule_result(Array::full(place.array_type(T::DTYPE), Array::from(value)))
    }
    /// Creates an array of the indices along a dim.
    #[track_caller]
    pub fn iota<I: super::shape::DimNumber>(place: &impl Place<S, V>, along: I) -> Self
    where
        S: super::shape::DimAccess<I::D> + KnownShape + Formed,
        T: super::Number,
    {
        let _ = along;
        Typed::from_rule_result(Array::iota(place.array_type(T::DTYPE), I::NUMBER))
    }
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Creates an array of zeros with the type of this array.
        pub fn zeros_like(&self) -> Self = self.array.zeros_like();
        /// Creates an array of ones with the type of this array.
        pub fn ones_like(&self) -> Self = self.array.ones_like();
    }
}
