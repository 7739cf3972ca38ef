//! Running per-device programs: buffers, kernels, workers, engines.

mod buffer;
pub mod cpu;
pub mod engine;
pub mod gemm;
pub mod kernels;
mod slab;
mod wait;
pub mod workers;

pub use buffer::{Buffer, trim};
pub use engine::{Engine, Executable, RunReport};
pub use slab::Slab;
