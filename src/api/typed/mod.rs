//! The typed layer: arrays with element type, sizes and sharding in the Rust type.
//!
//! An ill-sharded program does not compile.
//!
//! At run time a [`Typed`] is only an [`Array`]. Its Rust type states the type that
//! [`type_of`](crate::type_of) prints: `T![f32; 4@X, 2]` is the type of `float32[4@X,2]` arrays.
//!
//! ```
//! use atmesh::prelude::*;
//! use atmesh::typed::prelude::*;
//!
//! mesh! { struct Pod { X: 2, Y: 4 } }
//!
//! fn layer<B: Size, D: Size, H: Size>(
//!     x: &T![f32; B@X, D],
//!     w: &T![f32; D, H@Y],
//! ) -> T![f32; B@X, H@Y] {
//!     x.matmul(w).relu()
//! }
//!
//! let pod = Pod::mesh()?;
//! // checked once, on entry
//! let x = Array::ones([8, 16]).put(&pod, p!["X"]).typed::<T![f32; 8@X, 16]>()?;
//! let w = <T![f32; 16, 32@Y]>::ones(&pod);
//! let y: T![f32; 8@X, 32@Y] = layer(&x, &w);
//! assert_eq!(type_of(&y), "float32[8@X,32@Y]");
//! assert_eq!(<T![f32; 8@X, 32@Y]>::type_text(), "float32[8@X,32@Y]"); // the type, without a value
//! # Ok::<(), atmesh::Error>(())
//! ```
//!
//! The wrong call does not compile:
//!
//! ```compile_fail
//! # use atmesh::prelude::*;
//! # use atmesh::typed::prelude::*;
//! # mesh! { struct Pod { X: 2, Y: 4 } }
//! fn sum(x: &T![f32; 8@X, 4], y: &T![f32; 8@Y, 4]) {
//!     // dim `TDim<Num<8>, X>` on the left and dim `TDim<Num<8>, Y>` on the right are sharded over
//!     // different mesh axes
//!     let _ = x + y;
//! }
//! ```
//!
//! # Conversion
//!
//! [`Array::typed`] checks an array against a type, and [`Typed::untyped`] returns the array.
//! [`Typed::then`] runs code that the types cannot express, and checks its result against a stated
//! type. Typed arrays are trees: `jit`, `grad`, `vjp`, `fori_loop`, `cond` and structs with
//! `#[derive(Tree)]` accept them directly. Where leaf types change, this module has functions of
//! the same name: [`grad`], [`value_and_grad`] and [`vjp`] return the types of cotangents, [`scan`]
//! takes slices of trees, and [`vmap`] examples.
//!
//! # Structs
//!
//! A generic struct states its bounds, and takes `Clone` and `Debug` from `Tree`: Rust's own
//! derives reject macros in the types of a generic struct.
//!
//! ```
//! use atmesh::prelude::*;
//! use atmesh::typed::prelude::*;
//!
//! mesh! { struct Pod { X: 2, Y: 4 } }
//!
//! #[derive(Tree)]
//! #[tree(derive(Clone, Debug))]
//! struct Mlp<D: Size, H: Size> {
//!     up: T![f32; D, H@Y],
//!     down: T![f32; H@Y, D],
//! }
//!
//! let pod = Pod::mesh()?;
//! let mlp: Mlp<N![16], N![32]> = Mlp { up: Typed::ones(&pod), down: Typed::ones(&pod) };
//! let sum = jit(|mlp: &Mlp<N![16], N![32]>| mlp.up.sum(..)).call(&mlp)?;
//! assert_eq!(sum.item()?, 512.0);
//! # Ok::<(), atmesh::Error>(())
//! ```
//!
//! # Structure
//!
//! The types of sizes, shapes and shardings, and the rules over them, are in the crate
//! `atmesh_typed`, which does not depend on `atmesh`; this module has [`Typed`] and its methods.
//! Each method calls the method of [`Array`] of the same name; with debug assertions it also
//! compares the result with its static type.

// result types name the rule that computes them
#![allow(clippy::type_complexity)]

