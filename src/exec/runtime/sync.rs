//! Synchronization primitives: channels, atomics, locks, threads and thread-locals.
//!
//! The modules of the runtime and the lock-step and threads engines take them from here. Normally
//! these are the types of crossbeam and the standard library. Under `cfg(shuttle)` they are
//! shuttle's, whose scheduler decides every step of every thread, so that tests explore thousands
//! of schedules.
//!
//! Locks that are held for a few instructions without waiting, such as those of the buffer pool and
//! of name tables, are always the standard library's.

#[cfg(not(shuttle))]
mod primitives {
    pub(crate) use crossbeam_channel as channel;
    pub(crate) use std::hint::spin_loop;
    #[cfg(any(test, miri, not(target_os = "linux")))]
    pub(crate) use std::sync::Condvar;
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
    pub(crate) use std::thread::{Builder, yield_now};
    pub(crate) use std::thread_local;

    /// A lazily initialized value of the process.
    pub(crate) struct Global<T: 'static>(std::sync::LazyLock<T>);
    impl<T> Global<T> {
        pub(crate) const fn new(make: fn() -> T) -> Global<T> {
            Global(std::sync::LazyLock::new(make))
        }
        pub(crate) fn get(&'static self) -> &'static T {
            &self.0
        }
    }
}

#[cfg(shuttle)]
mod primitives {
    pub(crate) mod channel {
        pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, TryRecvError, channel as unbounded};
    }
    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use shuttle::thread::{Builder, yield_now};
    pub(crate) use shuttle::thread_local;

    /// A lazily initialized value of each execution of a test.
    pub(crate) use shuttle::lazy_static::Lazy as Global;
}

pub(crate) use primitives::*;

/// Runs a test's body under many thread schedules: random ones, and adversarial ones that change
/// priorities a few times (PCT).
///
/// `ATMESH_ORDERS` sets the number of schedules of each kind. A failure prints its schedule;
/// `SHUTTLE_RANDOM_SEED` selects the random ones.
#[cfg(all(test, shuttle))]
pub(crate) fn explore(body: impl Fn() + Copy + Send + Sync + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    let mut config = shuttle::Config::new();
    config.stack_size = 512 << 10;
    config.silence_warnings = true;
    let orders = std::env::var("ATMESH_ORDERS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000);
    shuttle::Runner::new(RandomScheduler::new(orders), config.clone()).run(body);
    for depth in [2, 3, 5] {
        shuttle::Runner::new(PctScheduler::new(depth, orders / 3 + 1), config.clone()).run(body);
    }
}

/// Returns the number of rounds to wait before sleeping: `usual`, but 1 under shuttle and Miri, so
/// that their threads do sleep.
pub(crate) const fn spin_rounds(usual: usize) -> usize {
    if cfg!(any(miri, shuttle)) { 1 } else { usual }
}
