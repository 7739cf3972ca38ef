//! Devices, meshes and their axes.

mod device;

pub use crate::axes::{Axes, Axis, AxisType};
pub use device::{DeviceId, devices};
pub(crate) use device::{MOST_DEVICES, first};

use crate::axes::Spec;
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::sorted;
use smallvec::SmallVec;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A grid of devices with named axes: a cheap handle, `Send + Sync`.
///
/// Device `i` of a mesh is the i-th in row-major order of its axes. Meshes are equal when axes, sizes,
/// types and devices are. A mesh without devices ([`Mesh::without_devices`]) serves for types and plans.
///
#[cfg_attr(doc, doc = picture!("mesh"))]
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2), ("Y", 4)])?; // explicit axes: shardings over them are in types
/// assert_eq!((mesh.size(), mesh.axis_size("Y")?), (8, 4));
/// let data = Mesh::auto([("data", 8)])?; // auto axes: shardings over them propagate
/// assert_eq!(type_of(&Array::ones([16]).put(&data, p!["data"])), "float32[16]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone)]
pub struct Mesh(Arc<Inner>);

#[derive(PartialEq, Eq, Hash)]
struct Inner {
    names: Vec<Axis>,
    sizes: Vec<usize>,
    types: Vec<AxisType>,
    devices: Option<Vec<DeviceId>>,
}

/// The devices of a mesh to be built.
enum On<'a> {
    Nothing,
    First,
    These(&'a [DeviceId]),
}

