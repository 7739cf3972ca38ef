//! The process's virtual devices.

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use std::fmt;
use std::panic::Location;

/// A virtual device of this process: equal ids are the same device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId {
    id: u32,
}
impl DeviceId {
    /// Its number in the process-wide list.
    pub fn id(self) -> usize {
        self.id as usize
    }
    /// What it is: `CPU`.
    pub fn kind(self) -> &'static str {
        "CPU"
    }
    /// The process that it belongs to.
    pub fn process(self) -> usize {
        0
    }
}
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.id)
    }
}
impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
/// How many virtual devices a process may have: a mesh holds an entry for each.
pub(crate) const MOST_DEVICES: usize = 1 << 20;

/// The first `n` devices of the process: as many as asked for, at any time, up to 2^20.
///
/// ```
/// let eight = atmesh::devices(8)?;
/// assert_eq!(eight[3].to_string(), "CPU 3");
/// assert!(atmesh::devices(1 << 32).is_err());
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn devices(n: usize) -> Result<Vec<DeviceId>> {
    if n > MOST_DEVICES {
        let message = format!("{n} devices are asked for, but a process has at most {MOST_DEVICES}");
        let fault = Fault::new(ErrorKind::Mesh, message)
            .help("`Mesh::without_devices` serves for types and plans on any number of devices");
        return Err(Error::at(fault, "devices", Vec::new(), Some(Location::caller())));
    }
    Ok(first(n))
}
/// The same of a number that was checked.
pub(crate) fn first(n: usize) -> Vec<DeviceId> {
    (0..n as u32).map(|id| DeviceId { id }).collect()
}
