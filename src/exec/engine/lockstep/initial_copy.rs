//! The copy of a carry's initial value, at the start of a loop.

use crate::exec::runtime::thread_pool::{Worker, thread_pool};
use crate::kernels;

/// The minimum size, in bytes, of a value for which the workers of the pool are woken.
const MIN_SHARED_BYTES: usize = if cfg!(miri) { 1 << 10 } else { 4 << 20 };
/// The size, in bytes, of which the share of a worker is a multiple, unless it is the last one.
const SHARE_UNIT_BYTES: usize = 4096;

/// The two buffers of a copy.
struct CopyBuffers(*mut u8, *const u8);
// SAFETY: workers copy disjoint ranges, which no other code accesses meanwhile (caller contract of
// `copy_on_workers`).
unsafe impl Sync for CopyBuffers {}

/// Copies `bytes` bytes, or the share of a worker if there is one.
///
/// # Safety
/// `from` points to `bytes` readable bytes, and `to` to `bytes` writable ones, which do not overlap
/// them. Until it returns, only the other workers of this copy access them.
pub(super) unsafe fn copy_on_workers(
    worker: Option<&Worker<'_>>,
    to: *mut u8,
    from: *const u8,
    bytes: usize,
) {
    let buffers = CopyBuffers(to, from);
    let share = |index: usize, count: usize| {
        let CopyBuffers(to, from) = &buffers;
        let cut = |k: usize| match k == count {
            true => bytes,
            false => bytes.div_ceil(SHARE_UNIT_BYTES) * k / count * SHARE_UNIT_BYTES,
        };
        let (begin, end) = (cut(index), cut(index + 1));
        // SAFETY: the range is within both buffers, and only this worker has it (caller contract).
        unsafe { kernels::copy(end - begin, to.add(begin), from.add(begin), false) }
    };
    match worker {
        Some(worker) => share(worker.index(), worker.count()),
        None if bytes < MIN_SHARED_BYTES => share(0, 1),
        None => {
            let ran = thread_pool().run(&|worker| share(worker.index(), worker.count()));
            debug_assert!(ran.is_ok(), "a copy does not panic");
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_copied() {
        struct Free;
        impl crate::exec::runtime::thread_pool::WorkerBarrier for Free {
            fn wait_all(&self, _: usize) -> bool {
                true
            }
        }
        for n in [0, 1, SHARE_UNIT_BYTES, 5 * SHARE_UNIT_BYTES + 3, MIN_SHARED_BYTES + 77] {
            let from: Vec<u8> = (0..n).map(|k| (k % 251) as u8).collect();
            for count in [0, 1, 3, 7] {
                let mut to = vec![255; n];
                let alone = [None];
                let workers: Vec<_> = (0..count).map(|k| Some(Worker::new(k, count, &Free))).collect();
                for worker in if count == 0 { &alone[..] } else { &workers[..] } {
                    // SAFETY: both vectors have `n` bytes, and the shares are copied one by one.
                    unsafe { copy_on_workers(worker.as_ref(), to.as_mut_ptr(), from.as_ptr(), n) }
                }
                assert!(to == from, "{n} bytes, {count} workers");
            }
        }
    }
}
