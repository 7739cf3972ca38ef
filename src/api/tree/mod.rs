//! Trees of arrays: nested structures that functions take, return and transform.
//!
//! A tree is any nesting of arrays: an [`Array`], tuples, `Vec`, fixed-size arrays, `Option`, maps,
//! and structs with `#[derive(Tree)]` (JAX: pytree). Its arrays are its leaves, and each leaf has a
//! path, such as `layers.0.w`. This module has the traits of arguments, parameters and results of
//! traced functions, and functions on whole trees.
//!
//! ```
//! use atmesh::prelude::*;
//! let params = (Array::ones([2, 3]), vec![Array::zeros([3])]);
//! assert_eq!(type_of(&params), "(float32[2,3], (float32[3]))");
//! let doubled = tree::map(&params, |p| 2.0 * p);
//! assert_eq!(tree::leaves(&doubled).len(), 2);
//! ```

#[cfg(feature = "safetensors")]
mod checkpoints;
mod files;
mod func;
mod keys;
mod math;
mod named_sizes;
mod path;
mod retype;
#[cfg(feature = "safetensors")]
mod safetensors;
mod specs;
#[cfg(feature = "safetensors")]
mod step_folders;
mod summary;
mod tools;
mod types;

#[cfg(feature = "safetensors")]
pub use checkpoints::{Checkpoints, Restored};
pub use files::{load_npy, save_npy, try_map_named};
pub use func::Func;
pub use math::{cast, norm, select, vdot, zeros_like};
pub(crate) use math::{vdot_of, widened};
#[cfg_attr(not(feature = "typed"), allow(unused_imports))]
pub(crate) use named_sizes::NamedDim;
pub(crate) use named_sizes::NamedSizes;
pub use path::Path;
pub use retype::{Cotangents, Jacobians, Retype, RetypeTo, SameField};
#[cfg(feature = "safetensors")]
pub use safetensors::{
    LoadOptions, SaveOptions, TensorFiles, load_safetensors, load_safetensors_with, read_safetensors,
    save_safetensors, save_safetensors_with,
};
pub(crate) use specs::resolve;
pub use specs::{Inferred, SpecTree, Specs};
pub use summary::{Summary, SummaryRow, summary};
pub(crate) use tools::{collect, mismatch};
pub use tools::{
    fold, leaves, map, map_all, map_named, map2, paths, put, put_stored, snapshot, to_compute, to_compute_as,
    to_storage,
};
pub use types::{TypeOf, type_of};

use crate::api::array::Array;
use crate::core::{ArrayType, DType, Element, Error, Result, Scalar, Shape, Sharding};
use crate::exec::runtime::ArrayData;
use ndarray::{ArrayBase, Data, Dimension};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;

/// A nested structure of arrays. Cloning a tree clones array handles, not data.
///
/// `#[derive(Tree)]` implements it for structs.
///
/// ```
/// use atmesh::prelude::*;
/// #[derive(Clone, Tree)]
/// struct Params {
///     w: Array,
///     b: Array,
/// }
/// let params = Params { w: Array::ones([2, 3]), b: Array::zeros([3]) };
/// let halved = tree::map(&params, |p| 0.5 * p);
/// assert_eq!(tree::paths(&halved), ["w", "b"]);
/// assert_eq!(halved.w.sum(..).item::<f32>()?, 3.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("register_dataclass", "register_pytree_node", "pytree"))]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree of arrays",
    label = "not a tree of arrays",
    note = "trees are `Array`, `Key`, tuples, `Vec`, `Option`, `BTreeMap<String, _>`, and structs with `#[derive(Tree)]`",
    note = "where a closure's parameter has no type yet, write it out: `|x: &Array|`",
    note = "wrap a plain value in `Static(..)` to pass it as part of the cache key, or mark the field of a struct with `#[tree(skip)]`"
)]
pub trait Tree: Sized + Send + Sync + 'static {
    /// Calls `f` with the path and the array of each leaf, in order.
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array));
    /// Rebuilds the tree with each leaf replaced by the result of `f`, in order.
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self;
    /// Describes the first structural difference to `other`: lengths, keys or plain values. Returns
    /// `None` if the structures are equal.
    fn differs(&self, other: &Self, path: &mut Path) -> Option<String>;
    /// Creates a tree of this type whose leaves carry `error`.
    ///
    /// It is the result of a closure that failed before it returned, so its structure is unknown: a
    /// `Vec` or a map is empty, an `Option` is `None`, a plain value is its type's default.
    fn filled_with(error: &Error) -> Self;
}

