//! Partition specs, shardings, and which device holds what.

pub mod atoms;
mod layout;
mod parse;

pub use crate::axes::Spec;
pub use atoms::{Atom, Atoms};
pub(crate) use layout::blocks_of;
pub use layout::{Block, blocks};

use crate::diagnostic::{Error, ErrorKind, Fault, Result, counted};
use crate::elements::{DType, Shape};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use std::fmt;
use std::panic::Location;

/// The placement of an array: a mesh, and a spec over its axes, explicit and auto ones.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Sharding {
    /// The devices and their axes.
    pub mesh: Mesh,
    /// An entry for each dimension, and the unreduced and reduced sets.
    pub spec: Spec,
}

impl Sharding {
    /// The sharding of an array of this shape: rank, names, repetitions and divisibility are checked.
    ///
    /// Dimensions beyond the spec's entries are unsharded. A dimension that is sharded over an explicit or manual axis must be divisible;
    /// one that is split over auto axes alone need not.
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
        let place = Location::caller();
        Sharding::checked(mesh, spec, shape).map_err(|f| Error::at(f, "sharding", Vec::new(), Some(place)))
    }
    /// The same for whoever knows who asks.
    pub(crate) fn checked(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<Sharding, Fault> {
        let spec = check_spec(mesh, spec, shape.len(), &[AxisType::Explicit, AxisType::Auto])?;
        check_divides(mesh, spec, shape)?;
        Ok(Sharding { mesh: mesh.clone(), spec })
    }
    /// The explicit part of it, as types print it.
    pub fn explicit(&self) -> Spec {
        self.spec.only(|a| self.mesh.axis_type(a) == Some(AxisType::Explicit))
    }
    /// Whether every device holds all of it.
    pub fn is_replicated(&self) -> bool {
        self.ways(self.spec.dims().iter().flat_map(Axes::iter)) == 1
            && self.ways(self.spec.unreduced_axes().iter()) == 1
    }
    /// The shape that every device holds of an array of this shape. Refused where a dimension does not divide, even over auto axes alone:
    /// devices then hold [`blocks`] of several shapes.
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
        let place = Location::caller();
        self.part_of(shape).map_err(|f| Error::at(f, "shard_shape", Vec::new(), Some(place)))
    }
    fn part_of(&self, shape: &[usize]) -> Result<Shape, Fault> {
        let spec = check_rank(self.spec, shape.len())?;
        let ways = spec.dims().iter().map(|axes| self.ways(axes.iter()));
        let parts = shape.iter().zip(ways).enumerate().map(|(d, (&n, ways))| match n % ways {
            0 => Ok(n / ways),
            _ => Err(indivisible(spec, d, n, ways)),
        });
        parts.collect()
    }
    /// Whether both put every part of an array on the same devices, however axes are named and cut: the devices must be the
    /// same in the same order; axes of size 1 and reduced axes do not matter, unreduced axes do.
    pub fn is_equivalent(&self, other: &Sharding) -> bool {
        let rank = self.spec.dims().len().max(other.spec.dims().len());
        let places = |s: &Sharding| {
            let unreduced = s.spec.in_order(&s.mesh).unreduced_axes().iter();
            (atoms::of_spec(&s.mesh, s.spec.padded(rank)), atoms::of_axes(&s.mesh, unreduced))
        };
        let same_devices =
            self.mesh.size() == other.mesh.size() && self.mesh.devices() == other.mesh.devices();
        same_devices && places(self) == places(other)
    }
    /// In how many ways the axes split, never 0: the fields are public, so they may name one axis again and again.
    fn ways(&self, axes: impl Iterator<Item = Axis>) -> usize {
        axes.fold(1, |n: usize, a| n.saturating_mul(self.mesh.extent(a)))
    }
}
impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.spec, self.mesh)
    }
}
impl fmt::Debug for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Spec {
    /// With its two sets in the mesh's order.
    pub fn in_order(self, mesh: &Mesh) -> Spec {
        self.with_sets(mesh.in_order(self.unreduced_axes()), mesh.in_order(self.reduced_axes()))
    }
}

