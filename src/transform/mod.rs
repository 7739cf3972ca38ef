//! What takes a function: closures over arrays as programs that are called, differentiated, mapped, and the control flow within them.

mod associative;
mod compiled;
pub(crate) mod control;
mod custom;
mod derivative;
mod explain;
mod implicit;
mod jit;
mod moves;
mod stablehlo;
mod vmap;

pub use associative::{associative_scan, associative_scan_from_end};
pub use compiled::{Compiled, Lowered, Traced};
pub use control::{
    ScanOptions, cond, debug_print_values, fori_loop, map, scan, scan_with, switch, while_loop,
};
pub use control::{auto_axes, auto_axes_over, explicit_axes, explicit_axes_over};
pub use custom::{CustomOp, Finished, custom_op};
pub use derivative::{Pullback, checkpoint, checkpoint_with, grad, jvp, value_and_grad, vjp};
pub use explain::{Change, Explanation};
pub use implicit::ImplicitReshard;
pub use jit::{ArgNums, Jit, Made, jit};
pub(crate) use jit::{Out, body, no_error};
pub use stablehlo::{Port, StableHlo};
pub use vmap::{MapDims, VmapOptions, vmap, vmap_with};
