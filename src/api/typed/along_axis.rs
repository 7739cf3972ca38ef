//! Operations along one dim: sorting, cumulative sums, rolling, padding, stacking and indexing.

use super::rules::reshape_dims::UnshardedDim;
use super::rules::slice::{PadDim, StackRhs, TileDim, TopDim};
use super::sets::{AddOf, AddRhs, CompleteFor, Sets};
use super::shape::{DimAccess, DimNumber, Insert, Shape, TDim};
use super::shapes::{DimAt, ReplaceDim, for_dim};
use super::size::{KnownSize, Num, Size, value_of};
use super::{Float, Number, NumberOf, SameElem, Typed, TypedArray, equal_sizes, op};
use crate::api::array::stack;
use crate::core::Element;

macro_rules! along { ($($(#[$doc:meta])* $name:ident $bound:ident $out:ty, $sets:path;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<I: DimNumber>(&self, along: I) -> Typed<$out, S, V>
        where
            T: $bound,
            S: DimAccess<I::D>,
            DimAt<S, I::D>: UnshardedDim,
            V: $sets,
        {
            let _ = along;
            Typed::from_rule_result(self.array.$name(I::NUMBER as i32))
        }
    )* }
} }
along! {
    /// Sorts the elements along an unsharded dim in ascending order.
    ///
    /// See [`Array::sort`](crate::Array::sort).
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![i32; 2@X, 3]>::iota(&Pod::mesh()?, D1).flip(D1);
    /// let sorted: T![i32; 2@X, 3] = x.sort(D1);
    /// let sums: T![i32; 2@X, 3] = sorted.cumsum(D1);
    /// let (top, places): (T![i32; 2@X, 2], T![i32; 2@X, 2]) = x.top_k::<N![2], _>(D1);
    /// assert_eq!((sums.to_vec()?, top.to_vec()?), (vec![0, 1, 3, 0, 1, 3], vec![2, 1, 2, 1]));
    /// assert_eq!(places.to_vec()?, [0, 1, 0, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    sort Element T, CompleteFor<op::sort>;
    /// Returns the indices that would sort the elements along an unsharded dim.
    argsort Element i32, CompleteFor<op::argsort>;
    /// Computes the cumulative sum along an unsharded dim.
    cumsum Number T, Sets;
    /// Computes the cumulative product along an unsharded dim.
    cumprod Number T, CompleteFor<op::cumprod>;
    /// Computes the cumulative maximum along an unsharded dim.
    cummax Element T, CompleteFor<op::cummax>;
    /// Computes the cumulative minimum along an unsharded dim.
    cummin Element T, CompleteFor<op::cummin>;
    /// Computes the cumulative log Σ exp along an unsharded dim.
    cumlogsumexp Float T, CompleteFor<op::cumlogsumexp>;
    /// Computes the cumulative sum along an unsharded dim, starting at the end.
    cumsum_reverse Number T, Sets;
    /// Computes the cumulative product along an unsharded dim, starting at the end.
    cumprod_reverse Number T, CompleteFor<op::cumprod_reverse>;
    /// Computes the cumulative maximum along an unsharded dim, starting at the end.
    cummax_reverse Element T, CompleteFor<op::cummax_reverse>;
    /// Computes the cumulative minimum along an unsharded dim, starting at the end.
    cummin_reverse Element T, CompleteFor<op::cummin_reverse>;
    /// Computes the cumulative log Σ exp along an unsharded dim, starting at the end.
    cumlogsumexp_reverse Float T, CompleteFor<op::cumlogsumexp_reverse>;
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Returns the median along an unsharded dim, which is removed.
        pub fn median[I: DimNumber](&self, along: I) -> Typed<T, <S as DimAccess<I::D>>::Removed, V>
        where [T: Float, S: DimAccess<I::D, Dim: UnshardedDim>, V: CompleteFor<op::median>]
            = self.array.median(I::NUMBER as i32);
        /// Returns the quantile `q`, from 0 to 1, along an unsharded dim, which is removed.
        ///
        /// Between two elements it is interpolated; see
        /// [`Array::quantile`](crate::Array::quantile).
        pub fn quantile[I: DimNumber](&self, q: f64, along: I)
            -> Typed<T, <S as DimAccess<I::D>>::Removed, V>
        where [T: Float, S: DimAccess<I::D, Dim: UnshardedDim>, V: CompleteFor<op::quantile>]
            = self.array.quantile(q, I::NUMBER as i32);
        /// Returns the `K` largest elements along an unsharded dim, and their indices.
        ///
        /// Elements are in descending order: `x.top_k::<N![4], _>(D1)`. The dim has at least `K`
        /// elements, and a size that is known when compiling.
        pub fn top_k[K: KnownSize, I: DimNumber](&self, along: I)
            -> (Typed<T, ReplaceDim<S, I::D, TDim<K>>, V>, Typed<i32, ReplaceDim<S, I::D, TDim<K>>, V>)
        where [
            S: DimAccess<I::D, Dim: UnshardedDim + TopDim<K>>,
            ReplaceDim<S, I::D, TDim<K>>: Shape,
            V: CompleteFor<op::top_k>,
        ]
            = self.array.top_k(const { value_of::<K>() }, I::NUMBER as i32);
        /// Shifts the elements cyclically by `by` positions along a dim.
        ///
        /// Elements that leave at one end enter at the other; negative `by` shifts towards the
        /// start.
        ///
        /// A sharded dim keeps its sharding: devices exchange the elements that cross block edges.
        pub fn roll[I: DimNumber](&self, by: i64, along: I) -> Self
        where [S: DimAccess<I::D>]
            = self.array.roll(by, I::NUMBER as i32);
        /// Shifts the elements by `by` positions along a dim, filling with `fill`.
        ///
        /// Negative `by` shifts towards the start.
        ///
        /// A sharded dim keeps its sharding: devices exchange the elements that cross block edges,
        /// so a stencil can read its neighbours.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 4@X]>::iota(&Pod::mesh()?, D0);
        /// let laplace: T![f32; 4@X] = x.shift(1, D0, 0.0) + x.shift(-1, D0, 0.0) - &x * 2.0;
        /// assert_eq!(laplace.to_vec()?, [1.0, 0.0, 0.0, -4.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn shift[I: DimNumber](&self, by: i64, along: I, fill: impl NumberOf<T>) -> Self
        where [S: DimAccess<I::D>, V: CompleteFor<op::shift>]
            = self.array.shift(by, I::NUMBER as i32, fill.number());
        /// Pads a dim with `value`: `A` elements before and `B` elements after.
        ///
        /// For example: `x.pad::<N![1], N![2], _>(D0, 0.0)`. A sharded dim keeps its sharding,
        /// which divides the new size.
        pub fn pad[A: Size, B: Size, I: DimNumber](&self, at: I, value: impl NumberOf<T>)
            -> Typed<T, ReplaceDim<S, I::D, <DimAt<S, I::D> as PadDim<A, B>>::Out>, V>
        where [
            S: DimAccess<I::D, Dim: PadDim<A, B>>,
            ReplaceDim<S, I::D, <DimAt<S, I::D> as PadDim<A, B>>::Out>: Shape,
            V: CompleteFor<op::pad>,
        ]
            = self.array.pad(value.number(), for_dim::<S, I, _>(widths, (0, 0, 0))),
                with widths = const { (value_of::<A>() as i64, value_of::<B>() as i64, 0) };
        /// Repeats the array `K` times along an unsharded dim: `x.tile::<N![3], _>(D1)`.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![i32; 2@X, 2]>::iota(&Pod::mesh()?, D1);
        /// let y: T![i32; 2@X, 6] = x.tile::<N![3], _>(D1);
        /// assert_eq!(y.to_vec()?[..6], [0, 1, 0, 1, 0, 1]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn tile[K: KnownSize, I: DimNumber](&self, along: I)
            -> Typed<T, ReplaceDim<S, I::D, <DimAt<S, I::D> as TileDim<K>>::Out>, V>
        where [
            S: DimAccess<I::D, Dim: TileDim<K>>,
            ReplaceDim<S, I::D, <DimAt<S, I::D> as TileDim<K>>::Out>: Shape,
        ]
            = self.array.tile(for_dim::<S, I, _>(const { value_of::<K>() }, 1));
        /// Stacks this and another array of the same shape and sharding along a new dim of size 2.
        pub fn stack[R: TypedArray<Elem: SameElem<T>, Shape: StackRhs<S>>, I: DimNumber](&self, b: &R, at: I)
            -> Typed<T, <S as Insert<I::D, TDim<Num<2>>>>::Out, AddOf<V, R::Sets>>
        where [R::Sets: AddRhs<V>, S: Insert<I::D, TDim<Num<2>>>]
            = equal_sizes::alike::<S>("stack", &[&self.array, b])
                => stack([&self.array, b], I::NUMBER as i32), with b = b.as_untyped();
    }
}
