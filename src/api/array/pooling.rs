//! Window reductions and pooling.
//!
//! A window reduction moves a window along every dimension of the array, and combines the elements
//! that the window covers at each position. Pooling is a window reduction over the trailing
//! dimensions, with the window's size as the default stride.

use super::windows::{Padding, window_geometry};
use super::{Array, Dims, prims};
use crate::api::trace::apply1;
use crate::core::{ArrayType, Fault, Scalar, Spec};
use crate::ir::ops::windows::{ReduceWindow, Windows};
use crate::ir::{ops::elementwise::Binary, ops::reduce::Reduction, program::CallSite};
use std::sync::Arc;

/// Options of window reductions and pooling: strides, padding, dilations and sharding.
///
/// They are built by chaining:
/// `x.window_max_with([2, 2], WindowOptions::default().strides([2, 2]))`. Each list has one entry
/// for each entry of the window.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 5, 2, 4]);
/// let pairs = x.window_max_with([2], WindowOptions::default().strides([2]));
/// assert_eq!(pairs.to_vec::<i32>()?, [5, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "reduce_window")]
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct WindowOptions {
    /// The distance between windows, in elements; `None` means 1, or the window's size for pooling.
    pub strides: Option<Vec<usize>>,
    /// How far windows extend beyond the array. Defaults to [`Padding::Valid`].
    pub padding: Padding,
    /// The distance between the elements of a window, in elements; `None` means 1.
    pub dilation: Option<Vec<usize>>,
    /// The distance between the array's elements before windows are applied; `None` means 1.
    ///
    /// Positions between the elements are padding.
    pub base_dilation: Option<Vec<usize>>,
    /// The dimension of each entry of the window, and of the other lists. `None` means the last
    /// dimensions for pooling, and all dimensions otherwise.
    pub dims: Option<Dims>,
    /// The result's sharding; `None` if it follows from the operand.
    pub out_sharding: Option<Spec>,
}

impl WindowOptions {
    setters! {
        /// Sets the strides, one for each entry of the window.
        ///
        /// ```
        /// use atmesh::{WindowOptions, prelude::*};
        /// let how = WindowOptions::default().strides([2]);
        /// let y = Array::from([1, 2, 3, 4]).window_sum_with([2], how);
        /// assert_eq!(y.to_vec::<i32>()?, [3, 7]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn strides(strides: impl Into<Vec<usize>>) = strides: Some(strides.into());
        /// Sets the padding; padded positions do not take part in the reduction.
        ///
        /// ```
        /// use atmesh::{Padding, WindowOptions, prelude::*};
        /// let how = WindowOptions::default().padding(Padding::Same);
        /// assert_eq!(Array::from([-3, -2, -1]).window_max_with([3], how).to_vec::<i32>()?,
        ///     [-2, -1, -1]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn padding(padding: impl Into<Padding>) = padding: padding.into();
        /// Sets the distance between the elements of a window.
        ///
        /// ```
        /// use atmesh::{WindowOptions, prelude::*};
        /// let how = WindowOptions::default().dilation([2]);
        /// let y = Array::from([1, 2, 3, 4]).window_sum_with([2], how);
        /// assert_eq!(y.to_vec::<i32>()?, [4, 6]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn dilation(dilation: impl Into<Vec<usize>>) = dilation: Some(dilation.into());
        /// Sets the distance between the array's elements before windows are applied.
        pub fn base_dilation(dilation: impl Into<Vec<usize>>) = base_dilation: Some(dilation.into());
        /// Sets the dimensions that the entries of the window belong to.
        ///
        /// ```
        /// use atmesh::{WindowOptions, prelude::*};
        /// // images with their features last: [batch, height, width, features]
        /// let x = Key::new(0).normal([2, 4, 6, 3]);
        /// let y = x.max_pool_with([2, 2], WindowOptions::default().dims([1, 2]));
        /// assert_eq!(type_of(&y), "float32[2,2,3,3]");
        /// assert!(y.array_equal(&x.moveaxis(-1, 1).max_pool([2, 2]).moveaxis(1, -1))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn dims(dims: impl Into<Dims>) = dims: Some(dims.into());
        /// Sets the result's sharding.
        pub fn out_sharding(out: Spec) = out_sharding: Some(out);
    }
}

