//! Functions on whole trees: `map`, `fold`, `leaves`, `put`, and the storage of parameters.

use super::{NamedSizes, Path, SpecTree, Specs, Tree, resolve};
use crate::api::array::{Array, Operand, Term, convert_weak, default_dtype};
use crate::api::trace::{OpenTrace, in_call, poison, tracing};
use crate::core::{DType, Error, Mesh, Scalar, SourceLocation, Spec};
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

/// Applies `f` to the corresponding arrays of `N` trees, and returns `M` trees.
///
/// An update of a moving average takes the average and the value, Adam takes three trees and
/// returns three. If the structures differ, every array of the results carries the error, which
/// names the path.
///
/// ```
/// use atmesh::prelude::*;
/// let (x, y) = (vec![Array::from(5)], vec![Array::from(3)]);
/// let [sum, difference] = tree::map_all([&x, &y], |[x, y]| [x + y, x - y]);
/// assert_eq!((sum[0].item::<i32>()?, difference[0].item::<i32>()?), (8, 2));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
#[doc(alias("tree_map", "tree_multimap", "tree_transpose"))]
pub fn map_all<T: Tree, const N: usize, const M: usize>(
    trees: [&T; N],
    mut f: impl FnMut([&Array; N]) -> [Array; M],
) -> [T; M] {
    const { assert!(N > 0, "`tree::map_all` needs a tree, whose structure the results have") };
    let call = CallSite::here("tree::map_all");
    let other = trees.iter().find_map(|t| trees[0].differs(t, &mut Path::named()));
    let all = trees.map(collect);
    let wrong = other.map(|how| poison(mismatch("the trees", &how, call)));
    let results: Vec<[Array; M]> = in_call(call.location, || {
        let one = |i| match &wrong {
            Some(wrong) => std::array::from_fn(|_| wrong.clone()),
            None => f(std::array::from_fn(|t| &all[t][i])),
        };
        (0..all[0].len()).map(one).collect()
    });
    std::array::from_fn(|m| {
        let mut next = results.iter();
        let leaf = |_: &Path, a: &Array| next.next().map_or_else(|| a.clone(), |r| r[m].clone());
        trees[0].rebuild(&mut Path::unnamed(), &mut { leaf })
    })
}

/// Returns the path of each array of the tree, in order: `layers.0.w`.
///
/// The path of a tree that is one array is empty.
///
/// ```
/// use atmesh::prelude::*;
/// #[derive(Clone, Tree)]
/// struct Layer {
///     w: Array,
///     b: Array,
/// }
/// let layers = vec![Layer { w: Array::ones([2, 2]), b: Array::zeros([2]) }];
/// assert_eq!(tree::paths(&layers), ["0.w", "0.b"]);
/// ```
#[doc(alias("tree_flatten_with_path", "keystr"))]
pub fn paths<T: Tree>(tree: &T) -> Vec<String> {
    let mut all = Vec::new();
    tree.visit(&mut Path::named(), &mut |path, _| all.push(path.to_string()));
    all
}

/// Folds all arrays of the tree into one, in order, such as a sum of squares.
///
/// An initial number has no element type until it meets an array: if `f` cannot combine it as
/// float32, int32 or bool with the first array, it has the element type of that array. So a sum
/// that starts at `0.0` is one of float64 if the tree is. To find out, `f` is called once more with
/// the first array, and that result is dropped. For a tree without arrays the result is the number
/// as float32, int32 or bool.
///
/// ```
/// use atmesh::prelude::*;
/// let t = (Array::from([1.5f64, 2.5]), Array::from(3.0f64));
/// let sum = tree::fold(&t, 0.0, |sum, x| sum + x.sum(..));
/// assert_eq!(sum.item::<f64>()?, 7.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn fold<T: Tree>(tree: &T, init: impl Operand, mut f: impl FnMut(Array, &Array) -> Array) -> Array {
    let location = Location::caller();
    let all = collect(tree);
    let mut total = match (init.term(), all.first()) {
        (Term::Array(a), _) => a,
        (Term::Number(x), first) => start_of_fold(x, first, &mut f, location),
    };
    in_call(location, || all.iter().for_each(|a| total = f(total.clone(), a)));
    total
}

/// Converts the initial number of a fold to an array that `f` can combine with the first array.
fn start_of_fold(
    x: Scalar,
    first: Option<&Array>,
    f: &mut dyn FnMut(Array, &Array) -> Array,
    location: SourceLocation,
) -> Array {
    let usual = Array::full(default_dtype(x).array_type([]), x);
    let Some((first, ty)) = first.and_then(|a| Some((a, a.type_ref().ok()?))) else { return usual };
    if ty.dtype == default_dtype(x) || convert_weak(x, ty.dtype).is_err() {
        return usual;
    }
    // in a trace, the error of a trial must not become one of the user's program
    let works = if tracing() {
        OpenTrace::new(Some(location)).is_ok_and(|open| {
            let out = in_call(location, || f(usual.clone(), first));
            open.finish(&[out]).is_ok()
        })
    } else {
        in_call(location, || f(usual.clone(), first)).type_ref().is_ok()
    };
    if works { usual } else { Array::full(ty.dtype.array_type([]), x) }
}
