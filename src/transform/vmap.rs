//! `vmap` in place: the arguments first, then the closure on one example.

use super::control::{Piece, Returned, tree_of};
use super::jit::no_error;
use crate::array::{Array, dim};
use crate::batch::{Item, push, spread, unmapped};
use crate::diagnostic::{Error, ErrorKind, Fault, Result, counted};
use crate::mesh::{Axes, AxisType, Mesh};
use crate::program::{Builder, Call, Examples, Value, inserted};
use crate::trace::build;
use crate::tree::{Args, Output, Path, Tree, collect};
use crate::types::ArrayType;

/// `f` for each slice of the arguments along their first dimension, the results stacked along a new first one: one program for
/// all of them, in which every operation has one more loop.
///
/// What the closure captures is the same for all examples. Where the first dimensions are split over an explicit axis all of
/// them must be, and every result is; what is the same for all may then not name that axis. [`vmap_with`] maps other dimensions, or
/// not all arguments.
///
/// ```
/// use atmesh::prelude::*;
/// let w = Array::from([[1.0f32, 0.0], [0.0, 2.0]]);
/// let xs = Array::from([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
/// let ys = vmap(&xs, |x| w.dot(&x));
/// assert_eq!(ys.to_vec::<f32>()?, [1.0, 4.0, 3.0, 8.0, 5.0, 12.0]);
///
/// // the gradient of each example by itself
/// let slopes = vmap(&xs, |x| grad(&w, |w| w.dot(&x).square().sum(..)));
/// assert_eq!(slopes.shape()?, [3, 2, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn vmap<A: Args, R: Output>(args: A, f: impl Fn(A::Owned) -> R) -> R::Tree {
    mapped(&VmapOptions::default(), &args.into_tree(), &|x| f(x).into_result(), Call::here("vmap"))
}

/// Which dimensions [`vmap_with`] maps, of arguments or results.
///
/// `0`, `-1`: that dimension of every array. `[Some(0), None]`: for each part of a tuple (or entry of a list), `None` being the same for
/// all examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDims(Which);
#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    All(Option<i64>),
    Each(Vec<Option<i64>>),
}
impl From<i32> for MapDims {
    fn from(d: i32) -> MapDims {
        MapDims(Which::All(Some(d.into())))
    }
}
impl From<Option<i32>> for MapDims {
    fn from(d: Option<i32>) -> MapDims {
        MapDims(Which::All(d.map(i64::from)))
    }
}
impl<const N: usize> From<[i32; N]> for MapDims {
    fn from(dims: [i32; N]) -> MapDims {
        MapDims(Which::Each(dims.into_iter().map(|d| Some(d.into())).collect()))
    }
}
impl<const N: usize> From<[Option<i32>; N]> for MapDims {
    fn from(dims: [Option<i32>; N]) -> MapDims {
        MapDims(Which::Each(dims.into_iter().map(|d| d.map(i64::from)).collect()))
    }
}
impl From<Vec<Option<i32>>> for MapDims {
    fn from(dims: Vec<Option<i32>>) -> MapDims {
        MapDims(Which::Each(dims.into_iter().map(|d| d.map(i64::from)).collect()))
    }
}

/// How [`vmap_with`] maps.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VmapOptions {
    /// Which dimension of the arguments runs over the examples.
    pub in_dims: MapDims,
    /// Which dimension of the results does; a result of `None` must be the same for all examples.
    pub out_dims: MapDims,
    /// The axes over which the examples are split: explicit ones are those of the mapped dimensions (or left out); over auto axes
    /// constraints inside the closure leave the examples split so.
    pub axes: Axes,
}
impl Default for VmapOptions {
    fn default() -> VmapOptions {
        VmapOptions { in_dims: 0.into(), out_dims: 0.into(), axes: Axes::none() }
    }
}

impl VmapOptions {
    /// The same; these dimensions of the arguments run over the examples.
    ///
    /// ```
    /// let options = atmesh::VmapOptions::default().in_dims([Some(1), None]).out_dims(-1);
    /// assert_eq!(options.out_dims, (-1).into());
    /// ```
    pub fn in_dims(self, dims: impl Into<MapDims>) -> VmapOptions {
        VmapOptions { in_dims: dims.into(), ..self }
    }
    /// The same; these dimensions of the results do.
    pub fn out_dims(self, dims: impl Into<MapDims>) -> VmapOptions {
        VmapOptions { out_dims: dims.into(), ..self }
    }
    /// The same; the examples are split over these axes.
    pub fn axes(self, axes: impl Into<Axes>) -> VmapOptions {
        VmapOptions { axes: axes.into(), ..self }
    }
}

