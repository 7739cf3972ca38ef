//! Reductions over dims, softmax, and argmax.

use super::rules::reduce::{ArgDims, ReduceDims};
use super::sets::{CompleteFor, PositionSets, Sets};
use super::{Bits, Float, Summed, Typed, op, shape::Shape};
use crate::api::array::Dims;
use crate::core::Element;

pub(super) fn dims<S: Shape, I: ReduceDims<S>>() -> Dims {
    let dims = Dims::from(I::numbers(S::DIMS.len()));
    if I::KEEP { Dims::keep(dims) } else { dims }
}

macro_rules! reductions { ($($(#[$doc:meta])* $name:ident $bound:ident $out:ty, $v:path;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<I: ReduceDims<S>>(&self, over: I) -> Typed<$out, I::Out, V>
        where
            T: $bound,
            V: $v,
        {
            let _ = over;
            Typed::from_rule_result(self.array.$name(dims::<S, I>()))
        }
    )* }
} }
// rustc shows the line of a definition where a call has another number of arguments.
reductions! {
    /// Sums over dims: `D1`, several in rising order as `(D0, D1)`, `..` (all of them), or `keep`
    /// of these (kept with size 1).
    ///
    /// `bool` and narrow integers are summed in 32 bits.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 3]>::ones(&Pod::mesh()?);
    /// let rows: T![f32; 4@X] = x.sum(D1);
    /// let columns: T![f32; ~, 3] = x.sum(keep(D0));
    /// let all: T![f32;] = x.sum(..);
    /// assert_eq!((rows.to_vec()?, columns.to_vec()?, all.item()?),
    ///     (vec![3.0; 4], vec![4.0; 3], 12.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    sum Summed T::Sum, Sets; // the dim kept: x.sum(keep(D1))
    /// Multiplies the elements over dims.
    prod Summed T::Sum, CompleteFor<op::prod>; // the dim kept: x.prod(keep(D1))
    /// Returns the maximum over dims.
    max Element T, CompleteFor<op::max>; // the dim kept: x.max(keep(D1))
    /// Returns the minimum over dims.
    min Element T, CompleteFor<op::min>; // the dim kept: x.min(keep(D1))
    /// Returns the mean over dims.
    mean Float T, CompleteFor<op::mean>; // the dim kept: x.mean(keep(D1))
    /// Returns the population variance over dims.
    var Float T, CompleteFor<op::var>; // the dim kept: x.var(keep(D1))
    /// Returns the population standard deviation over dims.
    std Float T, CompleteFor<op::std>; // the dim kept: x.std(keep(D1))
    /// Computes log Σ exp over dims.
    logsumexp Float T, CompleteFor<op::logsumexp>; // the dim kept: x.logsumexp(keep(D1))
    /// Returns true where any element over dims is true or non-zero.
    any Element bool, CompleteFor<op::any>; // the dim kept: x.any(keep(D1))
    /// Returns true where all elements over dims are true or non-zero.
    all Element bool, CompleteFor<op::all>; // the dim kept: x.all(keep(D1))
    /// Computes the bitwise AND over dims.
    bit_and Bits T, CompleteFor<op::bit_and>;
    /// Computes the bitwise OR over dims.
    bit_or Bits T, CompleteFor<op::bit_or>;
    /// Counts the elements over dims that are not zero.
    count_nonzero Element i32, CompleteFor<op::count_nonzero>;
    /// Computes the Euclidean norm √Σx² over dims.
    norm Float T, CompleteFor<op::norm>; // the dim kept: x.norm(keep(D1))
    /// Sums over dims without the elements that are NaN.
    nansum Float T, CompleteFor<op::nansum>;
    /// Multiplies the elements over dims without those that are NaN.
    nanprod Float T, CompleteFor<op::nanprod>;
    /// Returns the maximum over dims of the elements that are not NaN.
    nanmax Float T, CompleteFor<op::nanmax>;
    /// Returns the minimum over dims of the elements that are not NaN.
    nanmin Float T, CompleteFor<op::nanmin>;
    /// Returns the mean over dims of the elements that are not NaN.
    nanmean Float T, CompleteFor<op::nanmean>;
    /// Returns the population variance over dims of the elements that are not NaN.
    nanvar Float T, CompleteFor<op::nanvar>;
    /// Returns the population standard deviation over dims of the elements that are not NaN.
    nanstd Float T, CompleteFor<op::nanstd>;
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Computes exp(x) / Σ exp(x) over dims. The type does not change.
        pub fn softmax[I: ReduceDims<S>](&self, over: I) -> Self
        where [T: Float, V: CompleteFor<op::softmax>]
            = self.array.softmax(dims::<S, I>());
        /// Computes the logarithm of [`Typed::softmax`].
        pub fn log_softmax[I: ReduceDims<S>](&self, over: I) -> Self
        where [T: Float, V: CompleteFor<op::log_softmax>]
            = self.array.log_softmax(dims::<S, I>());
        /// Returns the index of the first maximum along a dim, or with `..` among all elements.
        pub fn argmax[I: ArgDims<S>](&self, along: I) -> Typed<i32, I::Out, V::Out>
        where [V: CompleteFor<op::argmax> + PositionSets]
            = self.array.argmax(dims::<S, I>());
        /// Returns the index of the first minimum along a dim, or with `..` among all elements.
        pub fn argmin[I: ArgDims<S>](&self, along: I) -> Typed<i32, I::Out, V::Out>
        where [V: CompleteFor<op::argmin> + PositionSets]
            = self.array.argmin(dims::<S, I>());
        /// Returns the variance over dims with divisor `n - ddof`, for `n` elements.
        pub fn var_ddof[I: ReduceDims<S>](&self, over: I, ddof: usize) -> Typed<T, I::Out, V>
        where [T: Float, V: CompleteFor<op::var_ddof>]
            = self.array.var_ddof(dims::<S, I>(), ddof);
        /// Returns the standard deviation over dims with divisor `n - ddof`, for `n` elements.
        pub fn std_ddof[I: ReduceDims<S>](&self, over: I, ddof: usize) -> Typed<T, I::Out, V>
        where [T: Float, V: CompleteFor<op::std_ddof>]
            = self.array.std_ddof(dims::<S, I>(), ddof);
    }
}
