//! Running per-device programs: buffers, kernels, workers, engines.

mod buffer;
pub mod engine;
mod slab;

pub use buffer::Buffer;
pub use engine::{Engine, Executable, RunReport};
pub use slab::Slab;