/// Writes public methods that type the result of an untyped operation by its rule.
///
/// Type parameters and bounds are in brackets. Arguments that only name dims or axes are ignored.
/// A check before `=>` returns `Ok(())`, or the result that carries its error. `with` names values
/// that the result uses.
macro_rules! forward { ($(
    $(#[$attribute:meta])*
    pub fn $name:ident $([$($parameter:tt)*])? (&$this:ident $(, $arg:ident: $ty:ty)*) -> $out:ty
    $(where [$($bound:tt)*])?
        = $result:expr $(=> $checked:expr)? $(, with $variable:pat = $init:expr)*;
)*) => {$(
    $(#[$attribute])*
    #[track_caller]
    pub fn $name$(<$($parameter)*>)?(&$this $(, $arg: $ty)*) -> $out
    $(where $($bound)*)?
    {
        $(let _ = &$arg;)*
        $(let $variable = $init;)*
        $crate::api::typed::sealed::FromResults::from_results(checked!($result $(=> $checked)?))
    }
)*} }
/// Evaluates to a value, or to a value after `=>` if the check before it succeeds.
macro_rules! checked {
    ($result:expr) => {
        $result
    };
    ($check:expr => $result:expr) => {
        match $check {
            Ok(()) => $result,
            Err(unequal) => unequal,
        }
    };
}

mod along_axis;
mod broadcast;
mod comparison;
mod convert;
mod creation;
mod device;
mod elementwise;
mod equal_sizes;
mod fourier;
mod grad;
mod habits;
mod halo;
mod indexing;
mod inspect;
mod leaves;
mod linalg;
mod loops;
mod manual;
mod mesh;
pub mod nn;
mod numbers;
pub mod op;
mod operands;
mod operators;
mod pieces;
mod products;
mod random;
mod rearrange;
mod reductions;
mod reshaped;
mod scalar;
mod shapes;
mod statistics;
mod tree;
mod vectors;
mod windows;

pub use atmesh_typed::{
    N, P, S, axis, dim, manual as blocks, mesh, region, rules, sets, shape, size, typenum,
};
pub use comparison::SameWidth;
pub use convert::SameElem;
pub use creation::Place;
pub use device::{DeviceOf, ThisDevice};
pub use elementwise::{Condition, Conversion};
pub use fourier::{ComplexElement, ComplexPart, Parts, Transformed};
pub use grad::{CotangentOf, HasCotangent, TypedPullback, grad, value_and_grad, vjp};
pub use habits::DevicePosition;
pub use half::{bf16, f16};
pub use halo::{CenterShape, HaloEdge, HaloShape};
pub use indexing::{TakeToResult, TypedPart, UpdateResult};
pub use loops::{
    BatchOf, Batches, ExampleOf, Examples, RowOf, Slices, StackOf, Stacks, StepOf, StepRange, scan,
    scan_with, vmap,
};
pub use manual::{Manual, ShardMapArguments, ShardMapBody, ShardMapIn, ShardMapOut};
pub use mesh::{MeshOf, TypedMesh};
pub use numbers::{AsNumber, Bits, Float, Integer, Number, NumberOf, Signed, Summed};
pub use operands::{
    AddOperand, AddResult, ArithmeticKind, ArrayOperand, AssignableTo, BitwiseKind, BitwiseOperand,
    DivOperand, JoinResult, JoinsElem, LeftNumber, MulOperand, MulResult, NumberOperand, RightOperand,
    ScalarOperand,
};
pub use pieces::{ConcatOperands, SliceOf, SplitPieces, StridedSlice, concat};
pub use products::Product;
pub use random::{BlockKey, KeyFold, SampleKey, Unsigned};
pub use reshaped::{MergeDims, NextDim, SplitDim};
pub use scalar::scalar;
pub use shapes::{DimAt, ReplaceDim, SplitResult};
pub use windows::ConvResult;

use crate::api::array::Array;
use crate::core::Element;
use sets::Sets;
use shape::Shape;
use std::marker::PhantomData;

/// The names that typed programs use, in addition to `atmesh::prelude`.
pub mod prelude {
    pub use super::axis::{Distinct, DistinctAxis, MeshAxis, MeshType, Shard, Unsharded};
    #[doc(hidden)]
    pub use super::habits::TupleOfOne as _;
    pub use super::rules::broadcast::ElementwiseShape;
    pub use super::rules::reduce::keep;
    pub use super::rules::reshape_dims::ReshapesTo;
    pub use super::rules::windows::Strides;
    pub use super::shape::{AxesOnce, D0, D1, D2, D3, D4, D5, D6, D7};
    pub use super::size::{
        AddSize, GathersOver, KnownSize, MulSize, ProductIs, Size, SplitsOver, SubSize, Tiles,
    };
    // makes `T![bf16; ..]` resolve
    pub use super::region::ManualAxis;
    pub use super::{
        BlockKey, Blocks, DeviceOf, Float, Integer, Manual, MeshOf, N, Number, P, S, T, ThisDevice, Typed,
        TypedArray, TypedMesh, bf16, dim, einsum, f16, mesh,
    };
}

/// An array with element type `T` and shape `S`; `T![f32; 8@X, 16]` writes this type.
///
/// `V` is `()` outside of [`shard_map`](Manual::shard_map). Inside, it is the set of mesh axes over
/// which the devices' blocks vary: `T![f32; 4, 16; V: X]`.
///
/// There is no `Default`, since an array belongs to a mesh: [`Typed::zeros`] takes it. There is no
/// `PartialEq`, since the elements are not known under `jit`: compare [`Typed::to_vec`], or
/// elementwise.
#[must_use = "operations return new arrays"]
#[repr(transparent)]
pub struct Typed<T, S, V = ()> {
    array: Array,
    marker: PhantomData<fn() -> (T, S, V)>,
}

impl<T, S, V> Clone for Typed<T, S, V> {
    fn clone(&self) -> Self {
        Typed { array: self.array.clone(), marker: PhantomData }
    }
}
/// Prints like the array.
impl<T, S, V> std::fmt::Display for Typed<T, S, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.array, f)
    }
}
impl<T, S, V> std::fmt::Debug for Typed<T, S, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.array, f)
    }
}

