//! Tracing: how closures over arrays become programs, and how programs are called.

mod core;
mod eager;
mod stages;
pub mod tree;

pub(crate) use core::{Arg, Trace, apply, apply1, poison};
pub use stages::EngineKind;
