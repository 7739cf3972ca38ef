//! Meshes of devices with named axes.
//!
//! ```
//! use atmesh::mesh::{Axis, Mesh};
//! let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
//! assert_eq!((mesh.size(), mesh.axis_names()), (8, &["X", "Y"].map(Axis::from)[..]));
//! # Ok::<(), atmesh::Error>(())
//! ```

mod device;
mod logical;

pub use crate::core::axes::{Axes, Axis, AxisType};
use device::check_mesh_devices;
pub(crate) use device::{
    ClusterDevices, MAX_DEVICES, check_no_mesh, default_device, first_devices, set_cluster_devices,
};
pub use device::{DeviceId, devices};
pub(crate) use logical::AxisRules;

use crate::core::diagnostic::{Error, ErrorKind, Fault, Result, SourceLocation};
use crate::core::{axes::Spec, util::small_sort};
use smallvec::SmallVec;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A grid of devices with named axes: a cheap handle, `Send + Sync`.
///
/// Device `i` of a mesh is the i-th in row-major order of its axes. Meshes are equal if their axes,
/// sizes, types and devices are. A mesh without devices ([`Mesh::without_devices`]) can be used in
/// types and plans, but not to run programs.
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
pub struct Mesh(Arc<MeshData>);

#[derive(Clone, PartialEq, Eq)]
struct MeshData {
    /// The names of the axes, major first.
    names: Vec<Axis>,
    /// The sizes of the axes.
    sizes: Vec<usize>,
    /// The types of the axes.
    types: Vec<AxisType>,
    /// The devices in mesh order; `None` for an abstract mesh.
    devices: Option<Vec<DeviceId>>,
    /// The logical axes; `None` for a mesh without.
    logical: Option<Box<logical::LogicalAxes>>,
}

/// The devices of a mesh under construction.
enum DeviceChoice<'a> {
    /// No devices: the mesh is abstract.
    Abstract,
    /// The first devices of the process.
    First,
    /// The given devices, in this order.
    Listed(&'a [DeviceId]),
}