/// A tree of parameters: one that can be cloned, and passed to and returned from loops.
///
/// Every tree that is `Clone` implements it, except trees with typed fields under other types. As
/// the one bound of a type parameter, it lets generic code pass the tree to
/// [`scan`](crate::scan()), [`grad`](crate::grad()) and [`while_loop`](crate::while_loop()).
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::tree::Params;
/// fn descend<P: Params>(params: &P, steps: usize, loss: impl Fn(P) -> Array) -> P {
///     fori_loop(0..steps, params, |_, p: P| {
///         let g = grad(&p, |p| loss(p));
///         tree::map2(&p, &g, |p, g| p - 0.25 * g)
///     })
/// }
/// let (x, y) = descend(&(Array::from(4.0f32), Array::from(2.0f32)), 1, |(x, y)| &x * &x + y);
/// assert_eq!((x.item::<f32>()?, y.item::<f32>()?), (2.0, 1.75));
/// # Ok::<(), atmesh::Error>(())
/// ```
pub trait Params: Tree + Clone + Args<Owned = Self> {}
impl<T: Tree + Clone + Args<Owned = T>> Params for T {}

/// An argument for a function that takes the tree `Owned`.
///
/// It may be the tree, a reference to it, a scalar for an array, or a tuple of these
/// ([closures and arguments](crate#closures-and-arguments)). Scalars become float32, int32, and so
/// on, as `type_of` reports; `Array::from` keeps the exact type.
///
/// ```
/// use atmesh::prelude::*;
/// // a scalar, a reference and an owned array are arguments of one function
/// fn doubled(x: impl tree::Args<Owned = Array>) -> Array {
///     x.into_tree() * 2
/// }
/// let x = Array::from(3);
/// assert_eq!(doubled(&x).item::<i32>()?, doubled(3).item::<i32>()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed as an array or a tree of arrays",
    label = "expected an array, a tree, or a reference to one",
    note = "a struct of arrays is a tree with `#[derive(Tree)]`, and `Clone` if it is passed by reference",
    note = "arguments come first and the closure last: `grad(&x, |x| ..)`, `scan(init, &xs, |carry, x| ..)`"
)]
pub trait Args {
    /// The tree.
    type Owned: Tree;
    /// Converts the argument to the tree.
    fn into_tree(self) -> Self::Owned;
}

/// The arguments of a call of a function that takes the tree `I`: each by value or by reference.
///
/// All [`Args`] of that tree implement it.
///
/// ```
/// use atmesh::{Array, CallArgs, Jit, Result, jit};
/// type Pair = (Array, Array);
/// fn called(f: &Jit<Pair, Array>, args: impl CallArgs<Pair>) -> Result<Array> {
///     f.call(args)
/// }
/// let (f, x) = (jit(|x: &Array, y: &Array| x * y), Array::from(4));
/// assert_eq!(called(&f, (&x, 2))?.item::<i32>()?, 8);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the function takes `{I}`, but it is called with `{Self}`",
    label = "expected `{I}`: each array or tree by value or by reference",
    note = "several arguments are one tuple: `f.call((&x, y))`; one is passed alone: `f.call(&x)`",
    note = "pass an array of the type that the function takes: `.reshard(P![..])` and `.convert::<f32>()` make it from another",
    note = "a struct of arrays derives `Tree`, and `Clone` if it is passed by reference"
)]
pub trait CallArgs<I>: Args<Owned = I> {}
#[diagnostic::do_not_recommend]
impl<I, A: Args<Owned = I>> CallArgs<I> for A {}

