//! The virtual devices of the process.

use crate::core::diagnostic::{Error, Result};
use std::fmt;
use std::panic::Location;

/// A virtual device of this process.
/// Equal ids are the same device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    /// The index in the process-wide list of devices.
    id: u32,
}
impl DeviceId {
    /// Returns the index in the process-wide list of devices.
    pub fn id(self) -> usize {
        self.id as usize
    }
    /// Returns the kind of device: `CPU`.
    pub fn kind(self) -> &'static str {
        "CPU"
    }
    /// Returns the index of the process that owns the device, always 0.
    pub fn process(self) -> usize {
        0
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
