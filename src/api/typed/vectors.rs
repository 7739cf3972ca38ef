//! Products of vectors, polynomials, searches in vectors, counts and segment reductions.

use super::rules::rearrange::{BinCount, InnerRhs, KronRhs, OuterRhs, SameShape, ThreeDim, UnshardedVector};
use super::rules::reshape_dims::{UnshardedDim, UnshardedShape};
use super::sets::{CompleteFor, JoinOf, JoinRhs, MulOf, MulRhs, ProductOf, ProductRhs, Sets};
use super::shape::{D, DimAccess, DimNumber, Shape, TDim};
use super::shapes::{DimAt, ReplaceDim};
use super::size::{KnownSize, value_of};
use super::{Float, Integer, Number, SameElem, Typed, TypedArray, equal_sizes, op};
use crate::api::array::GatherDims;
use crate::core::Element;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Computes the outer product of two vectors; each dim of the matrix keeps its sharding.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 2 } }
        /// let pod = Pod::mesh()?;
        /// let (x, y) = (<T![f32; 4@X]>::ones(&pod), <T![f32; 6@Y]>::ones(&pod));
        /// let xy: T![f32; 4@X, 6@Y] = x.outer(&y);
        /// let sums: T![f32; 4@X] = xy.inner(&y.reshard(P![_]));
        /// assert_eq!(sums.to_vec()?, [6.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn outer[R: TypedArray<Elem: SameElem<T>>](&self, b: &R)
            -> Typed<T, <R::Shape as OuterRhs<S>>::Out, MulOf<V, R::Sets>>
        where [T: Number, R::Shape: OuterRhs<S>, R::Sets: MulRhs<V>]
            = self.array.outer(b.as_untyped());
        /// Sums products over the last dims of two vectors or matrices, like [`Typed::matmul`].
        ///
        /// The result has the remaining dims of both, with their shardings.
        pub fn inner[R: TypedArray<Elem: SameElem<T>>](&self, b: &R)
            -> Typed<T, <R::Shape as InnerRhs<S>>::Out, ProductOf<V, R::Sets>>
        where [T: Number, R::Shape: InnerRhs<S>, R::Sets: ProductRhs<V>]
            = self.array.inner(b.as_untyped());
        /// Sums the products of all elements of two unsharded arrays of one shape.
        pub fn vdot[R: TypedArray<Elem: SameElem<T>>](&self, b: &R)
            -> Typed<T, (), ProductOf<V, R::Sets>>
        where [T: Number, S: UnshardedShape, R::Shape: SameShape<S>, R::Sets: ProductRhs<V>]
            = self.array.vdot(b.as_untyped());
        /// Computes the Kronecker product with an unsharded vector or matrix.
        ///
        /// The sizes of the dims are multiplied; the dims of this array keep their shardings.
        pub fn kron[R: TypedArray<Elem: SameElem<T>>](&self, b: &R)
            -> Typed<T, <R::Shape as KronRhs<S>>::Out, MulOf<V, R::Sets>>
        where [T: Number, R::Shape: KronRhs<S>, R::Sets: MulRhs<V>]
            = self.array.kron(b.as_untyped());
        /// Computes the cross products of vectors with three elements along a dim.
        ///
        /// Both arrays have one shape and sharding, which is that of the result.
        pub fn cross[R: TypedArray<Elem: SameElem<T>>, I: DimNumber](&self, b: &R, along: I)
            -> Typed<T, S, MulOf<V, R::Sets>>
        where [
            T: Number,
            S: DimAccess<I::D, Dim: ThreeDim>,
            R::Shape: SameShape<S>,
            R::Sets: MulRhs<V>,
            V: CompleteFor<op::cross>,
        ]
            = equal_sizes::alike::<S>("cross", &[&self.array, b]) => self.array.cross(b, I::NUMBER as i32),
                with b = b.as_untyped();
        /// Evaluates a polynomial at each element. Shape and sharding do not change.
        ///
        /// The coefficients are an unsharded vector, the one of the highest power first.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let pod = Pod::mesh()?;
        /// let (x, ones) = (<T![f32; 4@X]>::iota(&pod, D0), <T![f32; 3]>::ones(&pod));
        /// let y: T![f32; 4@X] = x.polyval(&ones); // x² + x + 1
        /// assert_eq!(y.to_vec()?, [1.0, 3.0, 7.0, 13.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn polyval[R: TypedArray<Elem: SameElem<T>>](&self, coefficients: &R)
            -> Typed<T, S, JoinOf<V, R::Sets>>
        where [T: Number, R::Shape: UnshardedVector, R::Sets: JoinRhs<V>]
            = self.array.polyval(coefficients.as_untyped());
        /// Interpolates between the points (`xs`, `ys`), two unsharded vectors of one size.
        ///
        /// Shape and sharding do not change.
        pub fn interp[R: TypedArray<Elem: SameElem<T>>, Q: TypedArray<Elem: SameElem<T>>](&self, xs: &R, ys: &Q)
            -> Typed<T, S, JoinOf<JoinOf<V, R::Sets>, Q::Sets>>
        where [
            T: Float,
            R::Shape: UnshardedVector,
            Q::Shape: SameShape<R::Shape>,
            R::Sets: JoinRhs<V>,
            Q::Sets: JoinRhs<JoinOf<V, R::Sets>>,
        ]
            = self.array.interp(xs.as_untyped(), ys.as_untyped());
        /// Returns the positions at which to insert the elements of `x` into this sorted vector.
        ///
        /// The vector is unsharded. The result has the shape and sharding of `x`.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let pod = Pod::mesh()?;
        /// let (steps, x) = (<T![f32; 3]>::iota(&pod, D0), <T![f32; 4@X]>::ones(&pod));
        /// let at: T![i32; 4@X] = steps.searchsorted(&x, true);
        /// let counts: T![i32; 3] = at.bincount::<N![3]>();
        /// assert_eq!((at.to_vec()?, counts.to_vec()?), (vec![2; 4], vec![0, 0, 4]));
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn searchsorted[R: TypedArray<Elem: SameElem<T>>](&self, x: &R, right: bool)
            -> Typed<i32, R::Shape, JoinOf<V, R::Sets>>
        where [T: Number, S: UnshardedVector, R::Sets: JoinRhs<V>]
            = self.array.searchsorted(x.as_untyped(), right);
        /// Returns true for elements that are equal to one of `values`, an unsharded array.
        ///
        /// Shape and sharding do not change.
        pub fn isin[R: TypedArray<Elem: SameElem<T>>](&self, values: &R)
            -> Typed<bool, S, JoinOf<V, R::Sets>>
        where [R::Shape: UnshardedShape, R::Sets: JoinRhs<V>]
            = self.array.isin(values.as_untyped());
        /// Returns the distinct elements of an unsharded vector, ascending, as a vector of size
        /// `K`.
        ///
        /// See [`Array::unique`](crate::Array::unique).
        pub fn unique[K: KnownSize](&self) -> Typed<T, (TDim<K>,), V>
        where [S: UnshardedVector, V: CompleteFor<op::unique>]
            = self.array.unique(const { value_of::<K>() });
        /// Computes the linear recurrence hᵢ = decayᵢ·hᵢ₋₁ + xᵢ along an unsharded dim.
        ///
        /// Both arrays have one shape and sharding, which is that of the result.
        pub fn recurrence[R: TypedArray<Elem: SameElem<T>>, I: DimNumber](&self, decay: &R, along: I)
            -> Typed<T, S, JoinOf<V, R::Sets>>
        where [
            T: Float,
            S: DimAccess<I::D, Dim: UnshardedDim>,
            R::Shape: SameShape<S>,
            R::Sets: JoinRhs<V>,
        ]
            = self.array.recurrence(decay.as_untyped(), I::NUMBER as i32);
    }
}