/// Checks a spec against a mesh and a rank: known axes of the kinds allowed, none twice, not too many entries. Returns it with an
/// entry for each dimension and its sets in mesh order.
pub fn check_spec(mesh: &Mesh, spec: Spec, rank: usize, kinds: &[AxisType]) -> Result<Spec, Fault> {
    let mut seen: Vec<Axis> = Vec::new();
    for axis in spec.all_axes() {
        if axis.name() == Spec::OPEN {
            let message = format!("the spec {spec} leaves a dimension open, which only a constraint may");
            return Err(Fault::new(ErrorKind::Mesh, message)
                .help("say how it is split, `_` where it is not")
                .help("or, over auto axes, constrain the value: `.constrain(p![…])`"));
        }
        let Some(ty) = mesh.axis_type(axis) else { return Err(mesh.unknown(axis)) };
        if !kinds.contains(&ty) {
            let word = format!("{ty:?}").to_lowercase();
            let fault = Fault::new(
                ErrorKind::Mesh,
                format!("the spec {spec} names {axis}, which is {word} in {mesh}"),
            );
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
            return Err(Fault::new(ErrorKind::Mesh, format!("the spec {spec} names the axis {axis} twice"))
                .help("an axis shards one dimension or is in one set: name it once"));
        }
        seen.push(axis);
    }
    Ok(check_rank(spec, rank)?.in_order(mesh))
}

/// The refusal of a spec as one of what is asked of a result of this rank.
pub(crate) fn of_result(fault: Fault, spec: Spec, rank: usize) -> Fault {
    if fault.kind != ErrorKind::Shape {
        return fault;
    }
    let entries = spec.dims().len();
    let why = match entries > rank {
        true => format!("it has rank {rank}, and there are {}", counted(entries, "entry")),
        false => fault.message,
    };
    Fault { message: format!("the result is asked to be sharded as {spec}, but {why}"), ..fault }
}

/// The spec with an entry for each dimension, if it has not more.
fn check_rank(spec: Spec, rank: usize) -> Result<Spec, Fault> {
    let entries = spec.dims().len();
    if entries > rank {
        return Err(Fault::new(
            ErrorKind::Shape,
            format!(
                "the spec {spec} has entries for {}, but the array has {rank}",
                counted(entries, "dimension")
            ),
        )
        .help("each entry is for one dimension; dimensions without an entry are unsharded"));
    }
    Ok(spec.padded(rank))
}

/// Checks that what is to be unreduced can be added up: the parts of a bool or of a key cannot.
pub fn check_parts(spec: Spec, dtype: DType) -> Result<(), Fault> {
    if spec.unreduced_axes().is_empty() || dtype.is_number() {
        return Ok(());
    }
    let message = format!("{spec} asks for parts whose sum is the value, and {dtype} is not added up");
    let fault = Fault::new(ErrorKind::Sharding, message);
    Err(match dtype {
        DType::Bool => fault.help("convert it first: `x.astype(I32)`"),
        _ => fault,
    })
}

/// Checks that each dimension divides as its axes ask.
pub fn check_divides(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<(), Fault> {
    for (d, (axes, &n)) in spec.dims().iter().zip(shape).enumerate() {
        let ways: usize = axes.iter().map(|a| mesh.extent(a)).product();
        if n % ways != 0 && axes.iter().any(|a| mesh.axis_type(a) != Some(AxisType::Auto)) {
            let fault = indivisible(spec, d, n, ways);
            return Err(fault.help("or make the axis auto: over auto axes a dimension need not divide"));
        }
    }
    Ok(())
}

/// A dimension of size `n` does not divide into as many parts as its axes ask.
fn indivisible(spec: Spec, d: usize, n: usize, ways: usize) -> Fault {
    let message = format!(
        "dimension {d} has size {n}, which {} does not divide into {ways} equal parts",
        spec.dims()[d]
    );
    Fault::new(ErrorKind::Shape, message).help(nearest_multiples(n, ways)).dim(0, d)
}

/// The sizes next to `n` that divide into this many parts, as a help says them.
pub(crate) fn nearest_multiples(n: usize, ways: usize) -> String {
    let (below, above) = (n / ways * ways, n.div_ceil(ways).saturating_mul(ways));
    let nearest = if below == 0 { format!("{above}") } else { format!("{below} and {above}") };
    format!("the nearest multiples of {ways}: {nearest}")
}
