//! The runtime that the engines share: arrays in memory, the thread pool, device threads and their
//! mailboxes.
//!
//! ```
//! let stats = atmesh::runtime::memory_stats();
//! println!("arrays take {} bytes", stats.bytes_in_use);
//! ```

mod array_data;
pub(crate) mod clock;
pub(crate) mod deadlock;
pub(crate) mod device_threads;
pub(crate) mod mailbox;
pub(crate) mod parallel_copy;
pub(crate) mod park;
pub(crate) mod print_queue;
mod process_devices;
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
pub use print_queue::capture_prints;
#[cfg(feature = "xla")]
pub(crate) use process_devices::{BlockFn, register_process_devices};
pub(crate) use process_devices::{ProcessDevices, compares_replicas, process_devices, stable_hash};

/// The memory of all arrays of the process.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::zeros([1 << 20]);
/// let stats = atmesh::runtime::memory_stats();
/// assert!(stats.bytes_in_use >= x.nbytes()? && stats.peak_bytes_in_use >= x.nbytes()?);
/// println!("{} more bytes are kept for new arrays", stats.pooled_bytes);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The memory of live arrays and running programs, in bytes.
    pub bytes_in_use: usize,
    /// The recent maximum of `bytes_in_use`, which decreases slowly while large arrays are dropped.
    pub peak_bytes_in_use: usize,
    /// The memory that is kept for new arrays, in bytes.
    pub pooled_bytes: usize,
}

/// Returns how much memory the arrays of the process use.
///
/// Sizes are those of the blocks that hold arrays, of which there are four for each power of two.
/// Arrays of at most a few kilobytes may be counted after they were dropped.
///
/// ```
/// use atmesh::prelude::*;
/// let before = atmesh::runtime::memory_stats().bytes_in_use;
/// let x = Array::zeros([1 << 20]);
/// assert!(atmesh::runtime::memory_stats().bytes_in_use >= before + x.nbytes()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn memory_stats() -> MemoryStats {
    let [bytes_in_use, peak_bytes_in_use, pooled_bytes] = crate::kernels::buffer::memory_figures();
    MemoryStats { bytes_in_use, peak_bytes_in_use, pooled_bytes }
}

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