/// [`vmap`] over other dimensions than the first, or over some of the arguments only.
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
    mapped(&options, &args.into_tree(), &|x| f(x).into_result(), Call::here("vmap"))
}

fn mapped<A: Tree, R: Tree>(
    options: &VmapOptions,
    args: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: Call<'_>,
) -> R {
    let returned = Returned::new();
    run(options, args, &|x| returned.note(f(x)), call).unwrap_or_else(|e| returned.failed(&e))
}

/// The dimension of each leaf as it is asked for, from its place in the tree.
fn asked<T: Tree>(dims: &MapDims, tree: &T, what: &str) -> Result<Vec<Option<i64>>, Fault> {
    let mut found = Vec::new();
    let mut parts = 0;
    tree.visit(&mut Path::named(), &mut |path, _| {
        found.push(match &dims.0 {
            Which::All(d) => Ok(*d),
            Which::Each(list) => {
                // an array that is the only argument is the first one
                let part = path.parts().first().map_or(Some(0), |p| p.parse::<usize>().ok());
                parts = parts.max(part.map_or(0, |p| p + 1));
                part.and_then(|p| list.get(p).copied()).ok_or_else(|| {
                    Fault::new(
                        ErrorKind::Tree,
                        format!(
                            "{what} has {}, and none is for {}",
                            counted(list.len(), "entry"),
                            path.or("the only array")
                        ),
                    )
                    .help("give one for each part of a tuple, or one for all: `0.into()`")
                })
            }
        });
    });
    match &dims.0 {
        Which::Each(list) if list.len() > parts && found.iter().all(Result::is_ok) => Err(Fault::new(
            ErrorKind::Tree,
            format!("{what} has {} for {}", counted(list.len(), "entry"), counted(parts, "part")),
        )
        .help("give one for each part of a tuple, or one for all: `0.into()`")),
        _ => found.into_iter().collect(),
    }
}

/// What is mapped of an argument: its dimension, and the type of one example.
struct Mapped {
    dim: Option<usize>,
    one: ArrayType,
}

/// The loop over the examples, and what each leaf is to it.
fn examples<A: Tree>(options: &VmapOptions, args: &A, call: Call<'_>) -> Result<(Examples, Vec<Mapped>)> {
    let refuse = |fault: Fault, ty: &ArrayType| call.error(fault, || vec![ty.to_string()]);
    let dims = asked(&options.in_dims, args, "in_dims").map_err(|f| call.error(f, Vec::new))?;
    let (mut leaves, mut errors) = (Vec::new(), Vec::new());
    let mut first: Option<(String, usize, Axes)> = None;
    let mut mesh: Option<Mesh> = None;
    let mut dims = dims.into_iter();
    args.visit(&mut Path::named(), &mut |path, a| {
        let (Some(d), Ok(ty)) = (dims.next(), a.type_ref()) else { return };
        let name = path.or("the argument");
        mesh = mesh.take().or_else(|| ty.mesh.clone());
        let Some(d) = d else {
            leaves.push(Mapped { dim: None, one: ty.clone() });
            return;
        };
        let d = match dim(d, ty.rank()) {
            Ok(d) => d,
            Err(fault) => {
                errors.push(refuse(
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
                    .help("map over dimensions of one size; what is the same for all examples is captured");
                errors.push(refuse(fault.dim(0, d), ty));
            }
            Some((other, _, axes)) if *axes != entry => {
                let show = |axes: &Axes| {
                    if axes.is_empty() { "unsharded".to_string() } else { format!("sharded over {axes}") }
                };
                let message = format!(
                    "the mapped dimensions must be sharded the same way, but that of {name} is {}, that of {other} {}",
                    show(&entry),
                    show(axes)
                );
                // what it is sharded over elsewhere, or unreduced, it no longer is then
                let there = ty.spec.padded(ty.rank()).only(|a| !axes.contains(a)).with_dim(d, axes);
                let help = format!("move {name}: `.reshard({there})`");
                errors.push(refuse(Fault::new(ErrorKind::Sharding, message).help(help).dim(0, d), ty));
            }
            Some(_) => {}
            None => first = Some((name, size, entry)),
        }
        let (mut shape, mut entries) = (ty.shape.clone(), ty.spec.padded(ty.rank()).dims().to_vec());
        shape.sizes_mut().remove(d);
        entries.remove(d);
        leaves.push(Mapped {
            dim: Some(d),
            one: ArrayType { shape, spec: ty.spec.with_dims(entries), ..ty.clone() },
        });
    });
    if !errors.is_empty() {
        return Err(Error::all(errors));
    }
    let Some((_, size, axes)) = first else {
        let fault = Fault::new(ErrorKind::Shape, "there is nothing to map over: no argument has examples")
            .help("pass an array whose first dimension runs over them");
        return Err(call.error(fault, Vec::new));
    };
    let explicit = |a| mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Explicit));
    let named: Axes = options.axes.iter().filter(|a| explicit(*a)).collect();
    if !named.is_empty() && named != axes {
        let fault = Fault::new(
            ErrorKind::Sharding,
            format!(
                "the examples are asked to be sharded over {named}, but the mapped dimensions are {}",
                if axes.is_empty() { "unsharded".to_string() } else { format!("sharded over {axes}") }
            ),
        )
        .help("split the mapped dimensions so first: `.reshard(p![…])`, or leave `axes` out");
        return Err(call.error(fault, Vec::new));
    }
    Ok((Examples { size, axes, constrained: options.axes.clone(), mesh }, leaves))
}

