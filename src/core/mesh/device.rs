//! The virtual devices of the process, and the devices of all processes.

use crate::core::diagnostic::{Error, Fault, Result, SourceLocation, pluralize};
use std::fmt;
use std::panic::Location;
use std::sync::OnceLock;

/// A virtual device of this process, or a device of several processes.
/// Equal ids are the same device.
///
/// ```
/// use atmesh::prelude::*;
/// let [first, second] = devices(2)?[..] else { unreachable!() };
/// assert_eq!((first.to_string().as_str(), second.id()), ("CPU 0", 1));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The index in the list of devices, which several processes have in common.
    id: u32,
}
impl DeviceId {
    /// Returns the index in the list of devices. Several processes have one list, in the order of
    /// the processes.
    pub fn id(self) -> usize {
        self.id as usize
    }
    /// Returns the kind of device: `CPU`.
    pub fn kind(self) -> &'static str {
        "CPU"
    }
    /// Returns the rank of the process that owns the device; 0 if there is one process.
    pub fn process(self) -> usize {
        CLUSTER.get().map_or(0, |cluster| process_of(&cluster.counts, self.id()))
    }
    /// Returns true if this process owns the device; always, if there is one process.
    ///
    /// ```
    /// assert!(atmesh::devices(8)?.iter().all(|device| device.is_local()));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn is_local(self) -> bool {
        CLUSTER.get().is_none_or(|cluster| process_of(&cluster.counts, self.id()) == cluster.process)
    }
}
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.id)
    }
}
debug_as_display! { [] DeviceId }
/// The maximum number of virtual devices of a process.
/// A mesh stores an entry for each of its devices.
pub(crate) const MAX_DEVICES: usize = 1 << 20;

/// The devices of several processes.
#[derive(Debug)]
pub(crate) struct ClusterDevices {
    /// The rank of this process.
    pub(crate) process: usize,
    /// The number of devices of each process.
    pub(crate) counts: Vec<usize>,
    /// True if an engine runs programs on the devices of all processes.
    pub(crate) run_programs: bool,
}

/// The devices of the processes, if there are several.
static CLUSTER: OnceLock<ClusterDevices> = OnceLock::new();
/// The location at which the first mesh was made.
static FIRST_MESH: OnceLock<SourceLocation> = OnceLock::new();

/// Returns the process that owns the device with this index.
fn process_of(counts: &[usize], mut device: usize) -> usize {
    for (process, count) in counts.iter().enumerate() {
        match device.checked_sub(*count) {
            Some(rest) => device = rest,
            None => return process,
        }
    }
    0
}

/// Sets the devices of several processes, before any mesh is made.
///
/// # Errors
/// A mesh was made, at the location that is returned.
pub(crate) fn set_cluster_devices(devices: ClusterDevices) -> Result<(), SourceLocation> {
    check_no_mesh()?;
    // a process joins once
    let _ = CLUSTER.set(devices);
    Ok(())
}

/// Returns the location at which the first mesh of devices was made, as an error.
pub(crate) fn check_no_mesh() -> Result<(), SourceLocation> {
    FIRST_MESH.get().map_or(Ok(()), |first| Err(*first))
}

/// Notes that a mesh of these devices is made at a location.
///
/// # Errors
/// There are several processes, and no engine runs programs on a mesh of these devices.
pub(super) fn check_mesh_devices(devices: &[DeviceId], location: SourceLocation) -> Result<(), Fault> {
    FIRST_MESH.get_or_init(|| location);
    match CLUSTER.get() {
        Some(cluster) => check_all_devices(devices, cluster),
        None => Ok(()),
    }
}