macro_rules! reductions {
    ($($name:ident $with:ident $kind:ident: $what:literal, $takes:literal, $of:literal => $is:literal;)*) => {
        /// # Window reductions
        impl Array { $(
            #[doc = concat!($what, " of each window that fits inside the array; `window` has one size per dimension.")]
            ///
            #[doc = concat!("Elements are ", $takes, ". The result is sharded like the array. Elements that windows need across shard boundaries are exchanged once, corners included.")]
            /// It is an error if `window` does not have one non-zero size per dimension, or if a
            /// sharded dimension of the result is not divisible by the size of its axes.
            ///
            /// ```
            /// use atmesh::prelude::*;
            #[doc = concat!("let y = Array::from(", $of, ").", stringify!($name), "([2]);")]
            #[doc = concat!("assert_eq!(y.to_string(), \"", $is, "\");")]
            /// ```
            #[track_caller]
            pub fn $name(&self, window: impl AsRef<[usize]>) -> Array {
                let call = CallSite::here(stringify!($name)).with_explicit_form(concat!("x.", stringify!($with), "(window, how.out_sharding({}))"));
                self.reduce_windows(Reduction::$kind, window.as_ref(), &WindowOptions::default(), call)
            }
            #[doc = concat!("Computes [`Array::", stringify!($name), "`] with options: strides, padding, dilations and sharding.")]
            ///
            /// ```
            /// use atmesh::{WindowOptions, prelude::*};
            #[doc = concat!("let y = Array::from(", $of, ").", stringify!($with), "([2], WindowOptions::default().strides([4]));")]
            #[doc = concat!("assert_eq!(y.to_string(), Array::from(", $of, ").", stringify!($name), "([2]).slice(ix![..1]).to_string());")]
            /// ```
            #[track_caller]
            pub fn $with(&self, window: impl AsRef<[usize]>, options: WindowOptions) -> Array {
                let call = CallSite::here(stringify!($with)).with_explicit_form(concat!("x.", stringify!($with), "(window, how.out_sharding({}))"));
                self.reduce_windows(Reduction::$kind, window.as_ref(), &options, call)
            }
        )* }
    };
}

reductions! {
    window_sum window_sum_with Sum: "Computes the sum", "numbers", "[1, 2, 3]" => "[3 5]";
    window_prod window_prod_with Prod: "Computes the product", "numbers", "[1, 2, 3]" => "[2 6]";
    window_max window_max_with Max: "Computes the maximum", "numbers; NaN counts as largest", "[1, 3, 2]" => "[3 3]";
    window_min window_min_with Min: "Computes the minimum", "numbers; NaN counts as smallest", "[1, 3, 2]" => "[1 2]";
    window_and window_and_with And: "Computes the logical and", "booleans, or integers (bitwise)", "[true, true, false]" => "[ True False]";
    window_or window_or_with Or: "Computes the logical or", "booleans, or integers (bitwise)", "[true, false, false]" => "[ True False]";
}

impl Array {
    /// Applies a window reduction; `window` has one size per dimension.
    fn reduce_windows(
        &self,
        kind: Reduction,
        window: &[usize],
        options: &WindowOptions,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if let Some(dims) = &options.dims {
            let at = ok_or_return!(window_dims(ty, window, dims), |fault| self.reject(fault, call));
            let (window, options) = at_full_rank(ty.rank(), &at, window, options);
            return self.reduce_windows(kind, &window, &options, call);
        }
        let over = ok_or_return!(pool_windows(ty, window, options), |fault| self.reject(fault, call));
        apply1(
            Arc::new(ReduceWindow { kind, windows: over, out_sharding: options.out_sharding }),
            &[self.into()],
            call,
        )
    }
    forward! {
        /// Computes the maximum of each window over the last dimensions; windows do not overlap.
        ///
        /// `window` has one size for each of the last dimensions: `images.max_pool([2, 2])` for
        /// images of shape `[batch, features, height, width]`.
        ///
        /// Ties: the gradient goes to the first of the largest elements. The result is sharded like
        /// the array; elements that windows need across shard boundaries are exchanged. Errors are
        /// those of [`Array::window_max`].
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1.0f32, 2.0, 5.0, 3.0], [4.0, 0.0, 1.0, 1.0]]);
        /// assert_eq!(x.max_pool([2, 2]).to_vec::<f32>()?, [4.0, 5.0]);
        /// let g = grad(&x, |x| x.max_pool([2, 2]).sum(..));
        /// assert_eq!(g.to_vec::<f32>()?, [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn max_pool(window: impl AsRef<[usize]>)
            = pool(Reduction::Max, window.as_ref(), &WindowOptions::default()),
            or "x.max_pool_with(window, how.out_sharding({}))";
        /// Computes [`Array::max_pool`] with options: strides, padding, dilations and sharding.
        ///
        /// ```
        /// use atmesh::{Padding, WindowOptions, prelude::*};
        /// let how = WindowOptions::default().strides([1]).padding(Padding::Same);
        /// assert_eq!(Array::from([1, 3, 2]).max_pool_with([2], how).to_vec::<i32>()?, [3, 3, 2]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn max_pool_with(window: impl AsRef<[usize]>, options: WindowOptions)
            = pool(Reduction::Max, window.as_ref(), &options),
            or "x.max_pool_with(window, how.out_sharding({}))";
        /// Computes the mean of each window over the last dimensions; windows do not overlap.
        ///
        /// `window` has one size for each of the last dimensions. Elements are floats. Padding is
        /// not counted: at the edges fewer elements are averaged.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1.0f32, 2.0, 5.0, 3.0], [4.0, 1.0, 1.0, 3.0]]);
        /// assert_eq!(x.avg_pool([2, 2]).to_vec::<f32>()?, [2.0, 3.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn avg_pool(window: impl AsRef<[usize]>)
            = pool(Reduction::Sum, window.as_ref(), &WindowOptions::default()),
            or "x.avg_pool_with(window, how.out_sharding({}))";
        /// Computes [`Array::avg_pool`] with options: strides, padding, dilations and sharding.
        ///
        /// ```
        /// use atmesh::{Padding, WindowOptions, prelude::*};
        /// let how = WindowOptions::default().strides([1]).padding(Padding::Same);
        /// let y = Array::from([1.0f32, 3.0, 2.0]).avg_pool_with([2], how);
        /// assert_eq!(y.to_vec::<f32>()?, [2.0, 2.5, 2.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn avg_pool_with(window: impl AsRef<[usize]>, options: WindowOptions)
            = pool(Reduction::Sum, window.as_ref(), &options),
            or "x.avg_pool_with(window, how.out_sharding({}))";
    }
    /// Implements pooling: a window reduction over the last dimensions; a sum becomes a mean.
    fn pool(&self, kind: Reduction, window: &[usize], options: &WindowOptions, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let at = match &options.dims {
            Some(dims) => ok_or_return!(window_dims(ty, window, dims), |fault| self.reject(fault, call)),
            None if window.len() <= ty.rank() => (ty.rank() - window.len()..ty.rank()).collect(),
            None => {
                let (n, rank) = (window.len(), ty.rank());
                let fault = fault!(Shape, "the window has {n} sizes, and the array {rank} dimensions");
                return self.reject(fault.help("give a size for each of the last dimensions"), call);
            }
        };
        if kind == Reduction::Sum && !ty.dtype.is_float() {
            let fault = fault!(Dtype, "elements of type {} have no mean of their type", ty.dtype);
            return self.reject(fault.help("convert the array: `.astype(F32)`"), call);
        }
        let mut options = options.clone();
        options.strides.get_or_insert_with(|| window.to_vec());
        let (window, options) = at_full_rank(ty.rank(), &at, window, &options);
        let made = self.reduce_windows(kind, &window, &options, call);
        if kind != Reduction::Sum {
            return made;
        }
        let all: f64 = window.iter().map(|n| *n as f64).product();
        let inside = options.padding == Padding::Valid && options.base_dilation.is_none();
        if inside {
            return made.binary_with(Binary::Div, all, call);
        }
        let ones = apply1(prims::full(super::creation::fresh_type(ty), Scalar::one(ty.dtype)), &[], call);
        made.binary_with(Binary::Div, ones.reduce_windows(kind, &window, &options, call), call)
    }
}

