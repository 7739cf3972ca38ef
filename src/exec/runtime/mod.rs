//! The runtime that the engines share: arrays in memory, the thread pool, device threads and their
//! mailboxes.

mod array_data;
pub(crate) mod clock;
pub(crate) mod deadlock;
pub(crate) mod device_threads;
pub(crate) mod mailbox;
pub(crate) mod parallel_copy;
pub(crate) mod park;
pub(crate) mod print_queue;
#[cfg(all(test, shuttle))]
#[path = "tests/shuttle.rs"]
mod shuttle_tests;
pub(crate) mod sync;
#[allow(unreachable_pub, reason = "within the crate its names are what others use")]
pub(crate) mod thread_pool;

pub use crate::kernels::buffer::Buffer;
pub(crate) use crate::kernels::buffer::{check_available, try_collect, try_to_vec, try_vec_with_capacity};
pub use array_data::ArrayData;
#[cfg(feature = "xla")]
pub(crate) use array_data::ForeignValue;
pub use device_threads::on_device_thread;

/// Returns memory that no array uses, and idle device threads, to the operating system.
///
/// The process otherwise keeps both, so that the next program starts faster.
///
/// ```
/// atmesh::runtime::trim();
/// ```
pub fn trim() {
    crate::kernels::buffer::trim();
    device_threads::end_idle_threads();
}