impl Mesh {
    /// Creates a mesh over the first devices of the process, with explicit axes.
    /// Devices are created on demand.
    #[doc(alias("init_device_mesh", "mesh_dim_names", "DeviceMesh"))]
    #[track_caller]
    pub fn new<A: Into<Axis>>(axes: impl IntoIterator<Item = (A, usize)>) -> Result<Mesh> {
        Mesh::with_types(axes.into_iter().map(|(a, n)| (a, n, AxisType::Explicit)))
    }
    /// Creates a mesh over the first devices of the process, with auto axes.
    #[track_caller]
    pub fn auto<A: Into<Axis>>(axes: impl IntoIterator<Item = (A, usize)>) -> Result<Mesh> {
        Mesh::with_types(axes.into_iter().map(|(a, n)| (a, n, AxisType::Auto)))
    }
    /// Creates a mesh over the first devices of the process, with a type for each axis.
    #[track_caller]
    pub fn with_types<A: Into<Axis>>(axes: impl IntoIterator<Item = (A, usize, AxisType)>) -> Result<Mesh> {
        Mesh::build(axes.into_iter().map(|(a, n, t)| (a.into(), n, t)).collect(), DeviceChoice::First)
    }
    /// Creates a mesh over these devices, in this order, with explicit axes.
    #[track_caller]
    pub fn of_devices<A: Into<Axis>>(
        devices: &[DeviceId],
        axes: impl IntoIterator<Item = (A, usize)>,
    ) -> Result<Mesh> {
        let axes = axes.into_iter().map(|(a, n)| (a.into(), n, AxisType::Explicit)).collect();
        Mesh::build(axes, DeviceChoice::Listed(devices))
    }
    /// Creates an abstract mesh, for types and plans: any size, no devices, explicit axes.
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
        Mesh::build(
            axes.into_iter().map(|(a, n)| (a.into(), n, AxisType::Explicit)).collect(),
            DeviceChoice::Abstract,
        )
    }
    #[track_caller]
    fn build(axes: Vec<(Axis, usize, AxisType)>, on: DeviceChoice<'_>) -> Result<Mesh> {
        let location = Location::caller();
        let made = Mesh::try_build(axes, on).and_then(|mesh| {
            // an abstract mesh may have any size
            let devices = mesh.0.devices.as_ref().map_or(Ok(()), |list| check_mesh_devices(list, location));
            devices.map(|()| mesh)
        });
        made.map_err(|fault| Error::new(fault, "mesh", Vec::new(), Some(location)))
    }
    fn try_build(axes: Vec<(Axis, usize, AxisType)>, on: DeviceChoice<'_>) -> Result<Mesh, Fault> {
        let fault = |m: String| Fault::new(ErrorKind::Mesh, m);
        for (i, (axis, size, _)) in axes.iter().enumerate() {
            check_name(*axis, "an axis")?;
            if *size == 0 {
                return Err(fault(format!("axis {axis} has size 0"))
                    .help("an axis has at least one device: leave it out, or give it size 1"));
            }
            if axes[..i].iter().any(|b| b.0 == *axis) {
                return Err(fault(format!("axis {axis} appears twice")).help("each axis needs its own name"));
            }
        }
        let sizes = || axes.iter().map(|a| format!("{}: {}", a.0, a.1)).collect::<Vec<_>>().join(", ");
        let Some(n) = axes.iter().try_fold(1_usize, |n, a| n.checked_mul(a.1)) else {
            return Err(fault(format!("the axes {} make more devices than can be counted", sizes())));
        };
        let devices = match on {
            DeviceChoice::Abstract => None,
            DeviceChoice::First if n > MAX_DEVICES => {
                return Err(fault(format!(
                    "the axes {} make {n} devices, but a process has at most {MAX_DEVICES}",
                    sizes()
                ))
                .help("`Mesh::without_devices` serves for types and plans on any number of devices"));
            }
            DeviceChoice::First => Some(first_devices(n)),
            DeviceChoice::Listed(d) if d.len() != n => {
                return Err(fault(format!(
                    "the axes {} make {n} devices, but {} are given",
                    sizes(),
                    d.len()
                ))
                .help(format!("give {n} devices, or sizes whose product is {}", d.len())));
            }
            DeviceChoice::Listed(d) => {
                let mut seen = std::collections::HashSet::new();
                if let Some(twice) = d.iter().find(|d| !seen.insert(**d)) {
                    return Err(
                        fault(format!("{twice} appears twice")).help("a device has one position in a mesh")
                    );
                }
                Some(d.to_vec())
            }
        };
        Ok(Mesh(Arc::new(MeshData {
            names: axes.iter().map(|a| a.0).collect(),
            sizes: axes.iter().map(|a| a.1).collect(),
            types: axes.iter().map(|a| a.2).collect(),
            devices,
            logical: None,
        })))
    }
    /// Returns this mesh with `axes` changed to type `to`.
    #[doc(alias = "axis_types")]
    pub fn with_axis_types(&self, axes: impl Into<Axes>, to: AxisType) -> Result<Mesh> {
        let mut types = self.0.types.clone();
        for axis in axes.into().iter() {
            types[self.position(axis)?] = to;
        }
        Ok(Mesh(Arc::new(MeshData { types, ..(*self.0).clone() })))
    }
    /// Returns this mesh with these axes changed to auto.
    pub fn with_auto(&self, axes: impl Into<Axes>) -> Result<Mesh> {
        self.with_axis_types(axes, AxisType::Auto)
    }
    /// Returns the number of devices.
    pub fn size(&self) -> usize {
        self.0.sizes.iter().product()
    }
    /// Returns the names of the axes, major first.
    pub fn axis_names(&self) -> &[Axis] {
        &self.0.names
    }
    /// Returns the sizes of the axes, major first.
    pub fn axis_sizes(&self) -> &[usize] {
        &self.0.sizes
    }
    /// Returns the types of the axes, major first.
    pub fn axis_types(&self) -> &[AxisType] {
        &self.0.types
    }
    /// Returns the index of an axis.
    /// If the mesh has no such axis, the error lists the axes of the mesh.
    #[track_caller]
    pub fn position(&self, axis: impl Into<Axis>) -> Result<usize> {
        self.known_position("position", axis.into(), Location::caller())
    }
    /// Returns the index of an axis; `None` if the mesh has no such axis.
    pub fn find(&self, axis: Axis) -> Option<usize> {
        self.0.names.iter().position(|a| *a == axis)
    }
    /// Returns the error for an axis that is not in this mesh.
    pub(crate) fn unknown_axis(&self, axis: Axis) -> Fault {
        self.unknown_name(axis.name())
    }
    /// Returns the error for a name that is not an axis of this mesh.
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
        let fault = fault!(Mesh, "{axis} is not an axis of the mesh {self}").help(help);
        match self.describe_logical(axis) {
            Some(help) => fault.help(help),
            None => fault,
        }
    }
    /// Returns the size of an axis.
    /// If the mesh has no such axis, the error lists the axes of the mesh.
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
        self.known_position("axis_size", axis.into(), Location::caller()).map(|i| self.0.sizes[i])
    }
    /// Returns the stride of an axis: the distance in device positions between neighbours along it.
    ///
    /// It is the product of the sizes of the axes after it. Returns an error if the mesh has no
    /// such axis.
    #[track_caller]
    pub fn stride(&self, axis: impl Into<Axis>) -> Result<usize> {
        self.known_position("stride", axis.into(), Location::caller())
            .map(|i| self.0.sizes[i + 1..].iter().product())
    }
    fn known_position(&self, op: &str, axis: Axis, location: SourceLocation) -> Result<usize> {
        self.find(axis).ok_or_else(|| Error::new(self.unknown_axis(axis), op, Vec::new(), Some(location)))
    }
    /// Returns the size of an axis that is known to be in this mesh.
    /// Returns 1 for any other axis, such as one of an enclosing region's mesh.
    pub(crate) fn extent(&self, axis: Axis) -> usize {
        self.find(axis).map_or(1, |i| self.0.sizes[i])
    }
    /// Returns the type of an axis; `None` if the mesh has no such axis.
    pub fn axis_type(&self, axis: Axis) -> Option<AxisType> {
        self.find(axis).map(|i| self.0.types[i])
    }
    /// Returns the axes of this type, major first.
    pub fn axes_of(&self, ty: AxisType) -> Vec<Axis> {
        self.0.names.iter().zip(&self.0.types).filter(|(_, t)| **t == ty).map(|(a, _)| *a).collect()
    }
    /// Returns the stride of an axis that is known to be in this mesh.
    pub(crate) fn stride_of(&self, axis: Axis) -> usize {
        self.find(axis).map_or(1, |i| self.0.sizes[i + 1..].iter().product())
    }
    /// Returns these axes in the mesh's order, each once.
    pub(crate) fn in_order(&self, axes: impl IntoIterator<Item = Axis>) -> Axes {
        let mut axes: SmallVec<[Axis; 4]> = axes.into_iter().collect();
        small_sort::sort_by_key(&mut axes, |a| self.find(*a));
        axes.dedup();
        axes.into_iter().collect()
    }
    /// Returns the devices in order; empty for an abstract mesh.
    pub fn devices(&self) -> &[DeviceId] {
        self.0.devices.as_deref().unwrap_or(&[])
    }
    /// Returns the devices that this process owns, in order; all of them if there is one process.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    /// assert_eq!(mesh.local_devices(), mesh.devices());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "local_mesh")]
    pub fn local_devices(&self) -> Vec<DeviceId> {
        self.devices().iter().copied().filter(|device| device.is_local()).collect()
    }
    /// Returns the number of processes that own devices of the mesh; 0 for an abstract mesh.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Mesh::new([("X", 2), ("Y", 4)])?.processes(), 1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn processes(&self) -> usize {
        // devices are numbered process by process
        self.devices().last().map_or(0, |device| device.process() + 1)
    }
    /// Returns true if the mesh has no devices.
    pub fn is_abstract(&self) -> bool {
        self.0.devices.is_none()
    }
    /// Returns the row-major index of `coordinates` along `axes`, the first axis major.
    /// An axis that the mesh does not have counts as an axis of size 1.
    pub(crate) fn rank_along(&self, axes: impl IntoIterator<Item = Axis>, coordinates: &[usize]) -> usize {
        // saturates only for a `Sharding` built by hand: checked axes stay below the product of the
        // sizes
        let next =
            |rank: usize, k: usize| rank.saturating_mul(self.0.sizes[k]).saturating_add(coordinates[k]);
        axes.into_iter().filter_map(|a| self.find(a)).fold(0, next)
    }
    /// Returns the coordinates of the device at `position`, one for each axis.
    pub fn coordinates(&self, position: usize) -> Vec<usize> {
        let mut rest = position;
        let mut c: Vec<_> = self.0.sizes.iter().rev().map(|n| (rest % n, rest /= n).0).collect();
        c.reverse();
        c
    }
}
impl AsRef<Mesh> for Mesh {
    fn as_ref(&self) -> &Mesh {
        self
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
        self.0.types.hash(state);
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
        if let Some(logical) = &self.0.logical {
            (logical.write)(logical, f)?;
        }
        write!(f, ")")
    }
}
debug_as_display! { [] Mesh }

/// Returns an error if a name cannot be printed in a type or spec and be parsed back.
/// `what` says what it names: an axis.
fn check_name(name: Axis, what: &str) -> Result<(), Fault> {
    if name.name().is_empty() || name.name().contains(|c: char| !Axis::is_valid_char(c)) {
        let help = "a name is not empty, and has no blanks, quotes and brackets, and none of `@`, \
                    `,`, `:` and `\\`";
        return Err(fault!(Mesh, "{:?} is not a name for {what}", name.name()).help(help));
    }
    if name.name() == Spec::OPEN {
        return Err(fault!(
            Mesh,
            "\"?\" is not a name for {what}: in a constraint it leaves a dimension open"
        )
        .help("give it another name"));
    }
    Ok(())
}
