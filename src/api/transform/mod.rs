//! Function transformations: `jit`, derivatives, `vmap`, control flow and custom operations.
//!
//! A transformation takes a closure over arrays, records it as a program, and compiles,
//! differentiates, maps or embeds that program. A custom operation takes a kernel on slices of
//! elements instead, which is not recorded.

mod associative;
mod checkpoint;
pub(crate) mod control;
mod custom;
mod custom_derivative;
mod derivative;
mod explain;
mod explain_edits;
mod implicit_reshard;
mod jacobian;
mod jit;
mod linearize;
mod movement;
mod rejection;
mod stablehlo;
#[cfg(feature = "json")]
mod stablehlo_files;
mod stages;
mod vmap;

pub use associative::{associative_scan, associative_scan_reverse};
pub use checkpoint::{checkpoint, checkpoint_with};
pub use control::{
    MapOptions, ScanOptions, WhileOptions, cond, debug_print_values, fori_loop, map, map_with, scan,
    scan_with, switch, while_loop, while_loop_with,
};
#[cfg(feature = "typed")]
pub(crate) use control::{ReturnedTree, scan_at};
pub use control::{auto_axes, auto_axes_over, explicit_axes, explicit_axes_over};
pub use custom::{CustomOp, KernelResult, custom_op};
pub use custom_derivative::{custom_jvp, custom_vjp, custom_vjp_with};
#[cfg(feature = "typed")]
pub(crate) use derivative::loss_and_cotangents;
pub use derivative::{Pullback, grad, jvp, value_and_grad, vjp};
pub use explain::{Explanation, Suggestion};
pub use implicit_reshard::ImplicitReshard;
pub use jacobian::{hessian, hvp, jacfwd, jacobian, jacrev};
pub use jit::{ArgNums, Jit, WrapperMarker, jit};
pub(crate) use jit::{OutputTree, boxed_body, check_arguments, check_errors};
pub use linearize::{Pushforward, linearize};
pub use stablehlo::{Port, StableHlo};
pub use stages::{Compiled, Lowered, Traced};
pub(crate) use vmap::leaf_dims;
#[cfg(feature = "typed")]
pub(crate) use vmap::vmap_at;
pub use vmap::{MapDims, VmapOptions, vmap, vmap_with};