mod sealed {
    use crate::api::array::Array;

    /// Creates a typed array from an untyped one, without a check. The trait is sealed, so that
    /// only the rules and the checked conversions create typed arrays.
    pub trait FromRule {
        fn from_rule(array: Array) -> Self;
    }
    /// Creates the typed results of an untyped operation: one array, or a tuple.
    pub(super) trait FromResults<R> {
        fn from_results(results: R) -> Self;
    }
    impl<A: FromRule> FromResults<Array> for A {
        #[track_caller]
        fn from_results(result: Array) -> A {
            A::from_rule(result)
        }
    }
    impl<A: FromRule, B: FromRule> FromResults<(Array, Array)> for (A, B) {
        #[track_caller]
        fn from_results((a, b): (Array, Array)) -> (A, B) {
            (A::from_rule(a), B::from_rule(b))
        }
    }
    impl<A: FromRule, B: FromRule, C: FromRule> FromResults<(Array, Array, Array)> for (A, B, C) {
        #[track_caller]
        fn from_results((a, b, c): (Array, Array, Array)) -> (A, B, C) {
            (A::from_rule(a), B::from_rule(b), C::from_rule(c))
        }
    }
}
impl<T: Element, S: Shape, V: Sets> sealed::FromRule for Typed<T, S, V> {
    #[track_caller]
    fn from_rule(array: Array) -> Self {
        Typed::from_rule_result(array)
    }
}

/// Any [`Typed`] array. A bound writes `R: TypedArray<Shape = S![8]>`.
///
/// Operand parameters use this trait, so that rustc knows their type before it looks for a rule.
#[diagnostic::on_unimplemented(
    message = "expected a typed array, found `{Self}`",
    label = "not a typed array",
    note = "an `Array` becomes a typed one by `x.typed::<T![f32; 8@X, 16]>()?`"
)]
pub trait TypedArray: sealed::FromRule {
    /// The element type.
    type Elem: Element;
    /// The shape.
    type Shape: Shape;
    /// The sets of mesh axes: varying, unreduced, reduced.
    type Sets: Sets;
    /// Returns the untyped array.
    fn as_untyped(&self) -> &Array;
}
impl<T: Element, S: Shape, V: Sets> TypedArray for Typed<T, S, V> {
    type Elem = T;
    type Shape = S;
    type Sets = V;
    fn as_untyped(&self) -> &Array {
        &self.array
    }
}

