//! The devices of this process in a program of several processes, and the values in their memory.

use super::{ArrayData, Buffer};
use crate::core::{ArrayType, Fault, Result};
use crate::ir::program::Placement;
use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::OnceLock;

/// A value in memory that does not belong to the buffer pool, such as that of a PJRT device.
pub(crate) trait ForeignValue: Any + Debug + Send + Sync {
    /// Copies the value into a new buffer, row-major, with all partial values.
    ///
    /// # Errors
    /// The value is not [local](ForeignValue::is_local), or a device fails.
    fn fetch(&self) -> Result<Buffer, Fault>;
    /// Returns true if the devices of this process hold all elements.
    fn is_local(&self) -> bool;
    /// Returns true if the value has the blocks of this type and placement on each device.
    fn has_blocks_of(&self, ty: &ArrayType, at: &Placement) -> bool;
    /// Copies the block of the device at this position of the mesh, which is one of this process.
    ///
    /// If the value is unreduced, the block is that of the sum.
    fn block(&self, position: usize) -> Result<ArrayData, Fault>;
}

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
}

static PROCESS_DEVICES: OnceLock<Box<dyn ProcessDevices>> = OnceLock::new();

/// Returns the devices of several processes; `None` if this process runs its programs alone.
///
/// All meshes with devices then have the devices of all processes, and all arrays on such a mesh
/// are foreign values.
pub(crate) fn process_devices() -> Option<&'static dyn ProcessDevices> {
    PROCESS_DEVICES.get().map(|devices| &**devices)
}

/// Makes all arrays on meshes those of several processes.
#[cfg(feature = "xla")]
pub(crate) fn register_process_devices(devices: impl ProcessDevices + 'static) {
    // a process joins once
    let _ = PROCESS_DEVICES.set(Box::new(devices));
}