fn check_all_devices(devices: &[DeviceId], cluster: &ClusterDevices) -> Result<(), Fault> {
    let ClusterDevices { counts, run_programs, .. } = cluster;
    let (n, total, processes) = (devices.len(), counts.iter().sum(), counts.len());
    if !run_programs {
        let message =
            format!("there are {processes} processes, and the engine that runs programs on meshes is in one");
        return Err(fault!(Mesh, "{message}")
            .help("run them by XLA: the feature `xla`, and ATMESH_PJRT_PLUGIN names a plugin for several processes")
            .help("`Mesh::without_devices` serves for types and plans"));
    }
    if n != total {
        let (mesh, all) = (pluralize(n, "device"), pluralize(total, "device"));
        let each = match counts.iter().all(|count| *count == counts[0]) {
            true => format!("{} each", counts[0]),
            false => counts.iter().map(usize::to_string).collect::<Vec<_>>().join(" + "),
        };
        let fault = fault!(Mesh, "a mesh of {mesh}, but the {processes} processes have {all} ({each})");
        return Err(fault.help("use all of them: sizes whose product is `cluster.devices()`"));
    }
    match devices.iter().enumerate().find(|(k, device)| device.id() != *k) {
        Some((k, device)) => Err(fault!(
            Mesh,
            "position {k} of the mesh has device {}, but there are {processes} processes, and a mesh has \
             their devices in order",
            device.id()
        )
        .help("give the devices in the order of `atmesh::devices(n)`, and the axes in another order")),
        None => Ok(()),
    }
}

/// Returns the first `n` devices of the process.
/// They are created on demand; the maximum is 2^20.
///
/// ```
/// let eight = atmesh::devices(8)?;
/// assert_eq!(eight[3].to_string(), "CPU 3");
/// assert!(atmesh::devices(1 << 32).is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn devices(n: usize) -> Result<Vec<DeviceId>> {
    if n > MAX_DEVICES {
        let fault = fault!(Mesh, "{n} devices are asked for, but a process has at most {MAX_DEVICES}")
            .help("`Mesh::without_devices` serves for types and plans on any number of devices");
        return Err(Error::new(fault, "devices", Vec::new(), Some(Location::caller())));
    }
    Ok(first_devices(n))
}
/// Returns the first `n` devices; the caller has checked that `n` is at most [`MAX_DEVICES`].
pub(crate) fn first_devices(n: usize) -> Vec<DeviceId> {
    (0..n as u32).map(|id| DeviceId { id }).collect()
}

/// Returns the device that holds the arrays on no mesh: the first one of this process.
pub(crate) fn default_device() -> DeviceId {
    let before = |cluster: &ClusterDevices| cluster.counts[..cluster.process].iter().sum::<usize>();
    DeviceId { id: CLUSTER.get().map_or(0, before) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_numbered_process_by_process() {
        let counts = [2, 1, 3];
        let owners: Vec<usize> = (0..6).map(|device| process_of(&counts, device)).collect();
        assert_eq!(owners, [0, 0, 1, 2, 2, 2]);
    }

    #[test]
    fn a_mesh_has_the_devices_of_all_processes() {
        let cluster = |counts: &[usize], run_programs| ClusterDevices {
            process: 0,
            counts: counts.to_vec(),
            run_programs,
        };
        let message = |n, counts: &[usize]| {
            check_all_devices(&first_devices(n), &cluster(counts, true)).unwrap_err().message
        };
        assert!(check_all_devices(&first_devices(4), &cluster(&[2, 2], true)).is_ok());
        assert_eq!(message(8, &[2, 2]), "a mesh of 8 devices, but the 2 processes have 4 devices (2 each)");
        assert_eq!(message(1, &[2, 1]), "a mesh of 1 device, but the 2 processes have 3 devices (2 + 1)");
        let mut turned = first_devices(4);
        turned.swap(1, 2);
        let error = check_all_devices(&turned, &cluster(&[2, 2], true)).unwrap_err().message;
        assert!(error.starts_with("position 1 of the mesh has device 2"), "{error}");
        let error = check_all_devices(&first_devices(2), &cluster(&[1, 1], false)).unwrap_err().message;
        assert!(error.contains("the engine that runs programs on meshes is in one"), "{error}");
    }
}