/// A parameter of a traced function: a tree or a reference to one.
///
/// ```
/// use atmesh::prelude::*;
/// // parameters are trees or references to trees, in any mix
/// let f = jit(|x: Array, (y, z): (Array, Array), w: &Array| x + y + z + w);
/// assert_eq!(f.call((1, (2, 3), 4))?.item::<i32>()?, 10);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub trait Param {
    /// The tree.
    type Owned: Tree;
    /// The parameter, borrowed from the tree.
    type Item<'a>;
    /// Creates the parameter from the tree.
    fn lend(owned: &Self::Owned) -> Self::Item<'_>;
}

/// A result of a traced function: a tree, or a `Result` of one.
///
/// ```
/// use atmesh::prelude::*;
/// // a traced function may return a tree, or a `Result` of one
/// let checked = jit(|x: &Array| -> Result<Array> {
///     x.ty()?;
///     Ok(x + 1)
/// });
/// assert_eq!(checked.call(1)?.item::<i32>()?, 2);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "a traced function returns arrays, but this one returns `{Self}`",
    label = "expected a tree of arrays, or a `Result` of one, as the result",
    note = "trees are `Array`, `Key`, tuples, `Vec`, `Option`, `BTreeMap<String, _>`, and structs with `#[derive(Tree)]`"
)]
pub trait Output {
    /// The tree.
    type Tree: Tree;
    /// Converts the result to the tree, or the error.
    fn into_result(self) -> Result<Self::Tree>;
}
#[diagnostic::do_not_recommend]
impl<T: Tree> Output for T {
    type Tree = T;
    fn into_result(self) -> Result<T> {
        Ok(self)
    }
}
// `Error` only: with any `E: Into<Error>`, `?` in a closure would need `-> Result<_>` written out.
#[diagnostic::do_not_recommend]
impl<T: Tree> Output for Result<T, Error> {
    type Tree = T;
    fn into_result(self) -> Result<T> {
        self
    }
}

/// The result of a loop body as the next carry, whose type `T` is that of the first carry.
///
/// Every type is its own next carry. As a bound, the trait gives this crate's message where an
/// equality of types would give rustc's.
#[diagnostic::on_unimplemented(
    message = "the carry of a loop keeps its type, but the body takes `{T}` and returns `{Self}`",
    label = "the body returns `{Self}`",
    note = "restore the type at the end of the body: `.reshard(P![..])`, `.convert()` or a reduction"
)]
pub trait NextCarry<T> {
    /// Returns the carry.
    fn into_carry(self) -> T;
}
impl<T> NextCarry<T> for T {
    fn into_carry(self) -> T {
        self
    }
}

/// The result of the body of a `scan`: the next carry, whose type `C` is that of the first carry,
/// and the row of this step.
#[diagnostic::on_unimplemented(
    message = "the body of a `scan` returns a tuple of the next carry and a result, but this one returns `{Self}`",
    label = "expected `(carry, result)`, where the carry is `{C}`",
    note = "a scan without results returns `(carry, ())`"
)]
pub trait ScanStep<C> {
    /// The tree of the row.
    type Row: Tree;
    /// Returns the carry and the row.
    fn into_step(self) -> (C, Self::Row);
}
impl<C, T: NextCarry<C>, Y: Tree> ScanStep<C> for (T, Y) {
    type Row = Y;
    fn into_step(self) -> (C, Y) {
        (self.0.into_carry(), self.1)
    }
}
/// The result of the function of an `associative_scan`: a tree of the type `T` that it combines.
#[diagnostic::on_unimplemented(
    message = "the function of an `associative_scan` combines two trees into one of their type: it takes two `{T}` and returns `{Self}`",
    label = "the function returns `{Self}`",
    note = "restore the type at its end: `.reshard(P![..])`, `.convert()` or `.astype(..)`"
)]
pub trait Combined<T> {
    /// Returns the tree.
    fn into_combined(self) -> T;
}
impl<T> Combined<T> for T {
    fn into_combined(self) -> T {
        self
    }
}
/// The result of a function whose Jacobian is computed: one untyped array.
#[diagnostic::on_unimplemented(
    message = "a Jacobian is that of a function that returns one `Array`, but this one returns `{Self}`",
    label = "the function returns `{Self}`",
    note = "pass and return untyped arrays, and state the type of the result: `jacrev(x.as_untyped(), |x| ..).typed::<T![..]>()?`"
)]
pub trait JacobianResult {
    /// Returns the array.
    fn into_array(self) -> Array;
}
impl JacobianResult for Array {
    fn into_array(self) -> Array {
        self
    }
}

