//! Tracing: how closures over arrays become programs, and how programs are called.

mod cache;
mod compiled;
pub(crate) mod control;
mod core;
mod derivative;
mod eager;
mod jit;
mod stages;
pub mod tree;
mod vmap;

pub use compiled::{Compiled, Lowered, Traced};
pub use control::{ScanOptions, cond, debug_print_values, fori_loop, scan, scan_with, switch, while_loop};
pub use control::{auto_axes, auto_axes_over, explicit_axes, explicit_axes_over};
pub(crate) use core::{
    Arg, Enter, Open, Setting, Trace, apply, apply_control, apply1, build, carried, innermost, located,
    poison, setting, told, told_as, told_order,
};
pub use derivative::{Pullback, checkpoint, grad, jvp, value_and_grad, vjp};
pub use jit::{ArgNums, Jit, Made, jit};
pub(crate) use jit::{Out, body, no_error};
pub use stages::EngineKind;
pub use vmap::{MapDims, VmapOptions, vmap, vmap_with};
