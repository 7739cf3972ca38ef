//! Convolutions, pooling and window reductions.

use super::rules::reshard::ProductSets;
use super::rules::windows::{
    ConvRhs, ConvToRhs, FullWindows, PoolShape, Strides, UnitStrides, ValidWindows, WindowPadding,
    WindowShape,
};
use super::sets::{CompleteFor, ProductOf, ProductRhs, Sets};
use super::shape::Shape;
use super::{Bits, Float, Number, SameElem, Typed, TypedArray, convert, op};
use crate::api::array::{ConvOptions, Padding, WindowOptions};
use crate::core::Element;

/// Returns the sizes of a shape that states a window or strides.
fn sizes<W: Shape>() -> Vec<usize> {
    W::DIMS.iter().map(|d| d.size.unwrap_or(1)).collect()
}
fn padding<P: WindowPadding>() -> Padding {
    if P::IS_SAME { Padding::Same } else { Padding::Valid }
}
fn options<St: Shape, P: WindowPadding>() -> WindowOptions {
    WindowOptions::default().strides(sizes::<St>()).padding(padding::<P>())
}
/// The result of a convolution of a `Typed<T, S, V>` by an `R`.
pub type ConvResult<T, S, V, R, St, P> =
    Typed<T, <<R as TypedArray>::Shape as ConvRhs<S, St, P>>::Out, ProductOf<V, <R as TypedArray>::Sets>>;
/// The shape of a convolution whose sharding a spec `Q` states.
type ConvToOf<S, R, Q> = <<R as TypedArray>::Shape as ConvToRhs<S, Q>>::Out;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Convolves the array with a filter, without padding and with stride 1.
        ///
        /// The array is `[batch, features, ..]`, the filter `[output features, features, ..]`.
        /// Batch, output features and spatial dims keep their sharding: a spatial dim of size n
        /// becomes one of n − k + 1, which the mesh axes that shard it must divide. Features are
        /// contracted as in [`Typed::matmul`]; the filter's spatial dims are unsharded.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 2 } }
        /// let pod = Pod::mesh()?;
        /// let x = <T![f32; 4@X, 3, 10, 10@Y]>::ones(&pod);
        /// let w = <T![f32; 8, 3, 3, 3]>::ones(&pod);
        /// let valid: T![f32; 4@X, 8, 8, 8@Y] = x.conv(&w);
        /// let same: T![f32; 4@X, 8, 10, 10@Y] = x.conv_with(&w, Strides::<S![1, 1]>::same());
        /// let halves: T![f32; 4@X, 8, 4, 4@Y] = valid.max_pool::<S![2, 2]>();
        /// assert_eq!((valid.to_vec()?[0], same.to_vec()?[0]), (27.0, 12.0));
        /// assert_eq!(halves.to_vec()?[0], 27.0);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn conv[R: TypedArray<Elem: SameElem<T>>](&self, w: &R)
            -> ConvResult<T, S, V, R, (), ValidWindows>
        where [T: Number, R::Shape: ConvRhs<S, (), ValidWindows>, R::Sets: ProductRhs<V>]
            = self.array.conv(w.as_untyped());
        /// Runs [`Typed::conv`] with strides and padding: `Strides::<S![2, 2]>::same()`.
        ///
        /// A spatial dim of size n becomes one of ⌈n / stride⌉ with `same()`, which pads, and of
        /// ⌊(n − k) / stride⌋ + 1 with `valid()`.
        pub fn conv_with[R: TypedArray<Elem: SameElem<T>>, St: Shape, P: WindowPadding]
            (&self, w: &R, how: Strides<St, P>)
            -> ConvResult<T, S, V, R, St, P>
        where [T: Number, R::Shape: ConvRhs<S, St, P>, R::Sets: ProductRhs<V>]
            = self.array.conv_with(w.as_untyped(), options),
                with options = ConvOptions::default().strides(sizes::<St>()).padding(padding::<P>());
        /// Runs [`Typed::conv`] with the result sharded as `out`.
        pub fn conv_to[R: TypedArray<Elem: SameElem<T>>, Q](&self, w: &R, out: Q)
            -> Typed<T, ConvToOf<S, R, Q>, <Q as ProductSets<S, R::Shape, ProductOf<V, R::Sets>>>::Out>
        where [
            T: Number,
            R::Shape: ConvToRhs<S, Q>,
            R::Sets: ProductRhs<V>,
            Q: ProductSets<S, R::Shape, ProductOf<V, R::Sets>>,
        ]
            = self.array.conv_to(w.as_untyped(), convert::spec::<ConvToOf<S, R, Q>, Q::Out>());
        /// Computes a transposed convolution with stride 1: over all windows that touch the array.
        ///
        /// A spatial dim of size n becomes one of n + k − 1; otherwise it is like [`Typed::conv`].
        pub fn conv_transpose[R: TypedArray<Elem: SameElem<T>>](&self, w: &R)
            -> ConvResult<T, S, V, R, (), FullWindows>
        where [T: Number, R::Shape: ConvRhs<S, (), FullWindows>, R::Sets: ProductRhs<V>]
            = self.array.conv_transpose(w.as_untyped());
    }
}

