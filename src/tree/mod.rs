//! Trees of arrays: what may be passed for one, the functions that can be traced, and what is done with whole trees.
//!
//! A tree is any nest of arrays: an [`Array`], tuples, `Vec`, arrays, `Option`, maps, and structs with `#[derive(Tree)]`. Its leaves
//! have paths: `layers.0.w`.
//!
//! ```
//! use atmesh::prelude::*;
//! let params = (Array::ones([2, 3]), vec![Array::zeros([3])]);
//! assert_eq!(type_of(&params), "(float32[2,3], (float32[3]))");
//! let doubled = tree::map(&params, |p| 2.0 * p);
//! assert_eq!(tree::leaves(&doubled).len(), 2);
//! ```

mod files;
mod func;
mod keys;
mod path;
#[cfg(feature = "safetensors")]
mod safetensors;
mod specs;
mod tools;
mod types;

pub use files::{load_npy, save_npy, try_map_named};
pub use func::Func;
pub use path::Path;
#[cfg(feature = "safetensors")]
pub use safetensors::{load_safetensors, read_safetensors, save_safetensors};
pub(crate) use specs::resolve;
pub use specs::{Inferred, SpecTree, Specs};
pub(crate) use tools::{collect, mismatch};
pub use tools::{fold, leaves, map, map_named, map2, put};
pub use types::{TypeOf, type_of};

use crate::array::Array;
use crate::diagnostic::{Error, Result};
use crate::runtime::Slab;
use crate::sharding::Sharding;
use crate::types::{ArrayType, DType, Element, Scalar, Shape};
use ndarray::{ArrayBase, Data, Dimension};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;

/// Any nest of arrays. Cloning one clones handles. Derived for structs by `#[derive(Tree)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree of arrays",
    label = "not a tree of arrays",
    note = "trees are `Array`, `Key`, tuples, `Vec`, `Option`, `BTreeMap<String, _>`, and structs with `#[derive(Tree)]`",
    note = "where a closure's parameter has no type yet, write it out: `|x: &Array|`",
    note = "wrap a plain value in `Static(..)` to pass it as part of the cache key, or mark the field of a struct with `#[tree(skip)]`"
)]
pub trait Tree: Sized + Send + Sync + 'static {
    /// Shows each leaf, in order, with its path.
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array));
    /// The same tree with each leaf replaced, in order.
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self;
    /// Where and how the two differ in what is not an array: lengths, keys, plain values.
    fn differs(&self, other: &Self, path: &mut Path) -> Option<String>;
    /// A tree of this type whose leaves carry `error`, where a closure failed before it said which: a `Vec` and a map are empty, an
    /// `Option` is `None`, a plain value is its type's default.
    fn filled_with(error: &Error) -> Self;
}

/// What a caller may pass where the tree `Owned` is wanted: the tree, a reference to it, numbers for arrays, tuples of such.
///
/// Numbers become float32, int32, and so on as `type_of` says; `Array::from` makes one of exactly its type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed as an array or a tree of arrays",
    label = "expected an array, a tree, or a reference to one",
    note = "a struct of arrays is a tree with `#[derive(Tree)]`, and `Clone` if it is passed by reference"
)]
pub trait Args {
    /// The tree.
    type Owned: Tree;
    /// As the tree itself.
    fn into_tree(self) -> Self::Owned;
}

/// What a traced function may have as a parameter: a tree or a reference to one.
pub trait Param {
    /// The tree.
    type Owned: Tree;
    /// The parameter, borrowed from the tree.
    type Item<'a>;
    /// Makes the parameter.
    fn lend(owned: &Self::Owned) -> Self::Item<'_>;
}

/// What a traced function may return: a tree, or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a traced function returns arrays, but this one returns `{Self}`",
    label = "expected a tree of arrays, or a `Result` of one, as the result",
    note = "trees are `Array`, `Key`, tuples, `Vec`, `Option`, `BTreeMap<String, _>`, and structs with `#[derive(Tree)]`"
)]
pub trait Output {
    /// The tree.
    type Tree: Tree;
    /// The tree, or the error.
    fn into_result(self) -> Result<Self::Tree>;
}
#[diagnostic::do_not_recommend]
impl<T: Tree> Output for T {
    type Tree = T;
    fn into_result(self) -> Result<T> {
        Ok(self)
    }
}
// `Error` only: with any `E: Into<Error>`, `?` in a closure needs `-> Result<_>` written out.
#[diagnostic::do_not_recommend]
impl<T: Tree> Output for Result<T, Error> {
    type Tree = T;
    fn into_result(self) -> Result<T> {
        self
    }
}