fn run<A: Tree, R: Tree>(
    options: &VmapOptions,
    args: &A,
    f: &dyn Fn(A) -> Result<R>,
    call: Call<'_>,
) -> Result<R> {
    no_error(args)?;
    let (examples, leaves) = examples(options, args, call)?;
    let types: Vec<ArrayType> = leaves.iter().map(|l| l.one.clone()).collect();
    let piece = Piece::record(&types, |xs| f(tree_of(args, xs)))?;
    let dims =
        asked(&options.out_dims, &piece.out, "out_dims").map_err(|fault| call.error(fault, Vec::new))?;
    let inputs: Vec<Array> = collect(args).into_iter().chain(piece.captures).collect();
    let results = build(&inputs, call, |b, values| {
        let mut items = Vec::with_capacity(values.len());
        for (i, value) in values.iter().enumerate() {
            let item = match leaves.get(i).and_then(|l| l.dim) {
                Some(d) => Item { value: moved(b, value, d, 0)?, mapped: true },
                None => Item { value: value.clone(), mapped: false },
            };
            if !item.mapped {
                unmapped(&value.ty, &examples)
                    .map_err(|fault| b.refuse(fault, "vmap", std::slice::from_ref(value)))?;
            }
            items.push(item);
        }
        let results = push(b, &piece.program, &items, &examples)
            .map_err(|e| e.related(call.place, "mapped here: types are those of all examples together"))?;
        let mut outs = Vec::with_capacity(results.len());
        for (item, d) in results.iter().zip(&dims) {
            outs.push(placed(b, item, *d, &examples)?);
        }
        Ok(outs)
    })?;
    Ok(tree_of(&piece.out, results))
}

/// A result with its examples along the dimension asked for.
fn placed(b: &mut Builder, item: &Item, asked: Option<i64>, examples: &Examples) -> Result<Value> {
    let Some(d) = asked else {
        if item.mapped {
            let fault = Fault::new(
                ErrorKind::Shape,
                format!(
                    "a result is asked to be the same for all examples, but it is {} of them",
                    item.value.ty
                ),
            )
            .help("give its dimension in out_dims, or reduce over examples outside");
            return Err(b.refuse(fault, "vmap", std::slice::from_ref(&item.value)));
        }
        return Ok(item.value.clone());
    };
    let all = spread(b, item, examples)?;
    let d = dim(d, all.ty.rank()).map_err(|fault| b.refuse(fault, "vmap", std::slice::from_ref(&all)))?;
    moved(b, &all, 0, d)
}

/// The value with dimension `from` moved to `to`.
fn moved(b: &mut Builder, x: &Value, from: usize, to: usize) -> Result<Value> {
    let rest: Vec<usize> = (0..x.ty.rank()).filter(|d| *d != from).collect();
    b.transpose(x, &inserted(&rest, to, from))
}
