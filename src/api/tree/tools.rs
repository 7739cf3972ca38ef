//! Functions on whole trees: `map`, `fold`, `leaves`, `put`, and the storage of parameters.

use super::{CallArgs, NamedSizes, Path, SpecTree, Specs, Tree, resolve};
use crate::api::array::Array;
use crate::api::trace::{in_call, poison};
use crate::core::{DType, Error, Mesh, Spec};
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
    map_with_specs(tree, &specs.spec_tree(), call, &|a, spec| a.put_at(mesh, spec, call))
}

/// Places each parameter of the tree on the mesh as it is stored, like [`Array::put_stored`].
///
/// Arrays without a spec stay as they are.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("x", 8)])?
///     .with_logical_axes([("embed", ()), ("mlp", ())])?
///     .with_storage_axes([("embed", "x")])?;
/// let weights = (Array::ones([16, 32]), Array::ones([32, 16]));
/// let dims = (p!["embed", "mlp"], p!["mlp", "embed"]);
/// let stored = tree::put_stored(&weights, &mesh, dims);
/// assert_eq!(type_of(&stored).to_string(), "(float32[16@x,32], float32[32,16@x])");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn put_stored<T: Tree>(tree: &T, mesh: &Mesh, specs: impl Specs) -> T {
    let call = CallSite::here("tree::put_stored");
    map_with_specs(tree, &specs.spec_tree(), call, &|a, spec| a.put_stored_at(mesh, spec, call))
}

/// Gathers each stored parameter of the tree for use, like [`Array::to_compute`].
///
/// Gathering a layer at its beginning, instead of the whole model, keeps the memory low. Arrays
/// without a spec stay as they are.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("x", 8)])?
///     .with_logical_axes([("batch", "x")])?
///     .with_logical_axes([("embed", ())])?
///     .with_storage_axes([("embed", "x")])?;
/// let layer = vec![Array::ones([16, 16]), Array::ones([16])];
/// let dims = vec![p!["embed", _], p![_]];
/// let stored = tree::put_stored(&layer, &mesh, &dims);
/// let used = tree::to_compute(&stored, &dims);
/// assert_eq!(type_of(&used[0]), "float32[16,16]{R:x}");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn to_compute<T: Tree>(tree: &T, specs: impl Specs) -> T {
    let call = CallSite::here("tree::to_compute");
    map_with_specs(tree, &specs.spec_tree(), call, &|a, spec| a.to_compute_at(spec, call))
}

/// Converts each stored parameter of the tree to a compute type, and gathers it for use, like
/// [`Array::to_compute_as`].
///
/// Arrays without a spec stay as they are.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("x", 8)])?.with_logical_axes([("embed", "x")])?;
/// let (weights, dims) = ((Array::ones([16]), Array::from([1, 2])), (p!["embed"], p![_]));
/// let stored = tree::put_stored(&weights, &mesh, dims);
/// let used = tree::to_compute_as(&stored, BF16, dims);
/// assert_eq!(type_of(&used).to_string(), "(bfloat16[16@x], int32[2])");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn to_compute_as<T: Tree>(tree: &T, dtype: DType, specs: impl Specs) -> T {
    let call = CallSite::here("tree::to_compute_as");
    map_with_specs(tree, &specs.spec_tree(), call, &|a, spec| a.to_compute_as_at(dtype, spec, call))
}

/// Moves each array of the tree to where a parameter with its dimensions is stored, like
/// [`Array::to_storage`].
///
/// Arrays without a spec stay as they are.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("x", 8)])?
///     .with_logical_axes([("embed", ())])?
///     .with_storage_axes([("embed", "x")])?;
/// let gradients = vec![Array::ones([16]).put(&mesh, p!["embed"])];
/// let stored = tree::to_storage(&gradients, p!["embed"]);
/// assert_eq!(type_of(&stored[0]), "float32[16@x]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn to_storage<T: Tree>(tree: &T, specs: impl Specs) -> T {
    let call = CallSite::here("tree::to_storage");
    map_with_specs(tree, &specs.spec_tree(), call, &|a, spec| a.to_storage_at(spec, call))
}

/// Applies `f` to each array of the tree that has a spec, and its spec.
///
/// If the specs do not fit the tree, every array of the result carries the error.
fn map_with_specs<T: Tree>(
    tree: &T,
    specs: &SpecTree,
    call: CallSite<'_>,
    f: &dyn Fn(&Array, Spec) -> Array,
) -> T {
    match resolve(specs, tree, "the specs") {
        Ok(specs) => {
            let mut specs = specs.into_iter();
            let f = |a: &Array| specs.next().flatten().map_or_else(|| a.clone(), |spec| f(a, spec));
            in_call(call.location, || {
                let mut f = f;
                tree.rebuild(&mut Path::unnamed(), &mut |_, a| f(a))
            })
        }
        Err(e) => {
            let wrong = poison(call.locate(e));
            tree.rebuild(&mut Path::unnamed(), &mut |_, _| wrong.clone())
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
