//! Lists of the untyped leaves of typed trees, which transformations of arrays take and return.

use crate::api::array::Array;
use crate::api::tree::{Path, Tree};
use crate::core::Error;

/// The leaves of a tree, with their paths: errors name a leaf as the tree does.
pub(super) struct LeafList {
    leaves: Vec<(Vec<String>, Array)>,
    /// The error of a closure that failed before it returned a tree.
    error: Option<Error>,
}
impl LeafList {
    /// Returns the leaves of a tree.
    pub(super) fn of<T: Tree>(tree: &T) -> LeafList {
        let mut leaves = Vec::new();
        tree.visit(&mut Path::named(), &mut |path, a| {
            leaves.push((path.parts().iter().map(ToString::to_string).collect(), a.clone()));
        });
        LeafList { leaves, error: None }
    }
    /// Returns the arrays. If there are fewer than requested, the others carry an error.
    pub(super) fn supply(self) -> impl FnMut() -> Array {
        let error = self.error.unwrap_or_else(|| Error::internal("a tree has too few leaves"));
        let mut arrays = self.leaves.into_iter().map(|(_, a)| a);
        move || arrays.next().unwrap_or_else(|| Array::poisoned(error.clone()))
    }
    /// Returns the error of the closure that failed, if it did.
    pub(super) fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }
}

/// Calls `f` with the path extended by all `parts`.
fn along<R>(path: &mut Path, parts: &[String], f: &mut dyn FnMut(&Path) -> R) -> R {
    match parts {
        [] => f(path),
        [first, rest @ ..] => path.key(first, |path| along(path, rest, f)),
    }
}

impl Tree for LeafList {
    fn visit<'a>(&'a self, path: &mut Path, f: &mut dyn FnMut(&Path, &'a Array)) {
        for (parts, a) in &self.leaves {
            along(path, parts, &mut |path| f(path, a));
        }
    }
    fn rebuild(&self, path: &mut Path, f: &mut dyn FnMut(&Path, &Array) -> Array) -> Self {
        let one =
            |(parts, a): &(Vec<String>, Array)| (parts.clone(), along(path, parts, &mut |path| f(path, a)));
        LeafList { leaves: self.leaves.iter().map(one).collect(), error: self.error.clone() }
    }
    fn differs(&self, other: &Self, _: &mut Path) -> Option<String> {
        (self.leaves.len() != other.leaves.len()).then(|| "they have different numbers of arrays".to_string())
    }
    fn filled_with(error: &Error) -> Self {
        LeafList { leaves: Vec::new(), error: Some(error.clone()) }
    }
}