/// The result of a function passed to `grad`: a scalar loss, optionally with auxiliary values.
///
/// Auxiliary values are the second element of a tuple.
///
/// ```
/// use atmesh::{Array, Loss, value_and_grad};
/// // a loss alone, or with more values to return
/// fn is_loss<L: Loss>(_: &L) {}
/// let x = Array::from(3.0f32);
/// let square = |x: &Array| (x.square(), x.sin());
/// is_loss(&square(&x));
/// let ((y, _), g) = value_and_grad(&x, |x| square(&x));
/// assert_eq!((y.item::<f32>()?, g.item::<f32>()?), (9.0, 6.0));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`grad` needs one number to differentiate, but the function returns `{Self}`",
    label = "expected one number, or a tuple of one and more to return: `(loss, more)`",
    note = "make one number of an array: `.sum(..)` or `.mean(..)`",
    note = "the number is a float: convert a typed one by `.convert::<f32>()`"
)]
pub trait Loss: Tree {}
impl Loss for Array {}
impl<T: Tree> Loss for (Array, T) {}

/// A plain value as an argument. It is not traced, but part of the cache key.
///
/// The type needs a default. If a closure fails before it returns (in `cond`, `vmap` and similar
/// functions), the result is a tree whose arrays carry the error and whose plain values are the
/// defaults.
///
/// ```
/// use atmesh::prelude::*;
/// let power = jit(|x: &Array, Static(n): Static<u32>| (1..n).fold(x.clone(), |y, _| y * x));
/// # let _ = power;
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Static<T>(pub T);

impl Tree for Array {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        f(path, self);
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Array {
        f(path, self)
    }
    fn differs(&self, _: &Array, _: &mut Path) -> Option<String> {
        None
    }
    fn filled_with(error: &Error) -> Array {
        Array::poisoned(error.clone())
    }
}

impl<T: Clone + Default + Eq + Hash + fmt::Debug + Send + Sync + 'static> Tree for Static<T> {
    fn visit<'a>(&'a self, _: &mut Path, _: &mut dyn FnMut(&Path, &'a Array)) {}
    fn rebuild(&self, _: &mut Path, _: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
        self.clone()
    }
    fn differs(&self, other: &Self, path: &mut Path) -> Option<String> {
        (self != other)
            .then(|| format!("{} is {:?} in one and {:?} in the other", path.name_or("it"), self.0, other.0))
    }
    fn filled_with(_: &Error) -> Self {
        Static(T::default())
    }
}

fn length_difference(a: usize, b: usize, path: &Path) -> Option<String> {
    (a != b).then(|| format!("{} has {a} entries in one and {b} in the other", path.name_or("the tree")))
}

impl<T: Tree> Tree for Vec<T> {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        for (i, x) in self.iter().enumerate() {
            path.entry(i, |path| x.visit(path, f));
        }
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
        self.iter().enumerate().map(|(i, x)| path.entry(i, |path| x.rebuild(path, f))).collect()
    }
    fn differs(&self, other: &Self, path: &mut Path) -> Option<String> {
        length_difference(self.len(), other.len(), path).or_else(|| {
            let mut pairs = self.iter().zip(other).enumerate();
            pairs.find_map(|(i, (a, b))| path.entry(i, |path| a.differs(b, path)))
        })
    }
    fn filled_with(_: &Error) -> Self {
        Vec::new()
    }
}

impl<T: Tree, const N: usize> Tree for [T; N] {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        for (i, x) in self.iter().enumerate() {
            path.entry(i, |path| x.visit(path, f));
        }
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
        std::array::from_fn(|i| path.entry(i, |path| self[i].rebuild(path, f)))
    }
    fn differs(&self, other: &Self, path: &mut Path) -> Option<String> {
        let mut pairs = self.iter().zip(other).enumerate();
        pairs.find_map(|(i, (a, b))| path.entry(i, |path| a.differs(b, path)))
    }
    fn filled_with(error: &Error) -> Self {
        std::array::from_fn(|_| T::filled_with(error))
    }
}

