//! The process's virtual devices.

use std::fmt;

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
/// The first `n` devices of the process. There are as many as asked for, at any time.
pub fn devices(n: usize) -> Vec<DeviceId> {
    (0..n as u32).map(|id| DeviceId { id }).collect()
}
