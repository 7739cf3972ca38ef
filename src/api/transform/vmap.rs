//! `vmap`: maps a closure that is written for one example over a batch dimension.

use super::control::{RecordedClosure, ReturnedTree, tree_of};
use super::jit::check_arguments;
use crate::api::array::{Array, resolve_dim};
use crate::api::trace::build;
use crate::api::tree::{Args, Output, Path, Tree, collect};
use crate::core::{ArrayType, Axes, AxisType, Error, ErrorKind, Fault, Mesh, Result, diagnostic::pluralize};
use crate::ir::program::{BatchDim, Builder, CallSite, Value, with_inserted};
use crate::ir::vmap::{BatchedValue, check_unmapped, inline_vmap, spread_over_batch};

/// Maps `f` over the first dimension of the arguments, and stacks the results.
///
/// The results are stacked along a new first dimension. `f` is traced once. The program computes
/// all examples: every operation has one more loop.
/// `f` takes one example by value, and rustc infers its type: `|x|`, `|(x, y)|`
/// ([closures and arguments](crate#closures-and-arguments)).
///
/// Captured values are shared by all examples. If the first dimension of one argument is sharded
/// over an explicit axis, those of all arguments must be, and so is every result; captured values
/// then must not be sharded over that axis. [`vmap_with`] maps other dimensions, or only some
/// arguments.
///
/// ```
/// use atmesh::prelude::*;
/// let w = Array::from([[1.0f32, 0.0], [0.0, 2.0]]);
/// let xs = Array::from([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
/// let ys = vmap(&xs, |x| w.dot(&x));
/// assert_eq!(ys.to_vec::<f32>()?, [1.0, 4.0, 3.0, 8.0, 5.0, 12.0]);
///
/// // one gradient per example
/// let slopes = vmap(&xs, |x| grad(&w, |w| w.dot(&x).square().sum(..)));
/// assert_eq!(slopes.shape()?, [3, 2, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vmap<A: Args, R: Output>(args: A, f: impl Fn(A::Owned) -> R) -> R::Tree {
    vmap_at(&VmapOptions::default(), &args.into_tree(), &|x| f(x).into_result(), CallSite::here("vmap"))
}

/// The dimensions that [`vmap_with`] maps, for arguments or for results.
///
/// `0` or `-1` maps that dimension of every array. `[Some(0), None]` has one entry for each
/// component of a tuple (or element of a list); `None` means that the array is not mapped: all
/// examples share it.
///
/// ```
/// use atmesh::{VmapOptions, prelude::*};
/// let (xs, w) = (Array::arange(0..4).reshape([2, 2]), Array::from([1, 10]));
/// // the first argument has an example in each row, and the second one is the same for all
/// let options = VmapOptions::default().in_dims([Some(0), None]);
/// let ys = vmap_with((&xs, &w), |(x, w)| x.dot(&w), options);
/// assert_eq!(ys.to_vec::<i32>()?, [10, 32]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDims(DimSelection);
#[derive(Clone, Debug, PartialEq, Eq)]
enum DimSelection {
    All(Option<i64>),
    Each(Vec<Option<i64>>),
}
conversions! { MapDims:
    [] i32 => |d| MapDims(DimSelection::All(Some(d.into())));
    [] Option<i32> => |d| MapDims(DimSelection::All(d.map(i64::from)));
    [const N: usize] [i32; N]
        => |dims| MapDims(DimSelection::Each(dims.into_iter().map(|d| Some(d.into())).collect()));
    [const N: usize] [Option<i32>; N]
        => |dims| MapDims(DimSelection::Each(dims.into_iter().map(|d| d.map(i64::from)).collect()));
    [] Vec<Option<i32>>
        => |dims| MapDims(DimSelection::Each(dims.into_iter().map(|d| d.map(i64::from)).collect()));
}

/// The options of [`vmap_with`].
///
/// ```
/// use atmesh::prelude::*;
/// let xs = Array::arange(0..4).reshape([2, 2]);
/// // an example in each column, and a result in each row
/// let sums = vmap_with(&xs, |x| x.sum(0), VmapOptions::default().in_dims(1));
/// assert_eq!(sums.to_vec::<i32>()?, [2, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VmapOptions {
    /// The dimension of each argument that runs over the examples. Defaults to 0.
    pub in_dims: MapDims,
    /// The dimension of each result that runs over the examples. Defaults to 0.
    ///
    /// `None` requires a result that is the same for all examples.
    pub out_dims: MapDims,
    /// The axes over which the examples are sharded. Defaults to none.
    ///
    /// Explicit axes must equal those of the mapped dimensions, or be left out. Over auto axes,
    /// constraints inside the closure keep the examples sharded over them.
    pub axes: Axes,
}
impl Default for VmapOptions {
    fn default() -> VmapOptions {
        VmapOptions { in_dims: 0.into(), out_dims: 0.into(), axes: Axes::none() }
    }
}

