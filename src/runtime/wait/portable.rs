//! What every system has: a condition variable to sleep on, and threads left where the system puts them.

use super::Sleep;
use crate::runtime::sync::atomic::{AtomicU32, Ordering::SeqCst};
use crate::runtime::sync::{Condvar, Mutex};
use std::time::Duration;

/// Sleeps on a condition variable.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    lock: Mutex<()>,
    changed: Condvar,
}
impl Sleep for Condition {
    fn wake(&self, _: &AtomicU32) {
        // whoever is between its look and its sleep holds the lock
        drop(self.lock.lock().unwrap_or_else(|e| e.into_inner()));
        self.changed.notify_all();
    }
    fn until_changed(&self, at: &AtomicU32, value: u32, most: Option<Duration>) {
        let held = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        if at.load(SeqCst) != value {
            return;
        }
        match most {
            None => drop(self.changed.wait(held).unwrap_or_else(|e| e.into_inner())),
            Some(most) => drop(self.changed.wait_timeout(held, most).unwrap_or_else(|e| e.into_inner())),
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
mod thread {
    /// A worker thread; it is not moved.
    #[derive(Debug, Default)]
    pub(in crate::runtime) struct Thread;

    /// The processor on which the caller runs is not known.
    pub(in crate::runtime) fn current() -> u32 {
        0
    }
    /// Processes that fork are not told of here.
    pub(in crate::runtime) fn forks() -> u32 {
        0
    }
    impl Thread {
        /// This thread is it.
        pub(in crate::runtime) fn enter(&self) {}
        /// Nothing to do.
        pub(in crate::runtime) fn avoid(&self, _: u32) {}
    }
}
#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
pub(in crate::runtime) use thread::{Thread, current, forks};