impl<T: Element, S: Shape> Typed<T, S> {
    forward! {
        /// Counts the occurrences of each integer in `0..K`. The result is unsharded.
        pub fn bincount[K: KnownSize](&self) -> Typed<i32, (TDim<K>,)>
        where [T: Integer]
            = self.array.bincount(const { value_of::<K>() });
        /// Sums the weights of each integer in `0..K`. The result is unsharded.
        ///
        /// The weights have the shape and sharding of this array.
        pub fn bincount_weighted[K: KnownSize, R: TypedArray<Sets = ()>](&self, weights: &R)
            -> Typed<R::Elem, (TDim<K>,)>
        where [T: Integer, R::Elem: Number, R::Shape: SameShape<S>]
            = self.array.bincount_weighted(weights.as_untyped(), const { value_of::<K>() });
        /// Counts elements in `K` equal intervals of `range`; returns the counts and the bin edges.
        ///
        /// Both are unsharded.
        pub fn histogram[K: KnownSize + BinCount](&self, range: std::ops::Range<f64>)
            -> (Typed<i32, (TDim<K>,)>, Typed<T, (TDim<K::Bounds>,)>)
        where [T: Float]
            = self.array.histogram(const { value_of::<K>() }, range);
    }
}

type Rows<S, K> = ReplaceDim<S, D<0>, TDim<K>>;
macro_rules! segments { ($($(#[$doc:meta])* $name:ident;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<K: KnownSize, R: TypedArray<Elem: Integer>>(
            &self,
            ids: &R,
        ) -> Typed<T, Rows<S, K>, JoinOf<V, R::Sets>>
        where
            T: Number,
            S: DimAccess<D<0>>,
            DimAt<S, D<0>>: UnshardedDim,
            R::Shape: SameShape<(DimAt<S, D<0>>,)>,
            R::Sets: JoinRhs<V>,
            Rows<S, K>: Shape,
        {
            Typed::from_rule_result(self.array.$name(ids.as_untyped(), const { value_of::<K>() }))
        }
    )* }
} }
segments! {
    /// Sums rows by segment: row s of the result is the sum of the rows whose id is s.
    ///
    /// Rows and ids are unsharded; the dims of a row keep their shardings. There are `K` segments.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let pod = Pod::mesh()?;
    /// let (x, ids) = (<T![f32; 3, 4@X]>::ones(&pod), <T![i32; 3]>::ones(&pod));
    /// let sums: T![f32; 2, 4@X] = x.segment_sum::<N![2], _>(&ids);
    /// assert_eq!(sums.to_vec()?, [0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 3.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    segment_sum;
    /// Multiplies rows by segment, like [`Typed::segment_sum`].
    segment_prod;
    /// Returns the maximum of rows by segment, like [`Typed::segment_sum`].
    segment_max;
    /// Returns the minimum of rows by segment, like [`Typed::segment_sum`].
    segment_min;
}
macro_rules! scatters { ($($(#[$doc:meta])* $name:ident;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<R: TypedArray<Elem: Integer>, U: TypedArray<Elem: SameElem<T>>>(
            &self,
            indices: &R,
            updates: &U,
            places: &GatherDims,
        ) -> Typed<T, S, JoinOf<JoinOf<V, R::Sets>, U::Sets>>
        where
            S: UnshardedShape,
            R::Shape: UnshardedShape,
            U::Shape: UnshardedShape,
            R::Sets: JoinRhs<V>,
            U::Sets: JoinRhs<JoinOf<V, R::Sets>>,
        {
            Typed::from_rule_result(self.array.$name(indices.as_untyped(), updates.as_untyped(), places))
        }
    )* }
} }
scatters! {
    /// Replaces windows of the array by `updates`. All arrays are unsharded; the type does not
    /// change.
    ///
    /// See [`Array::scatter`](crate::Array::scatter); `places` must fit the shapes when it runs.
    scatter;
    /// Adds updates to the windows that [`Typed::scatter`] would replace.
    scatter_add;
    /// Multiplies the windows that [`Typed::scatter`] would replace by updates.
    scatter_mul;
    /// Takes the maximum of updates and the windows that [`Typed::scatter`] would replace.
    scatter_max;
    /// Takes the minimum of updates and the windows that [`Typed::scatter`] would replace.
    scatter_min;
}
