//! The devices of this process in a program of several processes, and the values in their memory.

use super::ArrayData;
use crate::core::{ArrayType, Result, SourceLocation};
use crate::ir::program::Placement;
use std::ops::Range;
use std::sync::OnceLock;

/// The function that returns the block of a device: the device's position in the mesh, and the
/// index ranges of its block.
pub(crate) type BlockFn<'a> = dyn FnMut(usize, &[Range<usize>]) -> Result<ArrayData> + 'a;

/// The devices of a program of several processes.
pub(crate) trait ProcessDevices: Send + Sync {
    /// Returns the number of processes.
    fn processes(&self) -> usize;
    /// Returns the positions of this process's devices in a mesh.
    fn own(&self) -> &[usize];
    /// Creates a value from the blocks of the devices of this process, in the memory of the
    /// devices.
    ///
    /// No process waits for another one.
    fn place(&self, ty: &ArrayType, at: &Placement, block: &mut BlockFn<'_>) -> Result<ArrayData>;
    /// Returns an error if processes pass different bytes as the value `what`. All of them call it.
    fn check_equal(&self, what: &str, bytes: &[u8], location: SourceLocation) -> Result<()>;
    /// Returns the bytes that each process passes, in the order of the processes. All of them call
    /// it.
    fn exchange(&self, what: &str, bytes: &[u8], location: SourceLocation) -> Result<Vec<Vec<u8>>>;
}

/// Returns true if the processes compare their replicas, and the values on no mesh that go into
/// their programs: the environment variable `ATMESH_CHECK` is set, to something other than 0.
pub(crate) fn compares_replicas() -> bool {
    static SET: OnceLock<bool> = OnceLock::new();
    *SET.get_or_init(|| std::env::var_os("ATMESH_CHECK").is_some_and(|set| !set.is_empty() && set != "0"))
}

/// Returns a hash (FNV-1a), which is the same in all builds.
pub(crate) fn stable_hash(bytes: &[u8]) -> [u8; 8] {
    let hash = |hash: u64, b: &u8| (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, hash).to_le_bytes()
}

#[cfg(feature = "xla")]
static PROCESS_DEVICES: OnceLock<Box<dyn ProcessDevices>> = OnceLock::new();

/// Returns the devices of several processes; `None` if this process runs its programs alone.
///
/// All meshes with devices then have the devices of all processes, and all arrays on such a mesh
/// are foreign values.
#[cfg(feature = "xla")]
pub(crate) fn process_devices() -> Option<&'static dyn ProcessDevices> {
    PROCESS_DEVICES.get().map(|devices| &**devices)
}
/// Returns `None`: builds without the feature `xla` have no devices of several processes.
#[cfg(not(feature = "xla"))]
pub(crate) fn process_devices() -> Option<&'static dyn ProcessDevices> {
    None
}

/// Makes all arrays on meshes those of several processes.
#[cfg(feature = "xla")]
pub(crate) fn register_process_devices(devices: impl ProcessDevices + 'static) {
    // a process joins once
    let _ = PROCESS_DEVICES.set(Box::new(devices));
}
