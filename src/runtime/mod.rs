//! What programs run on: memory, kernels, products, workers, device threads, messages.

pub(crate) mod board;
mod buffer;
pub(crate) mod clock;
#[allow(unreachable_pub, reason = "within the crate its names are what others use")]
pub(crate) mod cpu;
pub(crate) mod devices;
#[allow(unreachable_pub, reason = "within the crate its names are what others use")]
pub(crate) mod gemm;
pub(crate) mod host;
#[allow(unreachable_pub, reason = "within the crate its names are what others use")]
pub(crate) mod kernels;
pub(crate) mod network;
#[cfg(all(test, shuttle))]
mod orders;
pub(crate) mod prints;
mod slab;
pub(crate) mod sync;
pub(crate) mod tree;
pub(crate) mod wait;
#[allow(unreachable_pub, reason = "within the crate its names are what others use")]
pub(crate) mod workers;

pub use buffer::Buffer;
pub(crate) use buffer::{copied, fits, listed, room};
pub use devices::on_device_thread;
#[cfg(feature = "xla")]
pub(crate) use slab::Elsewhere;
pub use slab::Slab;

/// Returns what the process keeps for the next program to the system: memory that no array uses, and idle device threads.
///
/// ```
/// atmesh::runtime::trim();
/// ```
pub fn trim() {
    buffer::trim();
    devices::dismiss();
}
