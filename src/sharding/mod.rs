//! Partition specs, shardings, and which device holds what.

pub mod atoms;
mod layout;
mod spec;

pub use atoms::{Atom, Atoms};
pub use layout::{Block, blocks};
pub use spec::Spec;

use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use std::fmt;

/// Where the parts of an array lie: a mesh, and a spec over its axes (explicit and auto ones alike).
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
    /// Entries beyond the spec's are whole dimensions. A dimension that is split over any explicit or manual axis must divide;
    /// one that is split over auto axes alone need not.
    pub fn new(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<Sharding, Fault> {
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
        self.spec.dims().iter().all(Axes::is_empty) && self.spec.unreduced_axes().is_empty()
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

/// Checks a spec against a mesh and a rank: known axes of the kinds allowed, none twice, not too many entries. Returns it with an
/// entry for each dimension and its sets in mesh order.
pub fn check_spec(mesh: &Mesh, spec: Spec, rank: usize, kinds: &[AxisType]) -> Result<Spec, Fault> {
    if spec.dims().len() > rank {
        return Err(Fault::new(
            ErrorKind::Shape,
            format!("the spec {spec} has {} entries, but the array has {rank} dimensions", spec.dims().len()),
        ));
    }
    let mut seen: Vec<Axis> = Vec::new();
    for axis in spec.all_axes() {
        let Some(ty) = mesh.axis_type(axis) else { return Err(mesh.unknown(axis)) };
        if !kinds.contains(&ty) {
            let ty = format!("{ty:?}").to_lowercase();
            return Err(Fault::new(
                ErrorKind::Mesh,
                format!("the spec {spec} names {axis}, which is {ty} here"),
            ));
        }
        if seen.contains(&axis) {
            return Err(Fault::new(ErrorKind::Mesh, format!("the spec {spec} names the axis {axis} twice"))
                .help("an axis can split one dimension only: name it once"));
        }
        seen.push(axis);
    }
    Ok(spec.padded(rank).in_order(mesh))
}

/// Checks that each dimension divides as its axes ask.
pub fn check_divides(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<(), Fault> {
    for (d, (axes, &n)) in spec.dims().iter().zip(shape).enumerate() {
        let ways: usize = axes.iter().map(|a| mesh.axis_size(a)).product();
        if n % ways != 0 && axes.iter().any(|a| mesh.axis_type(a) != Some(AxisType::Auto)) {
            let (below, above) = (n / ways * ways, n.div_ceil(ways) * ways);
            let nearest = if below == 0 { format!("{above}") } else { format!("{below} and {above}") };
            return Err(Fault::new(
                ErrorKind::Shape,
                format!("dimension {d} has size {n}, which {axes} does not divide into {ways} equal parts"),
            )
            .help(format!("the nearest sizes that {ways} divides: {nearest}"))
            .help("or make the axis auto: over auto axes a dimension need not divide"));
        }
    }
    Ok(())
}
