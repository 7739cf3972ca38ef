//! Specs, shardings, and the block of an array that each device holds.

mod layout;
mod parse;
pub mod sub_axes;

pub use crate::core::axes::Spec;
pub(crate) use layout::blocks_unchecked;
pub use layout::{Block, blocks};
pub use sub_axes::{SubAxes, SubAxis};

use crate::core::diagnostic::{Error, ErrorKind, Fault, Result, pluralize};
use crate::core::dtype::{DType, Shape};
use crate::core::mesh::{Axes, Axis, AxisRules, AxisType, Mesh};
use std::fmt;
use std::ops::Range;
use std::panic::Location;

/// The placement of an array: a mesh, and a spec over its explicit and auto axes.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::ones([4]).put(&mesh, p!["X"]);
/// let sharding = x.sharding()?.expect("the array is on a mesh");
/// assert_eq!((&sharding.mesh, sharding.spec), (&mesh, p!["X"]));
/// assert_eq!(sharding.shard_shape(&[4])?, [2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "NamedSharding")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sharding {
    /// The mesh.
    pub mesh: Mesh,
    /// The axes that split each dimension, and the unreduced and reduced sets.
    pub spec: Spec,
}

impl Sharding {
    /// Creates the sharding of an array of this shape.
    ///
    /// Returns an error if the spec has too many entries, names an unknown axis, repeats an axis,
    /// or does not divide the shape. Dimensions without an entry in the spec are unsharded. The
    /// size of a dimension that is sharded over an explicit or manual axis must be divisible; over
    /// auto axes alone it need not be.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    /// assert!(Sharding::new(&mesh, p!["X"], &[8]).is_ok());
    /// assert!(Sharding::new(&mesh, p!["Z"], &[8]).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn new(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<Sharding> {
        let location = Location::caller();
        Sharding::try_new(mesh, spec, shape)
            .map_err(|f| Error::new(f, "sharding", Vec::new(), Some(location)))
    }
    /// Creates a sharding like [`Sharding::new`].
    /// Returns a fault, which has no source location yet.
    pub(crate) fn try_new(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<Sharding, Fault> {
        let resolved = check_spec(mesh, spec, shape.len(), &[AxisType::Explicit, AxisType::Auto])?;
        check_divides(mesh, resolved, shape).map_err(|fault| mesh.name_fault(fault, spec))?;
        Ok(Sharding { mesh: mesh.clone(), spec: resolved })
    }
    /// Returns the spec restricted to explicit axes, as types show it.
    pub fn explicit(&self) -> Spec {
        self.spec.filter_axes(|a| self.mesh.axis_type(a) == Some(AxisType::Explicit))
    }
    /// Returns true if every device holds the full array.
    pub fn is_replicated(&self) -> bool {
        self.num_shards(self.spec.dims().iter().flat_map(Axes::iter)) == 1
            && self.num_shards(self.spec.unreduced_axes().iter()) == 1
    }
    /// Returns the shape of the block that every device holds, for an array of this shape.
    ///
    /// Returns an error if a dimension is not divisible, even over auto axes alone: devices then
    /// hold [`blocks`] of different shapes.
    ///
    /// ```
    /// use atmesh::{Sharding, prelude::*};
    /// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    /// let sharding = Sharding::new(&mesh, p!["X", _], &[8, 16])?;
    /// assert_eq!(sharding.shard_shape(&[8, 16])?, [4, 16]);
    /// assert!(sharding.shard_shape(&[7, 16]).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn shard_shape(&self, shape: &[usize]) -> Result<Shape> {
        let location = Location::caller();
        self.try_shard_shape(shape).map_err(|f| Error::new(f, "shard_shape", Vec::new(), Some(location)))
    }
    pub(crate) fn try_shard_shape(&self, shape: &[usize]) -> Result<Shape, Fault> {
        let spec = check_rank(self.spec, shape.len())?;
        let num_shards = spec.dims().iter().map(|axes| self.num_shards(axes.iter()));
        let sizes = shape.iter().zip(num_shards).enumerate().map(|(d, (&n, ways))| match n % ways {
            0 => Ok(n / ways),
            _ => Err(indivisible(spec, d, n, ways)),
        });
        sizes.collect()
    }
    /// Returns the index ranges of the elements that the devices of this process hold, for an array
    /// of this shape.
    ///
    /// This is the part that
    /// [`Array::from_process_local_data`](crate::Array::from_process_local_data) takes. If there is
    /// one process, it is the whole array.
    ///
    /// Returns an error if the blocks of this process do not form a box.
    ///
    /// ```
    /// use atmesh::{Sharding, prelude::*};
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let sharding = Sharding::new(&mesh, p!["X", _], &[8, 3])?;
    /// assert_eq!(sharding.local_index(&[8, 3])?, [0..8, 0..3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn local_index(&self, shape: &[usize]) -> Result<Vec<Range<usize>>> {
        let location = Location::caller();
        self.try_local_index(shape).map_err(|f| Error::new(f, "local_index", Vec::new(), Some(location)))
    }
    /// Implements [`Sharding::local_index`].
    pub(crate) fn try_local_index(&self, shape: &[usize]) -> Result<Vec<Range<usize>>, Fault> {
        let checked = Sharding::try_new(&self.mesh, self.spec, shape)?;
        if self.mesh.is_abstract() {
            return Err(fault!(Mesh, "{} is abstract: this process holds no blocks on it", self.mesh)
                .help("make a mesh of devices: `Mesh::new`"));
        }
        let blocks = blocks_unchecked(&checked, shape).into_iter().zip(self.mesh.devices());
        let own = blocks.filter(|(_, device)| device.is_local()).map(|(block, _)| block.index);
        layout::enclosing_box(own.collect(), shape.len()).map_err(|blocks| {
            let text = blocks.iter().take(4).map(|b| format!("{b:?}")).collect::<Vec<_>>().join(", ");
            let more = if blocks.len() > 4 { ", …" } else { "" };
            fault!(Sharding, "the blocks of this process do not form a box: {text}{more}")
                .help("assemble it block by block: `Array::from_fn` or `Array::from_shards`")
                .help("or shard each dimension over axes whose devices are neighbours in the mesh")
        })
    }
    /// Returns true if both shardings place every block of an array on the same devices.
    ///
    /// The devices must be the same, in the same order. The names of axes, and how the axes
    /// factorize the devices, do not matter, and neither do axes of size 1 and reduced axes.
    /// Unreduced axes do matter.
    pub fn is_equivalent(&self, other: &Sharding) -> bool {
        let rank = self.spec.dims().len().max(other.spec.dims().len());
        let placements = |s: &Sharding| {
            let unreduced = s.spec.in_order(&s.mesh).unreduced_axes().iter();
            (sub_axes::from_spec(&s.mesh, s.spec.padded(rank)), sub_axes::from_axes(&s.mesh, unreduced))
        };
        let same_devices =
            self.mesh.size() == other.mesh.size() && self.mesh.devices() == other.mesh.devices();
        same_devices && placements(self) == placements(other)
    }
    /// Returns the number of shards that the axes make, which is never 0.
    /// The product saturates, since the fields are public and may name one axis repeatedly.
    fn num_shards(&self, axes: impl Iterator<Item = Axis>) -> usize {
        axes.fold(1, |n: usize, a| n.saturating_mul(self.mesh.extent(a)))
    }
}
impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.spec, self.mesh)
    }
}
debug_as_display! { [] Sharding }