// `macro_export` puts macros at the root of the crate; the next two have their documentation here.
#[doc(hidden)]
#[macro_export]
macro_rules! T { ($($t:tt)*) => { $crate::typed::notation::array! { [$crate::typed] $($t)* } } }
// at the root, `einsum` is a function
#[doc(hidden)]
#[macro_export]
macro_rules! __typed_einsum { ($($t:tt)*) => { $crate::typed::notation::einsum! { [$crate::typed] $($t)* } } }

/// Writes the type of an array: `T![f32; 4@X, 2]`.
///
/// The element type comes first, then `;`, then the dims: each has a size, and after `@` the mesh
/// axes that shard it. Sizes are those that [`S!`](crate::api::typed::S) accepts. A second `;`
/// introduces sets of mesh axes: `V: X` (inside `shard_map`, varies over X), `U: X` (an unreduced
/// sum over X), `R: X` (reduced over X). `in Pod` is the type of a value inside a `shard_map` over
/// `Pod` that does not vary.
///
/// ```
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
/// dim!(Batch);
/// dim!(Hidden = 11008);
/// assert_eq!(<T![f32; Batch@X, Hidden@Y]>::type_text(), "float32[Batch@X,11008@Y]");
/// assert_eq!(<T![i32; 4, ?; V: (X, Y)]>::type_text(), "int32[4,?]{V:(X,Y)}");
/// assert_eq!(<T![f32; 8; U: X]>::type_text(), "float32[8]{U:X}");
/// assert_eq!(<T![bool;]>::type_text(), "bool[]");
/// ```
#[doc(inline)]
pub use T;

/// Computes an einsum of typed arrays: `einsum!("bsd,dh->bsh", x, w)`.
///
/// Dims that only one operand has, and the result does not have, are summed. A single operand is
/// transposed and summed. A spec after two operands is the result sharding:
/// `einsum!("bk,kn->bn", x, w, P![X, _])`.
///
/// ```
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
/// let pod = Pod::mesh()?;
/// let (x, w) = (<T![f32; 4@X, 3, 8]>::ones(&pod), <T![f32; 8, 4@Y]>::ones(&pod));
/// let y: T![f32; 4@X, 3, 4@Y] = einsum!("bsd,dh->bsh", x, w);
/// let z: T![f32; 3, 4@X] = einsum!("bsd->sb", x);
/// # let _ = (y, z);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(inline)]
pub use __typed_einsum as einsum;

/// Derives the traits with which a struct of typed arrays enters and leaves
/// [`shard_map`](Manual::shard_map).
///
/// The out specs are a struct of the same name, with a spec in each field. Inside, fields have the
/// types of one device's blocks; therefore each field's type must be a type parameter of the
/// struct, without bounds. A field may itself be such a struct.
///
/// ```
/// use atmesh::typed::prelude::*;
/// mesh! { struct Pod { X: 2, Y: 4 } }
///
/// #[derive(Blocks)]
/// struct Layer<W, B> {
///     w: W,
///     b: B,
/// }
/// type Sharded = Layer<T![f32; 8, 16@Y], T![f32; 16@Y]>;
///
/// fn doubled(layer: Sharded) -> Sharded {
///     Pod.shard_map((layer,), Layer { w: P![_, Y], b: P![Y] }, |(layer,)| {
///         let w: T![f32; 8, 4; V: Y] = layer.w; // one device's
///         Layer { w: &w * 2.0, b: &layer.b + &layer.b }
///     })
/// }
///
/// let pod = Pod::mesh()?;
/// let layer = doubled(Layer { w: Typed::ones(&pod), b: Typed::full(&pod, 3.0) });
/// assert_eq!((layer.w.to_vec()?[0], layer.b.to_vec()?[0]), (2.0, 6.0));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub use atmesh_derive::Blocks;

#[doc(hidden)]
pub use atmesh_typed::notation;