impl VmapOptions {
    setters! {
        /// Sets the dimensions of the arguments that run over the examples.
        ///
        /// ```
        /// let options = atmesh::VmapOptions::default().in_dims([Some(1), None]).out_dims(-1);
        /// assert_eq!(options.out_dims, (-1).into());
        /// ```
        #[doc(alias = "in_axes")]
        pub fn in_dims(dims: impl Into<MapDims>) = in_dims: dims.into();
        /// Sets the dimensions of the results that run over the examples.
        #[doc(alias = "out_axes")]
        pub fn out_dims(dims: impl Into<MapDims>) = out_dims: dims.into();
        /// Sets the axes over which the examples are sharded.
        pub fn axes(axes: impl Into<Axes>) = axes: axes.into();
    }
}

/// Runs [`vmap`] with options: other dimensions than the first, or only some of the arguments.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::{VmapOptions, vmap_with};
/// let xs = Array::from([[1, 2, 3], [4, 5, 6]]);
/// let options = VmapOptions::default().in_dims([Some(1), None]);
/// let sums = vmap_with((&xs, 10), |(x, y)| x.sum(..) * y, options);
/// assert_eq!(sums.to_vec::<i32>()?, [50, 70, 90]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vmap_with<A: Args, R: Output>(args: A, f: impl Fn(A::Owned) -> R, options: VmapOptions) -> R::Tree {
    vmap_at(&options, &args.into_tree(), &|x| f(x).into_result(), CallSite::here("vmap"))
}

/// Implements [`vmap_with`].
pub(crate) fn vmap_at<A: Tree, R: Tree>(
    options: &VmapOptions,
    args: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> R {
    let returned = ReturnedTree::new();
    run_vmap(options, args, &|x| returned.remember(f(x)), call).unwrap_or_else(|e| returned.poisoned(&e))
}

/// Returns the requested dimension of each leaf, by its position in the tree.
pub(crate) fn leaf_dims<T: Tree>(dims: &MapDims, tree: &T, what: &str) -> Result<Vec<Option<i64>>, Fault> {
    let mut found = Vec::new();
    let mut parts = 0;
    tree.visit(&mut Path::named(), &mut |path, _| {
        found.push(match &dims.0 {
            DimSelection::All(d) => Ok(*d),
            DimSelection::Each(list) => {
                // a single array argument counts as component 0
                let part = path.parts().first().map_or(Some(0), |p| p.parse::<usize>().ok());
                parts = parts.max(part.map_or(0, |p| p + 1));
                part.and_then(|p| list.get(p).copied()).ok_or_else(|| {
                    fault!(
                        Tree,
                        "{what} has {}, and none is for {}",
                        pluralize(list.len(), "entry"),
                        path.name_or("the only array")
                    )
                    .help("give one for each element of a tuple, or one for all: `0.into()`")
                })
            }
        });
    });
    match &dims.0 {
        DimSelection::Each(list) if list.len() > parts && found.iter().all(Result::is_ok) => Err(Fault::new(
            ErrorKind::Tree,
            format!("{what} has {} for {}", pluralize(list.len(), "entry"), pluralize(parts, "part")),
        )
        .help("give one for each element of a tuple, or one for all: `0.into()`")),
        _ => found.into_iter().collect(),
    }
}

/// A leaf of the arguments: its mapped dimension (`None` if shared), and the type of one example.
struct MappedLeaf {
    dim: Option<usize>,
    example_type: ArrayType,
}

/// Returns `sharded over` the axes, or `unsharded` if there are none.
fn sharding_text(axes: &Axes) -> String {
    if axes.is_empty() { "unsharded".into() } else { format!("sharded over {axes}") }
}

/// Returns the batch dimension, and the mapped dimension and example type of each leaf.
fn batch_dim<A: Tree>(
    options: &VmapOptions,
    args: &A,
    call: CallSite<'_>,
) -> Result<(BatchDim, Vec<MappedLeaf>)> {
    let reject = |fault: Fault, ty: &ArrayType| call.error(fault, || vec![ty.to_string()]);
    let dims = leaf_dims(&options.in_dims, args, "in_dims").map_err(|f| call.error(f, Vec::new))?;
    let (mut leaves, mut errors) = (Vec::new(), Vec::new());
    let mut first: Option<(String, usize, Axes)> = None;
    let mut mesh: Option<Mesh> = None;
    let mut dims = dims.into_iter();
    args.visit(&mut Path::named(), &mut |path, a| {
        let (Some(d), Ok(ty)) = (dims.next(), a.type_ref()) else { return };
        let name = path.name_or("the argument");
        mesh = mesh.take().or_else(|| ty.mesh.clone());
        let Some(d) = d else {
            leaves.push(MappedLeaf { dim: None, example_type: ty.clone() });
            return;
        };
        let d = match resolve_dim(d, ty.rank()) {
            Ok(d) => d,
            Err(fault) => {
                errors.push(reject(
                    fault.help(format!(
                        "{name} is {ty}: an array without examples is captured, or `None` in in_dims"
                    )),
                    ty,
                ));
                return;
            }
        };
        let (size, entry) = (ty.shape[d], Axes::from(ty.spec.dim(d)));
        match &first {
            Some((other, n, _)) if *n != size => {
                let message = format!("{name} has {size} examples along dimension {d}, but {other} has {n}");
                let fault = Fault::new(ErrorKind::Shape, message)
                    .help("map over dimensions of one size; capture values that are the same for all examples");
                errors.push(reject(fault.highlight_dim(0, d), ty));
            }
            Some((other, _, axes)) if *axes != entry => {
                // after the resharding, these axes shard only the mapped dimension
                let moved = ty.spec.padded(ty.rank()).filter_axes(|a| !axes.contains(a)).with_dim(d, axes);
                let help = format!("move {name}: `.reshard({moved})`");
                errors.push(reject(fault!(Sharding, "the mapped dimensions must be sharded the same way, but that of {name} is {}, that of {other} {}",
                    sharding_text(&entry),
                    sharding_text(axes)).help(help).highlight_dim(0, d), ty));
            }
            Some(_) => {}
            None => first = Some((name, size, entry)),
        }
        let (mut shape, mut entries) = (ty.shape.clone(), ty.spec.padded(ty.rank()).dims().to_vec());
        shape.sizes_mut().remove(d);
        entries.remove(d);
        leaves.push(MappedLeaf {
            dim: Some(d),
            example_type: ArrayType { shape, spec: ty.spec.with_dims(entries), ..ty.clone() },
        });
    });
    if !errors.is_empty() {
        return Err(Error::combine(errors));
    }
    let Some((_, size, axes)) = first else {
        let fault = fault!(Shape, "there is nothing to map over: no argument has examples")
            .help("pass an array whose first dimension runs over them");
        return Err(call.error(fault, Vec::new));
    };
    let explicit = |a| mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Explicit));
    let named: Axes = options.axes.iter().filter(|a| explicit(*a)).collect();
    if !named.is_empty() && named != axes {
        let fault = fault!(
            Sharding,
            "the examples are asked to be sharded over {named}, but the mapped dimensions are {}",
            sharding_text(&axes)
        )
        .help("reshard the mapped dimensions first: `.reshard(p![…])`, or omit `axes`");
        return Err(call.error(fault, Vec::new));
    }
    Ok((BatchDim { size, axes, constrained_axes: options.axes.clone(), mesh }, leaves))
}

