//! Functions on whole trees: `map`, `fold`, `leaves` and `put`.

use super::{CallArgs, NamedSizes, Path, Specs, Tree, resolve};
use crate::api::array::Array;
use crate::api::trace::{in_call, poison};
use crate::core::{Error, Mesh};
use crate::ir::program::CallSite;
use std::panic::Location;

/// Returns the leaves, in order.
pub(crate) fn collect<T: Tree>(tree: &T) -> Vec<Array> {
    let mut all = Vec::new();
    tree.visit(&mut Path::unnamed(), &mut |_, a| all.push(a.clone()));
    all
}

impl NamedSizes {
    /// Returns the named sizes of a tree's leaves. `what` names the tree in messages: "argument".
    pub(crate) fn of<T: Tree>(tree: &T, what: &'static str) -> Self {
        NamedSizes::default().and(tree, what)
    }
    /// Adds the leaves of another tree.
    pub(crate) fn and<T: Tree>(self, tree: &T, what: &'static str) -> Self {
        if !cfg!(feature = "typed") {
            return self;
        }
        let mut path = Path::recording_sizes(self, what);
        tree.visit(&mut path, &mut |_, _| {});
        path.into_sizes()
    }
}

/// Returns the error for two trees of different structure; `what` names the two trees.
pub(crate) fn mismatch(what: &str, how: &str, call: CallSite<'_>) -> Error {
    let fault = fault!(Tree, "{what} differ in structure: {how}")
        .help("give both the same tuples, fields, lengths and plain values");
    call.error(fault, Vec::new)
}

/// Applies `f` to each array of a tree, and returns the new tree.
///
/// ```
/// use atmesh::prelude::*;
/// let t = tree::map(&(Array::from(1), vec![Array::from(2)]), |x| x + 1);
/// assert_eq!(tree::leaves(&t)[1].item::<i32>()?, 3);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
#[doc(alias("tree_map"))]
pub fn map<T: Tree>(tree: &T, mut f: impl FnMut(&Array) -> Array) -> T {
    in_call(Location::caller(), || tree.rebuild(&mut Path::unnamed(), &mut |_, a| f(a)))
}

/// Applies `f` to each pair of arrays of two trees of the same structure.
///
/// If the structures differ, every array of the result carries the error, which names the path.
#[track_caller]
pub fn map2<T: Tree>(a: &T, b: &T, mut f: impl FnMut(&Array, &Array) -> Array) -> T {
    if let Some(how) = a.differs(b, &mut Path::named()) {
        let wrong = poison(mismatch("the two trees", &how, CallSite::here("tree::map2")));
        return map(a, |_| wrong.clone());
    }
    let others = collect(b);
    let mut others = others.iter();
    map(a, |x| f(x, others.next().expect("trees that do not differ have as many leaves")))
}

/// Applies `f` to each path (`layers.0.w`) and array of a tree, and returns the new tree.
#[track_caller]
pub fn map_named<T: Tree>(tree: &T, mut f: impl FnMut(&str, &Array) -> Array) -> T {
    in_call(Location::caller(), || tree.rebuild(&mut Path::named(), &mut |path, a| f(&path.to_string(), a)))
}

/// Returns all arrays of the tree, in order.
#[doc(alias("tree_leaves", "tree_flatten"))]
pub fn leaves<T: Tree>(tree: &T) -> Vec<Array> {
    collect(tree)
}

/// Places each array of the tree on the mesh, sharded as its spec says.
///
/// Arrays without a spec stay as they are.
#[track_caller]
pub fn put<T: Tree>(tree: &T, mesh: &Mesh, specs: impl Specs) -> T {
    let call = CallSite::here("tree::put");
    match resolve(&specs.spec_tree(), tree, "the specs") {
        Ok(specs) => {
            let mut specs = specs.into_iter();
            map(tree, |a| match specs.next().flatten() {
                Some(spec) => a.put_at(mesh, spec, call),
                None => a.clone(),
            })
        }
        Err(e) => {
            let wrong = poison(call.locate(e));
            map(tree, |_| wrong.clone())
        }
    }
}

/// Returns handles that hold the memory of the tree's arrays as it is now.
///
/// No data is copied. If one of the arrays is [donated](crate::Jit::donate) later, the program
/// writes its result to other memory, and the snapshot keeps its values. So a thread may read the
/// snapshot while training goes on.
///
/// ```
/// use atmesh::prelude::*;
/// let step = jit(|w: &Array| w * 0.5).donate(0);
/// let w = Array::ones([4]);
/// let before = tree::snapshot(&w);
/// let reader = std::thread::spawn(move || before.to_vec::<f32>());
/// let w = step.call(w)?;
/// assert_eq!(reader.join().expect("it does not panic")?, [1.0; 4]);
/// assert_eq!(w.to_vec::<f32>()?, [0.5; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// An array that was donated before carries this error in the snapshot. Traced values stay as they
/// are.
#[track_caller]
pub fn snapshot<T: Tree>(tree: &T) -> T {
    let location = Location::caller();
    tree.rebuild(&mut Path::unnamed(), &mut |_, a| a.snapshot_at(location))
}

/// Folds all arrays of the tree into one, in order, such as a sum of squares.
#[track_caller]
pub fn fold<T: Tree, A: CallArgs<Array>>(
    tree: &T,
    init: A,
    mut f: impl FnMut(Array, &Array) -> Array,
) -> Array {
    let mut total = Some(init.into_tree());
    in_call(Location::caller(), || {
        tree.visit(&mut Path::unnamed(), &mut |_, a| total = Some(f(total.take().expect("put back"), a)));
    });
    total.expect("put back")
}
