//! Typed arrays as tree leaves: arguments and results of transformed functions.

use super::equal_sizes::{any_open, named_dims};
use super::{Float, Typed, sets::Sets, shape::Shape};
use crate::api::array::{Array, Operand, Term};
use crate::api::tree::{Args, Loss, Param, Path, Tree};
use crate::core::{Element, Error};

impl<T: Element, S: Shape, V: Sets> Tree for Typed<T, S, V> {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        if const { any_open(S::DIMS) } {
            path.record_dims(|| named_dims(S::DIMS, &self.array));
        }
        f(path, &self.array);
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
        Typed::checked(f(path, &self.array))
    }
    fn differs(&self, _: &Self, _: &mut Path) -> Option<String> {
        None
    }
    fn filled_with(error: &Error) -> Self {
        Typed::from_rule_result(Array::poisoned(error.clone()))
    }
}
impl<T: Element, S: Shape, V: Sets> Args for Typed<T, S, V> {
    type Owned = Self;
    fn into_tree(self) -> Self {
        self
    }
}
impl<T: Element, S: Shape, V: Sets> Param for Typed<T, S, V> {
    type Owned = Self;
    type Item<'a> = Self;
    fn lend(owned: &Self) -> Self {
        owned.clone()
    }
}
/// A typed floating-point scalar is a loss.
impl<T: Float, V: Sets> Loss for Typed<T, (), V> {}
impl<T: Float, V: Sets, M: Tree> Loss for (Typed<T, (), V>, M) {}

impl<T, S, V> Operand for Typed<T, S, V> {
    fn term(self) -> Term {
        Term::Array(self.array)
    }
}
impl<T, S, V> Operand for &Typed<T, S, V> {
    fn term(self) -> Term {
        Term::Array(self.array.clone())
    }
}
