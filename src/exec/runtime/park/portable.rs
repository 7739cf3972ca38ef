//! Parking on a condition variable, for every system; threads have no affinity here.

use super::Park;
use crate::exec::runtime::sync::{Condvar, Mutex};
use crate::exec::{runtime::sync::atomic::AtomicU32, runtime::sync::atomic::Ordering::SeqCst};
use std::time::Duration;

/// Parks threads on a condition variable.
#[derive(Debug, Default)]
pub(crate) struct CondvarParker {
    lock: Mutex<()>,
    changed: Condvar,
}
impl Park for CondvarParker {
    fn wake(&self, _: &AtomicU32) {
        // a thread that is between its check and its sleep holds the lock
        drop(self.lock.lock().unwrap_or_else(|e| e.into_inner()));
        self.changed.notify_all();
    }
    fn park_until_changed(&self, at: &AtomicU32, value: u32, most: Option<Duration>) {
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
    /// A handle to a worker thread, which cannot be moved on this system.
    #[derive(Debug, Default)]
    pub(in crate::exec::runtime) struct WorkerThread;

    /// Returns 0, since the caller's processor is not known.
    pub(in crate::exec::runtime) fn current_cpu() -> u32 {
        0
    }
    /// Returns 0, since forks are not detected on this system.
    pub(in crate::exec::runtime) fn fork_count() -> u32 {
        0
    }
    impl WorkerThread {
        /// Does nothing, since threads are not tracked on this system.
        pub(in crate::exec::runtime) fn register(&self) {}
        /// Does nothing, since affinity is not supported on this system.
        pub(in crate::exec::runtime) fn avoid_cpu(&self, _: u32) {}
    }
}
#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
pub(in crate::exec::runtime) use thread::{WorkerThread, current_cpu, fork_count};
