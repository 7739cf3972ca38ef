//! Tracing: the handle of an array, the traces in which operations on handles are recorded, and running them at once outside of any.

pub(crate) mod cache;
mod core;
pub(crate) mod eager;
mod handle;
mod recent;
pub(crate) mod stages;
pub(crate) mod trial;

pub(crate) use core::{
    Arg, Enter, Open, Recorded, Setting, Trace, apply, apply_control, apply1, apply1_of, build, carried,
    innermost, name, poison, setting, tracing,
};
pub use handle::Array;
pub(crate) use handle::{Placed, Repr};