/// Checks the window's rank and returns the parameters of the primitive.
fn pool_windows(ty: &ArrayType, window: &[usize], options: &WindowOptions) -> Result<Windows, Fault> {
    let (n, rank) = (window.len(), ty.rank());
    if n != rank {
        return Err(fault!(Shape, "the window has {n} sizes, and the array {rank} dimensions")
            .help("give a size for each dimension: 1 where a window is one element"));
    }
    let lists = [&options.strides, &options.dilation, &options.base_dilation];
    let windows = window_geometry(&ty.shape, window, &options.padding, lists)?;
    Ok(Windows { sizes: window.into(), dims: windows })
}

/// Returns the dimension of each entry of a window.
fn window_dims(ty: &ArrayType, window: &[usize], dims: &Dims) -> Result<Vec<usize>, Fault> {
    let at = dims.resolve(ty.rank())?;
    if at.len() == window.len() {
        return Ok(at);
    }
    let message = format!("the window has {} sizes for {} dimensions", window.len(), at.len());
    Err(fault!(Shape, "{message}").help("give one size for each of the dimensions that are named"))
}

/// Returns a window and options with an entry for each dimension, from those of dimensions `at`.
fn at_full_rank(
    rank: usize,
    at: &[usize],
    window: &[usize],
    options: &WindowOptions,
) -> (Vec<usize>, WindowOptions) {
    fn spread<T: Copy>(rank: usize, at: &[usize], list: &[T], other: T) -> Vec<T> {
        // a list of another length keeps one that is not the rank: `window_geometry` rejects it
        if list.len() != at.len() {
            return [&vec![other; rank - at.len()], list].concat();
        }
        let mut all = vec![other; rank];
        at.iter().zip(list).for_each(|(d, x)| all[*d] = *x);
        all
    }
    let full = |list: &[usize]| spread(rank, at, list, 1);
    let padding = match &options.padding {
        Padding::Each(list) => Padding::Each(spread(rank, at, list, (0, 0))),
        word => word.clone(),
    };
    let options = WindowOptions {
        strides: options.strides.as_deref().map(full),
        padding,
        dilation: options.dilation.as_deref().map(full),
        base_dilation: options.base_dilation.as_deref().map(full),
        dims: None,
        out_sharding: options.out_sharding,
    };
    (full(window), options)
}