pub(super) fn run_vmap<A: Tree, R: Tree>(
    options: &VmapOptions,
    args: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: CallSite<'_>,
) -> Result<R> {
    check_arguments(args, call)?;
    let (examples, leaves) = batch_dim(options, args, call)?;
    let types: Vec<ArrayType> = leaves.iter().map(|l| l.example_type.clone()).collect();
    let piece = RecordedClosure::record(call, &types, |xs| f(tree_of(args, xs)))?;
    let dims =
        leaf_dims(&options.out_dims, &piece.out, "out_dims").map_err(|fault| call.error(fault, Vec::new))?;
    let inputs: Vec<Array> = collect(args).into_iter().chain(piece.captures).collect();
    let results = build(&inputs, call, |b, values| {
        let mut items = Vec::with_capacity(values.len());
        for (i, value) in values.iter().enumerate() {
            let item = match leaves.get(i).and_then(|l| l.dim) {
                Some(d) => BatchedValue { value: move_dim(b, value, d, 0)?, mapped: true },
                None => BatchedValue { value: value.clone(), mapped: false },
            };
            if !item.mapped {
                check_unmapped(&value.ty, &examples)
                    .map_err(|fault| b.error(fault, "vmap", std::slice::from_ref(value)))?;
            }
            items.push(item);
        }
        let results = inline_vmap(b, &piece.program, &items, &examples)
            .map_err(|e| e.related(call.location, "mapped here: types are those of all examples together"))?;
        let mut outs = Vec::with_capacity(results.len());
        for (item, d) in results.iter().zip(&dims) {
            outs.push(move_to_out_dim(b, item, *d, &examples)?);
        }
        Ok(outs)
    })?;
    Ok(tree_of(&piece.out, results))
}

/// Moves the examples of a result to the requested dimension.
fn move_to_out_dim(
    b: &mut Builder,
    item: &BatchedValue,
    asked: Option<i64>,
    examples: &BatchDim,
) -> Result<Value> {
    let Some(d) = asked else {
        if item.mapped {
            let fault = fault!(
                Shape,
                "a result is asked to be the same for all examples, but it is {} of them",
                item.value.ty
            )
            .help("give its dimension in out_dims, or reduce over examples outside");
            return Err(b.error(fault, "vmap", std::slice::from_ref(&item.value)));
        }
        return Ok(item.value.clone());
    };
    let all = spread_over_batch(b, item, examples)?;
    let d =
        resolve_dim(d, all.ty.rank()).map_err(|fault| b.error(fault, "vmap", std::slice::from_ref(&all)))?;
    move_dim(b, &all, 0, d)
}

/// Moves dimension `from` to position `to`.
fn move_dim(b: &mut Builder, x: &Value, from: usize, to: usize) -> Result<Value> {
    let rest: Vec<usize> = (0..x.ty.rank()).filter(|d| *d != from).collect();
    b.transpose(x, &with_inserted(&rest, to, from))
}
