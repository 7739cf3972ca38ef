//! Counts the work of the partitioner: progressions, boxes and candidates.
//!
//! Tests bound the count instead of the time, which depends on the machine.

use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Adds to the count of this thread.
pub(crate) fn count(n: usize) {
    COUNT.with(|c| c.set(c.get() + n as u64));
}

/// Returns the count of this thread since the last call, and resets it.
#[doc(hidden)]
pub fn take_work() -> u64 {
    COUNT.with(|c| c.replace(0))
}