impl<T: Tree> Tree for Option<T> {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        if let Some(x) = self {
            x.visit(path, f);
        }
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
        self.as_ref().map(|x| x.rebuild(path, f))
    }
    fn differs(&self, other: &Self, path: &mut Path) -> Option<String> {
        match (self, other) {
            (Some(a), Some(b)) => a.differs(b, path),
            (None, None) => None,
            _ => Some(format!("{} is there in one and not in the other", path.name_or("the tree"))),
        }
    }
    fn filled_with(_: &Error) -> Self {
        None
    }
}

macro_rules! maps { ($($K:ty)*) => {$(
    impl<T: Tree> Tree for BTreeMap<$K, T> {
        fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
            for (k, x) in self {
                path.key(k, |path| x.visit(path, f));
            }
        }
        fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
            self.iter().map(|(k, x)| (k.clone(), path.key(k, |path| x.rebuild(path, f)))).collect()
        }
        fn differs(&self, other: &Self, path: &mut Path) -> Option<String> {
            let only = self.keys().find(|k| !other.contains_key(*k)).or_else(|| other.keys().find(|k| !self.contains_key(*k)));
            if let Some(k) = only {
                return Some(path.key(k, |path| format!("{} is there in one and not in the other", path.name_or(""))));
            }
            self.iter().find_map(|(k, a)| path.key(k, |path| a.differs(&other[k], path)))
        }
        fn filled_with(_: &Error) -> Self {
            BTreeMap::new()
        }
    }
)*} }
maps!(String &'static str);

// `Args` passes a tree by value as itself; `Param` clones it.
macro_rules! by_value { ($([$($g:tt)*] $t:ty;)*) => {$(
    impl<$($g)*> Args for $t {
        type Owned = Self;
        fn into_tree(self) -> Self { self }
    }
    impl<$($g)*> Param for $t where $t: Clone {
        type Owned = Self;
        type Item<'a> = Self;
        fn lend(owned: &Self) -> Self { owned.clone() }
    }
)*} }
by_value! {
    [] Array;
    [T: Clone + Default + Eq + Hash + fmt::Debug + Send + Sync + 'static] Static<T>;
    [T: Tree] Vec<T>;
    [T: Tree, const N: usize] [T; N];
    [T: Tree] Option<T>;
    [T: Tree] BTreeMap<String, T>;
    [T: Tree] BTreeMap<&'static str, T>;
}
#[diagnostic::do_not_recommend]
impl<T: Tree + Clone> Args for &T {
    type Owned = T;
    fn into_tree(self) -> T {
        self.clone()
    }
}
impl<T: Tree> Param for &T {
    type Owned = T;
    type Item<'a> = &'a T;
    fn lend(owned: &T) -> &T {
        owned
    }
}

// A bare literal `2.0` is an f64 to rustc, whatever the intended type. It becomes float32, like
// arrays created from bare shapes; integers become int32 if they fit.
macro_rules! numbers { ($($t:ty)*) => {$(
    impl Args for $t {
        type Owned = Array;
        fn into_tree(self) -> Array {
            number(self.into())
        }
    }
    impl Args for &$t {
        type Owned = Array;
        fn into_tree(self) -> Array {
            number((*self).into())
        }
    }
)*} }
numbers! { f32 f64 i32 i64 u32 usize bool }

fn number(x: Scalar) -> Array {
    let (slab, dtype) = match x {
        Scalar::Bool(b) => (ArrayData::from_elements(Shape::scalar(), &[b]), DType::Bool),
        Scalar::Float(f) => (ArrayData::from_elements(Shape::scalar(), &[f as f32]), DType::F32),
        Scalar::Complex(..) => (ArrayData::from_elements(Shape::scalar(), &[x.to_c64()]), DType::C64),
        Scalar::Int(i) => match i32::try_from(i) {
            Ok(i) => (ArrayData::from_elements(Shape::scalar(), &[i]), DType::I32),
            Err(_) => (ArrayData::from_elements(Shape::scalar(), &[i as i64]), DType::I64),
        },
    };
    let slab = ok_or_return!(slab, |fault| Array::poisoned(fault.into()));
    Array::concrete(slab, dtype.array_type([]), None)
}

// an ndarray value of any strides, by value or by reference
impl<T: Element, S: Data<Elem = T>, D: Dimension> Args for ArrayBase<S, D> {
    type Owned = Array;
    fn into_tree(self) -> Array {
        Array::from(self)
    }
}
impl<T: Element, S: Data<Elem = T>, D: Dimension> Args for &ArrayBase<S, D> {
    type Owned = Array;
    fn into_tree(self) -> Array {
        Array::from(self.view())
    }
}

/// A type is an argument without data, for tracing and lowering programs.
///
/// The mesh of such a program may have no devices.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::without_devices([("X", 65_536)])?;
/// let program = jit(|x: &Array| x * 2.0).trace(F32.array_type([1 << 20]).on(&mesh, p!["X"]))?;
/// assert_eq!(program.program().output_types()[0].to_string(), "float32[1048576@X]");
///
/// // a struct of types stands for a struct of arrays
/// #[derive(Clone, Tree)]
/// struct Layer<T = Array> {
///     w: T,
///     b: T,
/// }
/// let types = Layer { w: F32.array_type([64, 64]).on(&mesh, p![]),
///     b: F32.array_type([64]).on(&mesh, p![]) };
/// let x = F32.array_type([1 << 20, 64]).on(&mesh, p!["X", _]);
/// let layer = jit(|l: &Layer, x: &Array| x.dot(&l.w) + &l.b).lower((types, x))?;
/// assert!(layer.collectives().is_empty());
/// # Ok::<(), atmesh::Error>(())
/// ```
impl Args for ArrayType {
    type Owned = Array;
    #[track_caller]
    fn into_tree(self) -> Array {
        let location = std::panic::Location::caller();
        let lies = self.check_addressable().and_then(|()| match &self.mesh {
            Some(mesh) => Sharding::try_new(mesh, self.spec, &self.shape).map(Some),
            None => Ok(None),
        });
        match lies {
            Ok(None) => Array::type_only(self, None),
            Ok(Some(sharding)) => {
                let spec = sharding.explicit();
                Array::type_only(ArrayType { spec, ..self }, Some(sharding))
            }
            Err(fault) => Array::poisoned(Error::new(fault, "type", vec![self.to_string()], Some(location))),
        }
    }
}

impl Args for &ArrayType {
    type Owned = Array;
    #[track_caller]
    fn into_tree(self) -> Array {
        self.clone().into_tree()
    }
}

macro_rules! tuples { ($($T:ident $n:tt)*) => {
    #[allow(unused_variables, clippy::unused_unit)]
    impl<$($T: Tree),*> Tree for ($($T,)*) {
        fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
            $( path.entry($n, |path| self.$n.visit(path, f)); )*
        }
        fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
            ($( path.entry($n, |path| self.$n.rebuild(path, f)), )*)
        }
        fn differs(&self, other: &Self, path: &mut Path) -> Option<String> {
            $( if let Some(d) = path.entry($n, |path| self.$n.differs(&other.$n, path)) { return Some(d); } )*
            None
        }
        fn filled_with(error: &Error) -> Self {
            ($( $T::filled_with(error), )*)
        }
    }
    #[allow(clippy::unused_unit, non_snake_case)]
    impl<$($T: Args),*> Args for ($($T,)*) {
        type Owned = ($($T::Owned,)*);
        #[track_caller]
        fn into_tree(self) -> Self::Owned {
            let ($($T,)*) = self;
            ($($T.into_tree(),)*)
        }
    }
    #[allow(clippy::unused_unit, non_snake_case)]
    impl<$($T: Param),*> Param for ($($T,)*) {
        type Owned = ($($T::Owned,)*);
        type Item<'a> = ($($T::Item<'a>,)*);
        fn lend(($($T,)*): &Self::Owned) -> Self::Item<'_> {
            ($($T::lend($T),)*)
        }
    }
} }
prefixes! { tuples [] (A 0) (B 1) (C 2) (D 3) (E 4) (F 5) (G 6) (H 7) (I 8) (J 9) (K 10) (L 11) }