/// Defines reductions of windows: each with the strides that a window has without `Strides`, and
/// with strides and padding. `$Rule` gives the shape of the result.
macro_rules! windowed { (
    $Rule:ident, $W:ident: $Window:ident, strides = $default:ty, example = $example:literal:
    $($(#[$doc:meta])* $name:ident $with:ident $bound:ident;)*
) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<$W: $Window>(&self) -> Typed<T, <S as $Rule<$W, $default, ValidWindows>>::Out, V>
        where
            T: $bound,
            S: $Rule<$W, $default, ValidWindows>,
            V: CompleteFor<op::$name>,
        {
            Typed::from_rule_result(self.array.$name(sizes::<$W>()))
        }
        #[doc = concat!("Runs [`Typed::", stringify!($name), "`] with strides and padding: ")]
        #[doc = concat!("`x.", stringify!($with), $example, "`.")]
        #[track_caller]
        pub fn $with<$W: Shape, St: Shape, P: WindowPadding>(
            &self,
            how: Strides<St, P>,
        ) -> Typed<T, <S as $Rule<$W, St, P>>::Out, V>
        where
            T: $bound,
            S: $Rule<$W, St, P>,
            V: CompleteFor<op::$with>,
        {
            let _ = how;
            Typed::from_rule_result(self.array.$with(sizes::<$W>(), options::<St, P>()))
        }
    )* }
} }
windowed! {
    WindowShape, W: UnitStrides, strides = W::Ones,
    example = "::<S![1, 3], _, _>(Strides::<S![1, 2]>::same())":
    /// Computes the sum of each window of shape `W` that fits inside the array.
    ///
    /// A dim of size n becomes one of n − k + 1 and keeps its sharding, where `W` has one size k
    /// for each dim; the mesh axes that shard the dim must divide the result.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 8]>::ones(&Pod::mesh()?);
    /// let sums: T![f32; 4@X, 6] = x.window_sum::<S![1, 3]>();
    /// let every: T![f32; 2@X, 4] = x.window_max_with::<S![2, 2], _, _>(Strides::<S![2, 2]>::valid());
    /// assert_eq!((sums.to_vec()?[0], every.to_vec()?[0]), (3.0, 1.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    window_sum window_sum_with Number;
    /// Computes the product of each window, like [`Typed::window_sum`].
    window_prod window_prod_with Number;
    /// Computes the maximum of each window, like [`Typed::window_sum`].
    window_max window_max_with Number;
    /// Computes the minimum of each window, like [`Typed::window_sum`].
    window_min window_min_with Number;
    /// Computes the logical or bitwise AND of each window, like [`Typed::window_sum`].
    window_and window_and_with Bits;
    /// Computes the logical or bitwise OR of each window, like [`Typed::window_sum`].
    window_or window_or_with Bits;
}
windowed! {
    PoolShape, W: Shape, strides = W, example = "::<S![3, 3], _, _>(Strides::<S![1, 1]>::same())":
    /// Computes the maximum of each window of shape `W` over the last dims; windows do not overlap.
    ///
    /// `W` has a size k for each of the last dims: a dim of size n becomes one of ⌊n / k⌋ and keeps
    /// its sharding. The dims before do not change. See [`Typed::conv`] for an example.
    max_pool max_pool_with Number;
    /// Computes the mean of each window over the last dims, like [`Typed::max_pool`].
    avg_pool avg_pool_with Float;
}
