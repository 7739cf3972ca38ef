//! Execution: compiles per-device programs to kernels and buffers, and runs them on an engine.

pub(crate) mod compile;
pub(crate) mod display;
pub mod engine;
pub mod runtime;
