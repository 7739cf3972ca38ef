//! Code that runs on one device: operations on global arrays are errors there.

use crate::core::{Fault, Result};
use crate::exec::runtime::on_device_thread;
use crate::kernels::row_kernel::in_row_kernel;

/// Returns true if the calling thread runs code of one device: device code or a row kernel.
pub(crate) fn runs_device_code() -> bool {
    on_device_thread() || in_row_kernel()
}

/// Returns an error in device code and in row kernels, which have no global arrays.
pub(crate) fn reject_in_device_code() -> Result<(), Fault> {
    if in_row_kernel() {
        return Err(fault!(Trace, "an operation on arrays in a kernel")
            .help("compute with the views that the kernel is given: `ins[0].view::<f32>()`")
            .help("or apply operations on arrays to the operands or the results, outside of the kernel"));
    }
    if !on_device_thread() {
        return Ok(());
    }
    Err(fault!(Trace, "an operation on global arrays in code that runs on one device")
        .help("compute with the ndarray views that the code is given, and with `Device`'s collectives")
        .help("or write the code as a `shard_map`: there arrays are the device's blocks"))
}