impl Spec {
    /// Returns this spec with its unreduced and reduced axes in the order of the mesh.
    pub fn in_order(self, mesh: &Mesh) -> Spec {
        self.with_sets(mesh.in_order(self.unreduced_axes()), mesh.in_order(self.reduced_axes()))
    }
}

/// Checks a spec against a mesh and a rank, and returns it in normal form.
///
/// Logical axes are replaced. Axes must be in the mesh, of the given types, and used once; there
/// may be at most `rank` entries. The result has an entry for each dimension and its sets in mesh
/// order.
pub fn check_spec(mesh: &Mesh, spec: Spec, rank: usize, types: &[AxisType]) -> Result<Spec, Fault> {
    let given = spec;
    let spec = mesh.try_resolve(given, AxisRules::Compute)?;
    let mut seen: Vec<Axis> = Vec::new();
    for axis in spec.all_axes() {
        if axis.name() == Spec::OPEN {
            return Err(fault!(Mesh, "the spec {spec} leaves a dimension open, which only a constraint may")
                .help("say how it is split, `_` where it is not")
                .help("or, over auto axes, constrain the value: `.constrain(p![…])`"));
        }
        let Some(ty) = mesh.axis_type(axis) else { return Err(mesh.unknown_axis(axis)) };
        if !types.contains(&ty) {
            let word = format!("{ty:?}").to_lowercase();
            let fault = fault!(Mesh, "the spec {spec} names {axis}, which is {word} in {mesh}");
            return Err(match ty {
                AxisType::Auto => {
                    fault.help(format!("over auto axes ask for it: `.constrain({spec})`")).help(format!(
                        "or make {axis} explicit: by `Mesh::new`, or `explicit_axes` around this part"
                    ))
                }
                AxisType::Explicit => fault.help("over explicit axes values are moved: `.reshard(p![…])`"),
                AxisType::Manual => fault.help(
                    "over manual axes collectives move the devices' blocks: `all_gather`, `all_to_all`, …",
                ),
            });
        }
        if seen.contains(&axis) {
            return Err(fault!(Mesh, "the spec {spec} names the axis {axis} twice")
                .help("an axis shards one dimension or is in one set: name it once"));
        }
        seen.push(axis);
    }
    check_rank(given, rank)?;
    Ok(spec.padded(rank).in_order(mesh))
}

