//! Reordering, repeating and differencing dims, and diagonals.

use super::rules::matrices::{Diagonals, LastTwoDims};
use super::rules::rearrange::{DiagShape, DiffDim, Raveled, RepeatDim, SameShape};
use super::rules::reshape_dims::UnshardedDim;
use super::rules::slice::PadDim;
use super::sets::{CompleteFor, JoinOf, JoinRhs, Sets};
use super::shape::{DimAccess, DimNumber, Insert, Shape, TDim};
use super::shapes::{DimAt, ReplaceDim, for_dim};
use super::size::{KnownSize, Size, value_of};
use super::{Float, Integer, Number, Summed, Typed, TypedArray, op};
use crate::api::array::PadMode;
use crate::core::Element;

type Swapped<S, I, J> = ReplaceDim<ReplaceDim<S, I, DimAt<S, J>>, J, DimAt<S, I>>;
type Rest<S, I> = <S as DimAccess<I>>::Removed;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Swaps two dims, each with its sharding.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 4@X, 2, 3]>::ones(&Pod::mesh()?);
        /// let swapped: T![f32; 3, 2, 4@X] = x.swapaxes(D0, D2);
        /// let moved: T![f32; 2, 3, 4@X] = x.moveaxis(D0, D2);
        /// # let _ = (swapped, moved);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn swapaxes[I: DimNumber, J: DimNumber](&self, a: I, b: J)
            -> Typed<T, Swapped<S, I::D, J::D>, V>
        where [
            S: DimAccess<I::D> + DimAccess<J::D>,
            ReplaceDim<S, I::D, DimAt<S, J::D>>: DimAccess<J::D>,
            Swapped<S, I::D, J::D>: Shape,
        ]
            = self.array.swapaxes(I::NUMBER as i32, J::NUMBER as i32);
        /// Moves dim `from`, with its sharding, to position `to`; the others keep their order.
        pub fn moveaxis[I: DimNumber, J: DimNumber](&self, from: I, to: J)
            -> Typed<T, <Rest<S, I::D> as Insert<J::D, DimAt<S, I::D>>>::Out, V>
        where [S: DimAccess<I::D>, Rest<S, I::D>: Insert<J::D, DimAt<S, I::D>>]
            = self.array.moveaxis(I::NUMBER, J::NUMBER);
        /// Flattens an unsharded array, whose sizes are numbers, to a vector.
        pub fn ravel(&self) -> Typed<T, (TDim<S::Elements>,), V>
        where [S: Raveled]
            = self.array.ravel();
        /// Repeats each element along a dim `K` times. The dim keeps its sharding.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![i32; 2@X, 3]>::iota(&Pod::mesh()?, D0);
        /// let rows: T![i32; 4@X, 3] = x.repeat::<N![2], _>(D0);
        /// let steps: T![i32; 4@X, 2] = rows.diff::<N![1], _>(D1);
        /// let slope: T![i32; 3, 2@X] = x.swapaxes(D0, D1);
        /// assert_eq!((steps.to_vec()?, slope.to_vec()?), (vec![0; 8], vec![0, 1, 0, 1, 0, 1]));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn repeat[K: KnownSize, I: DimNumber](&self, along: I)
            -> Typed<T, ReplaceDim<S, I::D, <DimAt<S, I::D> as RepeatDim<K>>::Out>, V>
        where [
            S: DimAccess<I::D, Dim: RepeatDim<K>>,
            ReplaceDim<S, I::D, <DimAt<S, I::D> as RepeatDim<K>>::Out>: Shape,
            V: CompleteFor<op::repeat>,
        ]
            = self.array.repeat(K::VALUE.unwrap_or(1), I::NUMBER as i32);
        /// Repeats element k along an unsharded dim `counts[k]` times, to a total size of `K`.
        ///
        /// `counts` is a vector of integers with the same dim.
        /// See [`Array::repeat_by`](crate::Array::repeat_by).
        pub fn repeat_by[K: KnownSize, R: TypedArray<Elem: Integer>, I: DimNumber](&self, counts: &R, along: I)
            -> Typed<T, ReplaceDim<S, I::D, TDim<K>>, JoinOf<V, R::Sets>>
        where [
            S: DimAccess<I::D, Dim: UnshardedDim>,
            R::Shape: SameShape<(DimAt<S, I::D>,)>,
            R::Sets: JoinRhs<V>,
            ReplaceDim<S, I::D, TDim<K>>: Shape,
        ]
            = self.array.repeat_by(counts.as_untyped(), const { value_of::<K>() }, I::NUMBER as i32);
        /// Computes the `K`-th differences along an unsharded dim, which becomes shorter by `K`.
        pub fn diff[K: KnownSize, I: DimNumber](&self, along: I)
            -> Typed<T, ReplaceDim<S, I::D, <DimAt<S, I::D> as DiffDim<K>>::Out>, V>
        where [
            T: Number,
            S: DimAccess<I::D, Dim: DiffDim<K>>,
            ReplaceDim<S, I::D, <DimAt<S, I::D> as DiffDim<K>>::Out>: Shape,
            V: CompleteFor<op::diff>,
        ]
            = self.array.diff(const { value_of::<K>() }, I::NUMBER as i32);
        /// Computes the derivative along a dim by central differences. The type does not change.
        ///
        /// A sharded dim keeps its sharding: devices exchange the elements at block edges.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 4@X]>::iota(&Pod::mesh()?, D0);
        /// let slope: T![f32; 4@X] = x.gradient(0.5, D0);
        /// assert_eq!(slope.to_vec()?, [2.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn gradient[I: DimNumber](&self, spacing: f64, along: I) -> Self
        where [T: Float, S: DimAccess<I::D>, V: CompleteFor<op::gradient>]
            = self.array.gradient(spacing, I::NUMBER as i32);
    }
    /// Returns the slices along an unsharded dim, which is removed.
    #[track_caller]
    pub fn unstack<I: DimNumber>(&self, along: I) -> Vec<Typed<T, Rest<S, I::D>, V>>
    where
        S: DimAccess<I::D>,
        DimAt<S, I::D>: UnshardedDim,
    {
        let _ = along;
        self.array.unstack(I::NUMBER as i32).into_iter().map(Typed::from_rule_result).collect()
    }
    forward! {
        /// Pads an unsharded dim with elements of the array: `A` before and `B` after.
        ///
        /// The mode says which elements: `x.pad_with::<N![1], N![1], _>(D0, PadMode::Edge)`.
        pub fn pad_with[A: Size, B: Size, I: DimNumber](&self, at: I, mode: PadMode)
            -> Typed<T, ReplaceDim<S, I::D, <DimAt<S, I::D> as PadDim<A, B>>::Out>, V>
        where [
            S: DimAccess<I::D, Dim: PadDim<A, B>>,
            ReplaceDim<S, I::D, <DimAt<S, I::D> as PadDim<A, B>>::Out>: Shape,
            V: CompleteFor<op::pad_with>,
        ]
            = self.array.pad_with(for_dim::<S, I, _>(widths, (0, 0)), mode),
                with widths = const { (value_of::<A>(), value_of::<B>()) };
        /// Sums the `k`-th diagonals of the last two dims, which are removed, sharded or not.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 4, 4@X]>::ones(&Pod::mesh()?);
        /// let (sum, diagonal): (T![f32;], T![f32; 4@X]) = (x.trace(1), x.diagonal());
        /// let matrix: T![f32; 4, 4@X] = diagonal.diag();
        /// assert_eq!((sum.item()?, matrix.sum(..).item()?), (3.0, 4.0));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn trace(&self, k: i64) -> Typed<T::Sum, S::Batch, V>
        where [T: Summed, S: LastTwoDims, V: CompleteFor<op::trace>]
            = self.array.trace(k);
        /// Returns the main diagonals of square matrices, the last two dims.
        ///
        /// They are the last dim of the result, sharded like the columns.
        pub fn diagonal(&self) -> Typed<T, S::Out, V>
        where [S: Diagonals, V: CompleteFor<op::diagonal>]
            = self.array.diagonal(0);
        /// Returns the matrix with this vector on its diagonal, whose columns are sharded like the
        /// vector; or the diagonal of a square matrix, sharded like its columns.
        pub fn diag(&self) -> Typed<T, S::Out, V>
        where [S: DiagShape, V: CompleteFor<op::diag>]
            = self.array.diag(0);
    }
}
