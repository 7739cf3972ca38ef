//! What programs run on: memory, kernels, products, workers, device threads, messages.

pub(crate) mod board;
mod buffer;
pub mod cpu;
pub(crate) mod devices;
pub mod gemm;
pub mod kernels;
pub(crate) mod network;
#[cfg(all(test, shuttle))]
mod orders;
mod slab;
pub(crate) mod sync;
pub(crate) mod tree;
mod wait;
pub mod workers;

pub(crate) use buffer::fits;
pub use buffer::{Buffer, trim};
pub use devices::on_device_thread;
pub use slab::Slab;