/// Rephrases a fault in a spec as a fault in the sharding requested for a result of this rank.
pub(crate) fn for_result(fault: Fault, spec: Spec, rank: usize) -> Fault {
    if fault.kind != ErrorKind::Shape {
        return fault;
    }
    let entries = spec.dims().len();
    let why = match entries > rank {
        true => format!("it has rank {rank}, and there are {}", pluralize(entries, "entry")),
        false => fault.message,
    };
    Fault { message: format!("the result is asked to be sharded as {spec}, but {why}"), ..fault }
}

/// Returns the spec with an entry for each dimension; an error if it has too many entries.
fn check_rank(spec: Spec, rank: usize) -> Result<Spec, Fault> {
    let entries = spec.dims().len();
    if entries > rank {
        return Err(fault!(
            Shape,
            "the spec {spec} has entries for {}, but the array has {rank}",
            pluralize(entries, "dimension")
        )
        .help("each entry is for one dimension; dimensions without an entry are unsharded"));
    }
    Ok(spec.padded(rank))
}

/// Returns an error if a spec is unreduced and partial values of the type (bool, key) have no sum.
pub fn check_unreduced_dtype(spec: Spec, dtype: DType) -> Result<(), Fault> {
    if spec.unreduced_axes().is_empty() || dtype.is_number() {
        return Ok(());
    }
    let message = format!(
        "{spec} asks for partial values whose sum is the value, but values of type {dtype} cannot be added"
    );
    let fault = Fault::new(ErrorKind::Sharding, message);
    Err(match dtype {
        DType::Bool => fault.help("convert it first: `x.astype(I32)`"),
        _ => fault,
    })
}

/// Checks that each dimension is divisible by its axes.
pub fn check_divides(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<(), Fault> {
    for (d, (axes, &n)) in spec.dims().iter().zip(shape).enumerate() {
        let num_shards: usize = axes.iter().map(|a| mesh.extent(a)).product();
        if n % num_shards != 0 && axes.iter().any(|a| mesh.axis_type(a) != Some(AxisType::Auto)) {
            let fault = indivisible(spec, d, n, num_shards);
            let manual = axes.iter().any(|a| mesh.axis_type(a) == Some(AxisType::Manual));
            return Err(match manual {
                // per-device code has equal blocks, whatever the type of the axis outside of it
                true => fault,
                false => fault.help("or make the axis auto: over auto axes a dimension need not divide"),
            });
        }
    }
    Ok(())
}

/// Returns the fault for a dimension of size `n` that is not divisible by its axes.
fn indivisible(spec: Spec, d: usize, n: usize, num_shards: usize) -> Fault {
    let message = format!(
        "dimension {d} has size {n}, which {} does not divide into {num_shards} equal parts",
        spec.dims()[d]
    );
    Fault::new(ErrorKind::Shape, message).help(nearest_multiples(n, num_shards)).highlight_dim(0, d)
}

/// Returns a help text with the sizes nearest to `n` that are divisible.
pub(crate) fn nearest_multiples(n: usize, num_shards: usize) -> String {
    let (below, above) = (n / num_shards * num_shards, n.div_ceil(num_shards).saturating_mul(num_shards));
    let nearest = if below == 0 { format!("{above}") } else { format!("{below} and {above}") };
    format!("the nearest multiples of {num_shards}: {nearest}")
}
