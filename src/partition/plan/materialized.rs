//! Reads from the fusion stage which values of a program are in memory.

use crate::partition::SpmdProgram;
use crate::partition::buffers::{HalfMatmuls, lower::lower};
use crate::partition::fusion::{device::device_program, fuse};

/// The values of a program that are in the memory of one device.
pub(super) struct MaterializedValues {
    /// True for each value that is in memory.
    pub(super) stored: Vec<bool>,
    /// True for each value that is in the memory of another one, so that no kernel computes it.
    pub(super) aliases: Vec<bool>,
}

/// Returns the values of a program that are in the memory of one device.
///
/// Rows that the built-in engines keep in a processor's cache between kernels, such as attention
/// scores, count as values in memory: otherwise the plan of ZeRO-3 on 1,536 GPUs is more than 15 %
/// faster than the published figure (`tests/reports/facts.rs`).
pub(super) fn materialized_values(p: &SpmdProgram) -> MaterializedValues {
    let n = p.slots.len();
    let (device, _) = device_program(p);
    let Ok(buffers) = lower(&device, HalfMatmuls::Native) else {
        // (an operation has too many loops, and compilation returns the error)
        return MaterializedValues { stored: vec![true; n], aliases: vec![false; n] };
    };
    let mut stored = fuse(&buffers).materialized;
    p.ins.iter().for_each(|s| stored[*s] = true);
    let stored = (0..n).map(|s| stored[buffers.alias_root(s)]).collect();
    MaterializedValues { stored, aliases: buffers.values[..n].iter().map(|v| v.alias.is_some()).collect() }
}