/// The loss of `grad`: one number, or one number and what else to return.
#[diagnostic::on_unimplemented(
    message = "`grad` needs one number to differentiate, but the function returns `{Self}`",
    label = "expected one number, or a tuple of one and more to return: `(loss, more)`",
    note = "make one number of an array: `.sum(..)` or `.mean(..)`"
)]
pub trait Loss: Tree {}
impl Loss for Array {}
impl<T: Tree> Loss for (Array, T) {}

/// A plain value as an argument: a part of the cache key, not traced.
///
/// Its type has a default, which takes its place in the result of a closure that failed before it returned: `cond`, `vmap` and their like give
/// a tree whose arrays carry the error.
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
            .then(|| format!("{} is {:?} in one and {:?} in the other", path.or("it"), self.0, other.0))
    }
    fn filled_with(_: &Error) -> Self {
        Static(T::default())
    }
}

fn lengths(a: usize, b: usize, path: &Path) -> Option<String> {
    (a != b).then(|| format!("{} has {a} entries in one and {b} in the other", path.or("the tree")))
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
        lengths(self.len(), other.len(), path).or_else(|| {
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
            _ => Some(format!("{} is there in one and not in the other", path.or("the tree"))),
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
                return Some(path.key(k, |path| format!("{} is there in one and not in the other", path.or(""))));
            }
            self.iter().find_map(|(k, a)| path.key(k, |path| a.differs(&other[k], path)))
        }
        fn filled_with(_: &Error) -> Self {
            BTreeMap::new()
        }
    }
)*} }
maps!(String &'static str);

// A tree passed by value is itself; as a parameter by value it is a clone.
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

// A number alone is what it would be beside nothing: a literal `2.0` is an f64 to rustc, which says nothing of what its writer
// wants; it becomes float32, as bare shapes do, and whole numbers int32 where they fit.
macro_rules! numbers { ($($t:ty)*) => {$(
    impl Args for $t {
        type Owned = Array;
        fn into_tree(self) -> Array {
            number(self.into())
        }
    }
)*} }
numbers! { f32 f64 i32 i64 u32 usize bool }

fn number(x: Scalar) -> Array {
    let (slab, dtype) = match x {
        Scalar::Bool(b) => (Slab::from_elements(Shape::scalar(), &[b]), DType::Bool),
        Scalar::Float(f) => (Slab::from_elements(Shape::scalar(), &[f as f32]), DType::F32),
        Scalar::Complex(..) => (Slab::from_elements(Shape::scalar(), &[x.to_c64()]), DType::C64),
        Scalar::Int(i) => match i32::try_from(i) {
            Ok(i) => (Slab::from_elements(Shape::scalar(), &[i]), DType::I32),
            Err(_) => (Slab::from_elements(Shape::scalar(), &[i as i64]), DType::I64),
        },
    };
    match slab {
        Ok(slab) => Array::concrete(slab, dtype.of([]), None),
        Err(fault) => Array::poisoned(fault.into()),
    }
}

// an ndarray value of any strides, as it is or by reference
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

/// A type takes the place of an argument of which there are no numbers: to trace and to lower programs, also for meshes without devices.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::without_devices([("X", 65_536)])?;
/// let program = jit(|x: &Array| x * 2.0).trace(F32.of([1 << 20]).on(&mesh, p!["X"]))?;
/// assert_eq!(program.program().output_types()[0].to_string(), "float32[1048576@X]");
///
/// // a struct of types takes the place of one of arrays
/// #[derive(Clone, Tree)]
/// struct Layer<T = Array> {
///     w: T,
///     b: T,
/// }
/// let types = Layer { w: F32.of([64, 64]).on(&mesh, p![]), b: F32.of([64]).on(&mesh, p![]) };
/// let x = F32.of([1 << 20, 64]).on(&mesh, p!["X", _]);
/// let layer = jit(|l: &Layer, x: &Array| x.dot(&l.w) + &l.b).lower((types, x))?;
/// assert!(layer.collectives().is_empty());
/// # Ok::<(), atmesh::Error>(())
/// ```
impl Args for ArrayType {
    type Owned = Array;
    #[track_caller]
    fn into_tree(self) -> Array {
        let place = std::panic::Location::caller();
        let lies = self.addressable().and_then(|()| match &self.mesh {
            Some(mesh) => Sharding::checked(mesh, self.spec, &self.shape).map(Some),
            None => Ok(None),
        });
        match lies {
            Ok(None) => Array::type_only(self, None),
            Ok(Some(sharding)) => {
                let spec = sharding.explicit();
                Array::type_only(ArrayType { spec, ..self }, Some(sharding))
            }
            Err(fault) => Array::poisoned(Error::at(fault, "type", vec![self.to_string()], Some(place))),
        }
    }
}

macro_rules! tuples { ($(($($T:ident $n:tt)*))*) => {$(
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
)*} }
tuples! {
    () (A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) (A 0 B 1 C 2 D 3 E 4) (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10) (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11)
}
