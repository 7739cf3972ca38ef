//! Habits of the untyped layer: methods that it has too, and messages that state the typed form.

use super::{Typed, convert, op, sets::Sets, shape::Shape};
use crate::api::array::Array;
use crate::core::{Element, Result};
use std::ops::Index;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Returns the sizes of the dims, like [`Array::shape`], or the error that the array carries.
    ///
    /// They include those that are known only at run time. In a body of `shard_map`, the shape is
    /// that of one device's block.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 2]>::ones(&Pod::mesh()?);
    /// assert_eq!(x.shape()?, [4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn shape(&self) -> Result<crate::core::types::Shape> {
        self.array.shape()
    }
}

/// Checks the array against the static type. If they differ, the result carries the error.
///
/// [`Array::typed`] returns the error instead.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2 } }
/// let x: T![f32; 4@X] = Array::ones([4]).put(&Pod::mesh()?, p!["X"]).into();
/// assert_eq!(x.to_vec()?, [1.0; 4]);
/// let y: T![f32; 5] = Array::ones([4]).into();
/// assert!(y.to_vec().is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
impl<T: Element, S: Shape, V: Sets> From<Array> for Typed<T, S, V> {
    #[track_caller]
    fn from(array: Array) -> Self {
        convert::stated(array)
    }
}

/// An index of a typed array. No type implements this trait; its message states the typed form.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a typed array has no `x[..]`: the type of what `{Self}` picks is not stated",
    label = "not an index of a typed array",
    note = "a slice states its bounds as types: `x.slice::<N![0], N![1], _>(D0)`",
    note = "other indices state the type of the result: `x.then::<T![f32; 16]>(|x| x.slice(ix![0]))?`",
    note = "to read elements: `x.to_vec()?[0]`"
)]
pub trait TypedIndex: atmesh_typed::sealed::Sealed {
    /// The picked part.
    type Part: ?Sized;
    /// Returns the picked part.
    fn pick(self, of: &Array) -> &Self::Part;
}
impl<T, S, V, I: TypedIndex> Index<I> for Typed<T, S, V> {
    type Output = I::Part;
    fn index(&self, index: I) -> &I::Part {
        index.pick(&self.array)
    }
}

/// A place with a position along mesh axes. No type implements this trait: it is the bound of
/// `axis_index` of meshes, and its message states the form that [`DeviceOf`](super::DeviceOf) has.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`axis_index` is the position of the device that runs a `shard_map` body; `{Self}` is a mesh",
    label = "not the device of a body",
    note = "`ThisDevice` among the arguments becomes the device: `Pod.shard_map((x, ThisDevice), P![X], |(x, device)| x + device.axis_index(X))`"
)]
pub trait DevicePosition: atmesh_typed::sealed::Sealed {
    /// The position.
    type Index;
    /// Returns the position.
    fn position(&self) -> Self::Index;
}

/// The arguments of a body, used like one array. No type implements this trait; its message states
/// the typed form.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Op}` is for one array: the body of this `shard_map` takes the tuple `{Self}`",
    label = "a tuple with one array, as the arguments are `(x,)`",
    note = "take the array out of the tuple: `|(x,)| x.{Op}(..)`, or `x.0.{Op}(..)`",
    note = "or pass the array alone, without a tuple: `Pod.shard_map(x, ..)`"
)]
pub trait OneArray<Op>: atmesh_typed::sealed::Sealed {
    /// The result of the operation.
    type Out;
    /// Returns the result.
    fn result(&self) -> Self::Out;
}
macro_rules! of_one {
    ($($name:ident)*; $($name1:ident)*) => {
        /// The methods of an array, on a tuple with one array. They do not compile: see
        /// [`OneArray`].
        #[doc(hidden)]
        pub trait TupleOfOne: atmesh_typed::sealed::Sealed {
            $(
                /// Does not compile.
                fn $name(&self) -> <Self as OneArray<op::$name>>::Out
                where
                    Self: OneArray<op::$name>,
                {
                    self.result()
                }
            )*
            $(
                /// Does not compile.
                fn $name1<A>(&self, of: A) -> <Self as OneArray<op::$name1>>::Out
                where
                    Self: OneArray<op::$name1>,
                {
                    let _ = of;
                    self.result()
                }
            )*
        }
    };
}
of_one! {
    floor ceil round exp exp2 expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
    rint nan_to_num is_finite is_nan is_inf sqrt rsqrt cbrt logistic erf erf_inv reciprocal relu silu softplus
    gelu gelu_exact sign square abs;
    sum prod max min mean var std logsumexp any all softmax log_softmax argmax argmin psum pmean pmax pmin matmul
}
impl<T, S, V> TupleOfOne for (Typed<T, S, V>,) {}
