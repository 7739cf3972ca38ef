//! What threads meet by: channels, atomics, locks, threads and what is each thread's own.
//!
//! Workers, devices, their network and board, and both engines take these from here. They are crossbeam's and the standard library's; under
//! `cfg(shuttle)` they are shuttle's, whose scheduler then decides each step of each thread, so that tests walk through thousands of orders.
//!
//! Locks that are held for a few instructions, in which nobody waits (the pool of buffers, tables of names), are the standard library's always.

#[cfg(not(shuttle))]
mod taken {
    pub(crate) use crossbeam_channel as channel;
    pub(crate) use std::hint::spin_loop;
    #[cfg(any(test, miri, not(target_os = "linux")))]
    pub(crate) use std::sync::Condvar;
    pub(crate) use std::sync::{Mutex, MutexGuard, atomic};
    pub(crate) use std::thread::{Builder, yield_now};
    pub(crate) use std::thread_local;

    /// A value of the process, made when it is first asked for.
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
mod taken {
    pub(crate) mod channel {
        pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, TryRecvError, channel as unbounded};
    }
    pub(crate) use shuttle::hint::spin_loop;
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use shuttle::thread::{Builder, yield_now};
    pub(crate) use shuttle::thread_local;

    /// A value of each execution of a test.
    pub(crate) use shuttle::lazy_static::Lazy as Global;
}

pub(crate) use taken::*;

/// Runs a test's body under shuttle in many orders of its threads' steps: at random, and with few but nasty changes of priority (PCT).
///
/// `ATMESH_ORDERS` says how many of each kind. A failure prints the order, and `SHUTTLE_RANDOM_SEED` chooses them.
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

/// `usual` rounds of waiting that is not sleep; under shuttle and Miri hardly any, so that threads do sleep.
pub(crate) const fn rounds(usual: usize) -> usize {
    if cfg!(any(miri, shuttle)) { 1 } else { usual }
}
