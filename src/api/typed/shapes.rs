//! Resharding, and operations that reorder, split, slice and join dims.

use super::rules::reshape_dims::{Permute, UnitDim};
use super::rules::slice::{CutDim, EqualExceptDim, JoinDim};
use super::sets::{AddOf, AddRhs, Sets};
use super::shape::{D, DimAccess, DimNumber, Formed, Insert, Shape, Stretch};
use super::size::{Size, value_of};
use super::{SameElem, Typed, TypedArray, convert, rules::reshard::ReshardTo};
use crate::api::array::concat;
use crate::core::Element;

/// The shape `S` with dim `I` replaced by `Q`.
pub type ReplaceDim<S, I, Q> = <S as DimAccess<I>>::Put<Q>;
/// Dim number `I` of the shape `S`.
pub type DimAt<S, I> = <S as DimAccess<I>>::Dim;
type ConcatShape<S, R, I> = ReplaceDim<S, I, <DimAt<S, I> as JoinDim<DimAt<R, I>>>::Out>;
type RemoveDim<S, I> = <S as DimAccess<I>>::Removed;
/// Returns `value` for dim `I`, and `other` for the other dims.
pub(super) fn for_dim<S: Shape, I: DimNumber, A: Clone>(value: A, other: A) -> Vec<A> {
    let mut all = vec![other; S::DIMS.len()];
    all[I::NUMBER] = value;
    all
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Reshards the array as `spec` says.
        ///
        /// For each dim, the spec has an axis, several axes `(X, Y)`, `_` (unsharded) or `=`
        /// (unchanged). Resharding is the only operation that completes an unreduced sum.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 4 } }
        /// let x = <T![f32; 8@X, 16]>::ones(&Pod::mesh()?);
        /// let y: T![f32; 8@X, 16@Y] = x.reshard(P![=, Y]);
        /// let z: T![f32; 8, 16@(X, Y)] = y.reshard(P![_, (X, Y)]);
        /// # let _ = z;
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn reshard[P: ReshardTo<S, V>](&self, spec: P) -> Typed<T, P::Shape, P::Sets>
            = self.array.reshard(convert::spec::<P::Shape, P::Sets>());
        /// Permutes the dims: `x.transpose((D1, D0))`.
        pub fn transpose[P](&self, order: P) -> Typed<T, S::Out, V>
        where [S: Permute<P>]
            = self.array.transpose(S::ORDER);
        /// Permutes the dims like [`Typed::transpose`], with the order as a type parameter only.
        #[doc(hidden)]
        pub fn permuted[P](&self) -> Typed<T, S::Out, V>
        where [S: Permute<P>]
            = self.array.transpose(S::ORDER);
        /// Transposes a matrix.
        pub fn t[R](&self) -> Typed<T, R, V>
        where [
            // with a projection as the result, rustc would say that the method does not exist
            S: Permute<(D<1>, D<0>), Out = R>,
            R: Shape,
        ]
            = self.array.transpose(S::ORDER);
        /// Inserts a dim of size 1, `~`, which broadcasts in elementwise operations.
        pub fn expand_dims[I: DimNumber](&self, at: I)
            -> Typed<T, <S as Insert<I::D, Stretch>>::Out, V>
        where [S: Insert<I::D, Stretch>]
            = self.array.expand_dims(I::NUMBER);
        /// Removes dim `at`, which must have size 1.
        pub fn squeeze[I: DimNumber](&self, at: I) -> Typed<T, RemoveDim<S, I::D>, V>
        where [S: DimAccess<I::D>, DimAt<S, I::D>: UnitDim]
            = self.array.squeeze(I::NUMBER);
        /// Concatenates two arrays along a dim. Their other dims and their sharding are equal.
        ///
        /// [`concat`](super::concat()) joins more than two.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 4@X, 3]>::ones(&Pod::mesh()?);
        /// let y: T![f32; 4@X, 6] = x.concat(&x, D1);
        /// let (a, b): (T![f32; 4@X, 2], T![f32; 4@X, 4]) = y.split::<N![2], N![4], _>(D1);
        /// let c: T![f32; 4@X, 3] = y.slice::<N![1], N![4], _>(D1);
        /// # let _ = (a, b, c);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn concat[R: TypedArray<Elem: SameElem<T>>, I: DimNumber](&self, b: &R, at: I)
            -> Typed<T, ConcatShape<S, R::Shape, I::D>, AddOf<V, R::Sets>>
        where [
            R::Sets: AddRhs<V>,
            S: DimAccess<I::D, Dim: JoinDim<DimAt<R::Shape, I::D>>>,
            R::Shape: DimAccess<I::D> + EqualExceptDim<I::D, S>,
            ConcatShape<S, R::Shape, I::D>: Shape,
        ]
            = concat([&self.array, b.as_untyped()], I::NUMBER as i32);
    }
    /// Splits a dim into two pieces, whose sizes add up to it; [`Typed::split_into`] splits it into
    /// more.
    #[track_caller]
    pub fn split<A: Size, B: Size, I: DimNumber>(&self, at: I) -> SplitResult<T, S, V, I::D, A, B>
    where
        S: DimAccess<I::D>,
        DimAt<S, I::D>: CutDim<A, B>,
        ReplaceDim<S, I::D, <DimAt<S, I::D> as CutDim<A, B>>::First>: Shape,
        ReplaceDim<S, I::D, <DimAt<S, I::D> as CutDim<A, B>>::Second>: Shape,
    {
        let _ = at;
        let known = const { [value_of::<A>(), value_of::<B>()] };
        let mut parts = self.array.split(known, I::NUMBER as i32).into_iter();
        // an array that carries an error stands for both pieces
        let mut next = || parts.next().unwrap_or_else(|| self.array.clone());
        (Typed::from_rule_result(next()), Typed::from_rule_result(next()))
    }
    forward! {
        /// Reverses the elements along a dim.
        pub fn flip[I: DimNumber](&self, at: I) -> Self
        where [S: DimAccess<I::D>]
            = self.array.flip(I::NUMBER);
    }
    /// Requires a valid shape, in which mesh axes divide the dims that they shard.
    pub fn well_formed(&self) -> &Self
    where
        S: Formed,
    {
        self
    }
}

/// The two pieces of dim `I`.
pub type SplitResult<T, S, V, I, A, B> = (
    Typed<T, ReplaceDim<S, I, <DimAt<S, I> as CutDim<A, B>>::First>, V>,
    Typed<T, ReplaceDim<S, I, <DimAt<S, I> as CutDim<A, B>>::Second>, V>,
);