impl Mesh {
    /// A mesh over the first devices of the process (made on demand), all axes explicit.
    #[track_caller]
    pub fn new<A: Into<Axis>>(axes: impl IntoIterator<Item = (A, usize)>) -> Result<Mesh> {
        Mesh::with_types(axes.into_iter().map(|(a, n)| (a, n, AxisType::Explicit)))
    }
    /// The same, all axes auto.
    #[track_caller]
    pub fn auto<A: Into<Axis>>(axes: impl IntoIterator<Item = (A, usize)>) -> Result<Mesh> {
        Mesh::with_types(axes.into_iter().map(|(a, n)| (a, n, AxisType::Auto)))
    }
    /// The same, each axis of its own type.
    #[track_caller]
    pub fn with_types<A: Into<Axis>>(axes: impl IntoIterator<Item = (A, usize, AxisType)>) -> Result<Mesh> {
        Mesh::build(axes.into_iter().map(|(a, n, t)| (a.into(), n, t)).collect(), On::First)
    }
    /// A mesh over these devices in this order, all axes explicit.
    #[track_caller]
    pub fn of_devices<A: Into<Axis>>(
        devices: &[DeviceId],
        axes: impl IntoIterator<Item = (A, usize)>,
    ) -> Result<Mesh> {
        let axes = axes.into_iter().map(|(a, n)| (a.into(), n, AxisType::Explicit)).collect();
        Mesh::build(axes, On::These(devices))
    }
    /// A mesh on no devices, of any size, for types and plans: all axes explicit.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("X", 1 << 16)])?;
    /// assert!(mesh.is_abstract() && mesh.devices().is_empty());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "AbstractMesh")]
    #[track_caller]
    pub fn without_devices<A: Into<Axis>>(axes: impl IntoIterator<Item = (A, usize)>) -> Result<Mesh> {
        Mesh::build(axes.into_iter().map(|(a, n)| (a.into(), n, AxisType::Explicit)).collect(), On::Nothing)
    }
    #[track_caller]
    fn build(axes: Vec<(Axis, usize, AxisType)>, on: On<'_>) -> Result<Mesh> {
        let place = Location::caller();
        Mesh::checked(axes, on).map_err(|fault| Error::at(fault, "mesh", Vec::new(), Some(place)))
    }
    fn checked(axes: Vec<(Axis, usize, AxisType)>, on: On<'_>) -> Result<Mesh, Fault> {
        let fault = |m: String| Fault::new(ErrorKind::Mesh, m);
        for (i, (axis, size, _)) in axes.iter().enumerate() {
            // what types print reads back
            if axis.name().is_empty() || axis.name().contains(|c: char| !Axis::names_with(c)) {
                return Err(fault(format!("{:?} is not a name for an axis", axis.name()))
                    .help("a name is not empty, and has no blanks and none of `@`, `,`, `:` and brackets"));
            }
            if axis.name() == Spec::OPEN {
                let message = "\"?\" is not a name for an axis: in a constraint it leaves a dimension open";
                return Err(fault(message.into()).help("give it another name"));
            }
            if *size == 0 {
                return Err(fault(format!("axis {axis} has size 0"))
                    .help("an axis has at least one device: leave it out, or give it size 1"));
            }
            if axes[..i].iter().any(|b| b.0 == *axis) {
                return Err(
                    fault(format!("axis {axis} appears twice")).help("each axis needs a name of its own")
                );
            }
        }
        let sizes = || axes.iter().map(|a| format!("{}: {}", a.0, a.1)).collect::<Vec<_>>().join(", ");
        let Some(n) = axes.iter().try_fold(1_usize, |n, a| n.checked_mul(a.1)) else {
            return Err(fault(format!("the axes {} make more devices than can be counted", sizes())));
        };
        let devices = match on {
            On::Nothing => None,
            On::First if n > MOST_DEVICES => {
                return Err(fault(format!(
                    "the axes {} make {n} devices, but a process has at most {MOST_DEVICES}",
                    sizes()
                ))
                .help("`Mesh::without_devices` serves for types and plans on any number of devices"));
            }
            On::First => Some(first(n)),
            On::These(d) if d.len() != n => {
                return Err(fault(format!(
                    "the axes {} make {n} devices, but {} are given",
                    sizes(),
                    d.len()
                ))
                .help(format!("give {n} devices, or sizes whose product is {}", d.len())));
            }
            On::These(d) => {
                let mut seen = std::collections::HashSet::new();
                if let Some(twice) = d.iter().find(|d| !seen.insert(**d)) {
                    return Err(
                        fault(format!("{twice} appears twice")).help("a device has one place in a mesh")
                    );
                }
                Some(d.to_vec())
            }
        };
        Ok(Mesh(Arc::new(Inner {
            names: axes.iter().map(|a| a.0).collect(),
            sizes: axes.iter().map(|a| a.1).collect(),
            types: axes.iter().map(|a| a.2).collect(),
            devices,
        })))
    }
    /// The same mesh with `axes` of type `to`.
    pub fn retyped(&self, axes: impl Into<Axes>, to: AxisType) -> Result<Mesh> {
        let mut types = self.0.types.clone();
        for axis in axes.into().iter() {
            types[self.position(axis)?] = to;
        }
        let (names, sizes, devices) = (self.0.names.clone(), self.0.sizes.clone(), self.0.devices.clone());
        Ok(Mesh(Arc::new(Inner { names, sizes, types, devices })))
    }
    /// The same devices with these axes auto.
    pub fn with_auto(&self, axes: impl Into<Axes>) -> Result<Mesh> {
        self.retyped(axes, AxisType::Auto)
    }
    /// How many devices it has.
    pub fn size(&self) -> usize {
        self.0.sizes.iter().product()
    }
    /// The axes' names, major first.
    pub fn axis_names(&self) -> &[Axis] {
        &self.0.names
    }
    /// The axes' sizes, major first.
    pub fn axis_sizes(&self) -> &[usize] {
        &self.0.sizes
    }
    /// The axes' types, major first.
    pub fn axis_types(&self) -> &[AxisType] {
        &self.0.types
    }
    /// The position of the axis; an error that lists the mesh's axes if the mesh has no such axis.
    #[track_caller]
    pub fn position(&self, axis: impl Into<Axis>) -> Result<usize> {
        self.known("position", axis.into(), Location::caller())
    }
    /// The position of the axis, if it is an axis of this mesh.
    pub fn find(&self, axis: Axis) -> Option<usize> {
        self.0.names.iter().position(|a| *a == axis)
    }
    /// The error for an axis that is not in this mesh.
    pub(crate) fn unknown(&self, axis: Axis) -> Fault {
        self.unknown_name(axis.name())
    }
    /// The same of a name in text.
    pub(crate) fn unknown_name(&self, axis: &str) -> Fault {
        let names: Vec<_> = self.0.names.iter().map(|a| a.to_string()).collect();
        let help = match names.as_slice() {
            [] => "it has no axes".to_string(),
            [one] => format!("its only axis is {one}"),
            many => format!("its axes are {}", many.join(", ")),
        };
        let help = match names.iter().find(|n| n.eq_ignore_ascii_case(axis)) {
            Some(near) => format!("{help}: write {near}"),
            None => help,
        };
        Fault::new(ErrorKind::Mesh, format!("{axis} is not an axis of the mesh {self}")).help(help)
    }
    /// The size of an axis; an error that lists the mesh's axes where it is none of them.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    /// assert_eq!((mesh.axis_size("X")?, mesh.stride("X")?), (2, 4));
    /// assert!(mesh.axis_size("Z").is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn axis_size(&self, axis: impl Into<Axis>) -> Result<usize> {
        self.known("axis_size", axis.into(), Location::caller()).map(|i| self.0.sizes[i])
    }
    /// The distance in device positions between neighbours along the axis, the product of the sizes after it; an error where the mesh
    /// lacks the axis.
    #[track_caller]
    pub fn stride(&self, axis: impl Into<Axis>) -> Result<usize> {
        self.known("stride", axis.into(), Location::caller()).map(|i| self.0.sizes[i + 1..].iter().product())
    }
    fn known(&self, op: &str, axis: Axis, place: Place) -> Result<usize> {
        self.find(axis).ok_or_else(|| Error::at(self.unknown(axis), op, Vec::new(), Some(place)))
    }
    /// The size of an axis that was checked to be this mesh's; 1 for one that it lacks, as of a mesh of another region.
    pub(crate) fn extent(&self, axis: Axis) -> usize {
        self.find(axis).map_or(1, |i| self.0.sizes[i])
    }
    /// The type of an axis, if it is an axis of this mesh.
    pub fn axis_type(&self, axis: Axis) -> Option<AxisType> {
        self.find(axis).map(|i| self.0.types[i])
    }
    /// The axes of this type, major first.
    pub fn axes_of(&self, ty: AxisType) -> Vec<Axis> {
        self.0.names.iter().zip(&self.0.types).filter(|(_, t)| **t == ty).map(|(a, _)| *a).collect()
    }
    /// The stride of an axis that was checked.
    pub(crate) fn step(&self, axis: Axis) -> usize {
        self.find(axis).map_or(1, |i| self.0.sizes[i + 1..].iter().product())
    }
    /// These axes in the mesh's order, each once.
    pub(crate) fn in_order(&self, axes: impl IntoIterator<Item = Axis>) -> Axes {
        let mut axes: SmallVec<[Axis; 4]> = axes.into_iter().collect();
        sorted::sort_by_key(&mut axes, |a| self.find(*a));
        axes.dedup();
        axes.into_iter().collect()
    }
    /// Its devices in order; none for an abstract mesh.
    pub fn devices(&self) -> &[DeviceId] {
        self.0.devices.as_deref().unwrap_or(&[])
    }
    /// Whether it has no devices.
    pub fn is_abstract(&self) -> bool {
        self.0.devices.is_none()
    }
    /// Which of the combinations of these axes' coordinates a device with these `coordinates` has, the first axis major. An axis that
    /// the mesh lacks counts as one of size 1.
    pub(crate) fn rank_along(&self, axes: impl IntoIterator<Item = Axis>, coordinates: &[usize]) -> usize {
        // checked axes stay below the product of the sizes; those of a sharding made by hand, below what is counted
        let next =
            |rank: usize, k: usize| rank.saturating_mul(self.0.sizes[k]).saturating_add(coordinates[k]);
        axes.into_iter().filter_map(|a| self.find(a)).fold(0, next)
    }
    /// The coordinates along the axes of the device at `position`.
    pub fn coordinates(&self, position: usize) -> Vec<usize> {
        let mut rest = position;
        let mut c: Vec<_> = self.0.sizes.iter().rev().map(|n| (rest % n, rest /= n).0).collect();
        c.reverse();
        c
    }
}
impl PartialEq for Mesh {
    fn eq(&self, other: &Mesh) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}
impl Eq for Mesh {}
impl std::hash::Hash for Mesh {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.names.hash(state);
        self.0.sizes.hash(state);
    }
}
impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mesh(")?;
        for (i, ((a, n), t)) in self.0.names.iter().zip(&self.0.sizes).zip(&self.0.types).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            match t {
                AxisType::Explicit => write!(f, "{comma}{a}: {n}")?,
                AxisType::Auto => write!(f, "{comma}{a}: {n} auto")?,
                AxisType::Manual => write!(f, "{comma}{a}: {n} manual")?,
            }
        }
        write!(f, ")")
    }
}
impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
