//! The typed layer: arrays whose element type, sizes and shardings are Rust types, so that an ill-sharded program does not compile.
//!
//! A [`Typed`] is an [`Array`] and nothing else at run time. Its type spells what [`type_of`](crate::type_of) prints: `T![f32; 4@X, 2]` is the type of arrays of
//! type `float32[4@X,2]`.
//!
//! ```
//! use atmesh::prelude::*;
//! use atmesh::typed::prelude::*;
//!
//! mesh! { struct Pod { X: 2, Y: 4 } }
//!
//! fn layer<B: Size, D: Size, H: Size>(x: &T![f32; B@X, D], w: &T![f32; D, H@Y]) -> T![f32; B@X, H@Y] {
//!     x.matmul(w).relu()
//! }
//!
//! let pod = Pod::mesh()?;
//! let x = Array::ones([8, 16]).put(&pod, p!["X"]).typed::<T![f32; 8@X, 16]>()?; // checked once, at the door
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
//!     let _ = x + y; // dim `TDim<Num<8>, X>` on the left and dim `TDim<Num<8>, Y>` on the right are sharded over different mesh axes
//! }
//! ```
//!
//! # In and out
//!
//! [`Array::typed`] checks an array against a type, [`Typed::untyped`] gives it back. What types cannot say goes through [`Typed::then`], which states the
//! result and checks it. Typed arrays are trees: `jit`, `grad`, `vjp`, `fori_loop`, `cond` and structs with `#[derive(Tree)]` take them as they are.
//!
//! # What is where
//!
//! The types and their rules are the crate `atmesh_typed`, which knows nothing of arrays; here is the wrapper and its methods. So the rules are
//! compiled beside the dynamic layer, not behind it, and neither depends on the other's inside. Each method calls the method of [`Array`] of the same name; with
//! debug assertions it compares what it got with what the types say.

// a result's type is the rule that gives it
#![allow(clippy::type_complexity)]

mod creation;
mod door;
mod elementwise;
mod lines;
mod manual;
mod operators;
mod products;
mod reductions;
mod shapes;
mod tree;

pub use atmesh_typed::{N, P, S, axis, dim, manual as blocks, mesh, rules, sets, shape, size, typenum};
pub use creation::OnDevices;
pub use door::SameElem;
pub use elementwise::{Added, Against, Bits, Float, Integer, Joined, Multiplied, Number, Signed};
pub use half::{bf16, f16};
pub use manual::{Enter, Leave, Manual};
pub use products::Product;
pub use reductions::Summed;
pub use shapes::{Merged, Next, Nth, Parts, Put, Split};
pub use tree::{Mapped, Stacked, scan, vmap};

use crate::array::Array;
use crate::types::Element;
use sets::Sets;
use shape::Shape;
use std::marker::PhantomData;

/// What typed programs use, beside `atmesh::prelude`.
pub mod prelude {
    pub use super::axis::{Apart, MeshAxis, MeshType, Whole};
    pub use super::rules::reduce::keep;
    pub use super::shape::{AxesOnce, D0, D1, D2, D3, D4, D5, D6, D7};
    pub use super::size::{GathersOver, Size, SplitsOver, Tiles};
    // so that `T![bf16; ..]` is found
    pub use super::{Blocks, Manual, N, OnDevices, P, S, T, Typed, TypedArray, dim, einsum, mesh};
    pub use super::{bf16, f16};
}

/// An array of element type `T` and shape `S`; `T![f32; 8@X, 16]` writes the type.
///
/// `V` is `()` outside of [`shard_map`](Manual::shard_map); inside, the set of mesh axes over which devices' blocks differ: `T![f32; 4, 16; V: X]`.
#[must_use = "operations return new arrays"]
#[repr(transparent)]
pub struct Typed<T, S, V = ()> {
    array: Array,
    of: PhantomData<fn() -> (T, S, V)>,
}

impl<T, S, V> Clone for Typed<T, S, V> {
    fn clone(&self) -> Self {
        Typed { array: self.array.clone(), of: PhantomData }
    }
}
/// As the array prints.
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
    /// Typed arrays are made by the rules and at the door only.
    pub trait Made {
        fn made(array: crate::array::Array) -> Self;
    }
}
impl<T: Element, S: Shape, V: Sets> sealed::Made for Typed<T, S, V> {
    #[track_caller]
    fn made(array: Array) -> Self {
        Typed::of(array)
    }
}

/// Any [`Typed`]: in a bound, `R: TypedArray<Shape = S![8]>`. Operands are of this trait so that rustc reads their type before it looks for a rule.
#[diagnostic::on_unimplemented(
    message = "expected a typed array, found `{Self}`",
    label = "not a typed array",
    note = "an `Array` becomes a typed one by `x.typed::<T![f32; 8@X, 16]>()?`"
)]
pub trait TypedArray: sealed::Made {
    /// Its element type.
    type Elem: Element;
    /// Its shape.
    type Shape: Shape;
    /// Its sets of mesh axes.
    type Sets: Sets;
    /// The array.
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

/// The type of an array: `T![f32; 4@X, 2]`.
///
/// The element type, `;`, then a dim each: its size, and `@` the mesh axes that shard it. Sizes are what [`S!`](crate::typed::S) takes. Behind a second `;` are sets of mesh
/// axes: `V: X` (inside of `shard_map`, varies over X), `U: X` (an unreduced sum over X), `R: X` (reduced over X); `in Pod` is inside of a
/// `shard_map` over `Pod`, varying over nothing.
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
pub use atmesh_typed::T;

/// A product by subscripts, of typed arrays: `einsum!("bsd,dh->bsh", x, w)`. Dims that one operand alone has and the result has not are summed.
///
/// One operand is transposed and summed. A spec behind two operands states how the result is sharded: `einsum!("bk,kn->bn", x, w, P![X, _])`.
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
pub use atmesh_typed::einsum;

/// Lets a struct of typed arrays enter [`shard_map`](Manual::shard_map), and leave it by a struct of out specs.
///
/// Inside, fields have the types of one device's blocks; so each field's type is a type parameter of the struct, which has no bounds. A field may be such a struct again.
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
