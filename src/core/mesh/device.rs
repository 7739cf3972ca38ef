//! The virtual devices of the process, and the devices of all processes.

use crate::core::diagnostic::{Error, Fault, Result, SourceLocation, pluralize};
use std::fmt;
use std::panic::Location;
use std::sync::OnceLock;

/// A virtual device of this process, or a device of several processes.
/// Equal ids are the same device.
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
        PROCESS_DEVICES.get().map_or(0, |counts| process_of(counts, self.id()))
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

/// The number of devices of each process, if there are several.
static PROCESS_DEVICES: OnceLock<Vec<usize>> = OnceLock::new();
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

/// Sets the number of devices of each process, before any mesh is made.
///
/// # Errors
/// A mesh was made, at the location that is returned.
pub(crate) fn set_process_devices(counts: &[usize]) -> Result<(), SourceLocation> {
    if let Some(first) = FIRST_MESH.get() {
        return Err(first);
    }
    // a process joins once
    let _ = PROCESS_DEVICES.set(counts.to_vec());
    Ok(())
}

/// Notes that a mesh of `n` devices is made at a location.
///
/// # Errors
/// There are several processes, and some of their devices are not in the mesh.
pub(super) fn check_mesh_size(n: usize, location: SourceLocation) -> Result<(), Fault> {
    FIRST_MESH.get_or_init(|| location);
    match PROCESS_DEVICES.get() {
        Some(counts) => check_all_devices(n, counts),
        None => Ok(()),
    }
}

fn check_all_devices(n: usize, counts: &[usize]) -> Result<(), Fault> {
    let total: usize = counts.iter().sum();
    if n == total {
        return Ok(());
    }
    let (mesh, all) = (pluralize(n, "device"), pluralize(total, "device"));
    let each = match counts.iter().all(|count| *count == counts[0]) {
        true => format!("{} each", counts[0]),
        false => counts.iter().map(usize::to_string).collect::<Vec<_>>().join(" + "),
    };
    let fault = fault!(Mesh, "a mesh of {mesh}, but the {} processes have {all} ({each})", counts.len());
    Err(fault.help("use all of them: sizes whose product is `cluster.devices()`"))
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
        let message = |n, counts: &[usize]| check_all_devices(n, counts).unwrap_err().message;
        assert!(check_all_devices(4, &[2, 2]).is_ok());
        assert_eq!(message(8, &[2, 2]), "a mesh of 8 devices, but the 2 processes have 4 devices (2 each)");
        assert_eq!(message(1, &[2, 1]), "a mesh of 1 device, but the 2 processes have 3 devices (2 + 1)");
    }
}
