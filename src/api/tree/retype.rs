//! Trees with other leaf types: the same structure, in which each leaf has the type that a
//! transformation gives it.
//!
//! Untyped arrays have one Rust type, so these trees are what they were. The leaves of typed trees
//! change: cotangents exchange unreduced and reduced axes, slices lose their leading dim.

use super::{Static, Tree};
use crate::api::{array::Array, random::Key};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;

/// A tree that has a counterpart with other leaf types; `F` says which.
///
/// [`Cotangents`] are the leaves of gradients. `#[derive(Tree)]` implements the trait for structs:
/// a type parameter of the struct becomes its counterpart, and every other field keeps its type.
/// If the type of a field can change, the field's type must therefore be a type parameter.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no counterpart with other leaf types",
    label = "expected an array, a tuple, a list or a map of arrays, or a struct that derives `Tree`",
    note = "a struct whose leaves change their types has a type parameter for each of them: `struct Layer<W> {{ w: W }}`"
)]
pub trait Retype<F>: Tree {
    /// The tree with the other leaf types.
    type Out: Tree;
    /// Builds the counterpart from its leaves, which `next` returns in order.
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out;
}

/// The leaf types of gradients, for [`Retype`]: each leaf has the type of its cotangent.
#[derive(Clone, Copy, Debug)]
pub struct Cotangents;

/// The leaf types of Jacobians, for [`Retype`]: each leaf is untyped, since its dimensions are
/// those of a result and of the leaf.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::tree::{Jacobians, Retype};
/// let params = (Array::ones([2]), Array::ones([3]));
/// let mut blocks = [[4, 2], [4, 3]].map(Array::zeros).into_iter();
/// let jacobian = Retype::<Jacobians>::retype(&params, &mut || blocks.next().unwrap());
/// assert_eq!(type_of(jacobian), "(float32[4,2], float32[4,3])");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Jacobians;

/// A field of a counterpart that has the field's own type `T`, which `#[derive(Tree)]` requires of
/// fields whose types are not parameters.
#[diagnostic::on_unimplemented(
    message = "a field of type `{T}` keeps its type, but the result would be `{Self}`",
    label = "a field of the struct would change its type",
    note = "let the field's type be a parameter of the struct: `struct Layer<W> {{ w: W }}`, and name the whole: `type Model = Layer<T![..]>`"
)]
pub trait SameField<T> {
    /// Returns the value.
    fn into_field(self) -> T;
}
impl<T> SameField<T> for T {
    fn into_field(self) -> T {
        self
    }
}

/// A field of type `Self` whose counterpart is of type `T`: the bound of `#[derive(Tree)]` for
/// fields whose types are not parameters of the struct.
pub trait RetypeTo<F, T>: Retype<F> {
    /// Builds the counterpart from its leaves, as [`Retype::retype`] does.
    fn retype_to(&self, next: &mut dyn FnMut() -> Array) -> T;
}
impl<F, T, A: Retype<F, Out: SameField<T>>> RetypeTo<F, T> for A {
    fn retype_to(&self, next: &mut dyn FnMut() -> Array) -> T {
        self.retype(next).into_field()
    }
}

impl<F> Retype<F> for Array {
    type Out = Array;
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Array {
        next()
    }
}
impl<F> Retype<F> for Key {
    type Out = Key;
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Key {
        Key::from_array(next())
    }
}
impl<F, T: Clone + Default + Eq + Hash + fmt::Debug + Send + Sync + 'static> Retype<F> for Static<T> {
    type Out = Self;
    fn retype(&self, _: &mut dyn FnMut() -> Array) -> Self {
        self.clone()
    }
}
impl<F, T: Retype<F>> Retype<F> for Vec<T> {
    type Out = Vec<T::Out>;
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
        self.iter().map(|x| x.retype(next)).collect()
    }
}
impl<F, T: Retype<F>, const N: usize> Retype<F> for [T; N] {
    type Out = [T::Out; N];
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
        std::array::from_fn(|i| self[i].retype(next))
    }
}
impl<F, T: Retype<F>> Retype<F> for Option<T> {
    type Out = Option<T::Out>;
    fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
        self.as_ref().map(|x| x.retype(next))
    }
}
macro_rules! maps { ($($K:ty)*) => {$(
    impl<F, T: Retype<F>> Retype<F> for BTreeMap<$K, T> {
        type Out = BTreeMap<$K, T::Out>;
        fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
            self.iter().map(|(k, x)| (k.clone(), x.retype(next))).collect()
        }
    }
)*} }
maps!(String &'static str);

macro_rules! tuples { ($($T:ident $n:tt)*) => {
    #[allow(unused_variables, clippy::unused_unit)]
    impl<Leaf, $($T: Retype<Leaf>),*> Retype<Leaf> for ($($T,)*) {
        type Out = ($($T::Out,)*);
        fn retype(&self, next: &mut dyn FnMut() -> Array) -> Self::Out {
            ($(self.$n.retype(next),)*)
        }
    }
} }
prefixes! { tuples [] (A 0) (B 1) (C 2) (D 3) (E 4) (F 5) (G 6) (H 7) (I 8) (J 9) (K 10) (L 11) }
