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
    pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic};
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

/// `usual` rounds of waiting that is not sleep; under shuttle and Miri hardly any, so that threads do sleep.
pub(crate) const fn rounds(usual: usize) -> usize {
    if cfg!(any(miri, shuttle)) { 1 } else { usual }
}
