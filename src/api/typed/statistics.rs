//! Averages, percentiles and covariances.

use super::rules::rearrange::{Observations, SameShape};
use super::sets::{CompleteFor, JoinOf, JoinRhs, Sets};
use super::shape::{DimAccess, DimNumber, Shape};
use super::{
    Float, SameElem, Typed, TypedArray, op, reductions::dims, rules::reduce::ReduceDims,
    rules::reshape_dims::UnshardedDim,
};
use crate::core::Element;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Returns the `q`-th percentile along an unsharded dim, which is removed.
        ///
        /// `q` is from 0 to 100.
        pub fn percentile[I: DimNumber](&self, q: f64, along: I)
            -> Typed<T, <S as DimAccess<I::D>>::Removed, V>
        where [T: Float, S: DimAccess<I::D, Dim: UnshardedDim>, V: CompleteFor<op::percentile>]
            = self.array.percentile(q, I::NUMBER as i32);
    }
}
macro_rules! of_rows { ($($(#[$doc:meta])* $name:ident;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self) -> Typed<T, S::Out, V>
        where
            T: Float,
            S: Observations,
            V: CompleteFor<op::$name>,
        {
            Typed::from_rule_result(self.array.$name())
        }
    )* }
} }
of_rows! {
    /// Computes the covariances of the rows of an unsharded matrix: `[M, N]` gives `[M, M]`.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f64; 2, 4]>::iota(&Pod::mesh()?, D1);
    /// let (c, r): (T![f64; 2, 2], T![f64; 2, 2]) = (x.cov(), x.corrcoef());
    /// assert!((c.to_vec()?[1] - 5.0 / 3.0).abs() < 1e-12 && (r.to_vec()?[1] - 1.0).abs() < 1e-12);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cov;
    /// Computes the correlation coefficients of the rows of an unsharded matrix: `[M, N]` gives
    /// `[M, M]`.
    corrcoef;
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Computes the mean over dims with weights of this array's shape and sharding.
        ///
        /// The dims are removed, or kept by `keep(..)`.
        pub fn average[R: TypedArray<Elem: SameElem<T>>, I: ReduceDims<S>](&self, weights: &R, over: I)
            -> Typed<T, I::Out, JoinOf<V, R::Sets>>
        where [T: Float, R::Shape: SameShape<S>, R::Sets: JoinRhs<V>]
            = self.array.average(weights.as_untyped(), dims::<S, I>());
    }
}
