//! Parking: waiting for an atomic value to change, and thread affinity.
//!
//! The Linux implementation uses futexes and affinity masks. Other systems, Miri and shuttle use
//! condition variables and leave affinity alone. Tests on Linux run both implementations.

#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
mod linux;
#[cfg(any(test, not(target_os = "linux"), miri, shuttle))]
mod portable;

#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
use linux::FutexParker as System;
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
pub(super) use linux::{WorkerThread, current_cpu, fork_count};
#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
use portable::CondvarParker as System;
#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
pub(super) use portable::{WorkerThread, current_cpu, fork_count};

use super::sync::atomic::{AtomicU32, Ordering::*};
use super::sync::{spin_loop, spin_rounds, yield_now};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The number of spins, then of yields, before a worker parks. There are no more workers than
/// cores, so spinning takes no time from other threads.
const NUM_SPINS: usize = spin_rounds(3000);
const NUM_YIELDS: usize = spin_rounds(200);
/// The number of yields before parking, for threads that may outnumber the cores.
const NUM_OVERSUBSCRIBED_YIELDS: usize = spin_rounds(50);

/// The ways to park a thread until a value changes.
pub(crate) trait Park: Default {
    /// Wakes all parked threads. The value was changed before the call.
    fn wake(&self, at: &AtomicU32);
    /// Parks until the value is no longer `value` or the time `most` has passed; may also wake
    /// spuriously.
    fn park_until_changed(&self, at: &AtomicU32, value: u32, most: Option<Duration>);
}

/// An atomic value that threads wait for.
///
/// It must not return to a value that a waiter has seen before the waiter can look again. It is
/// therefore a counter, or changes once per job.
#[derive(Debug, Default)]
pub(crate) struct Signal<S = System> {
    value: AtomicU32,
    sleepers: AtomicU32,
    parker: S,
}
impl<S: Park> Signal<S> {
    pub(super) fn get(&self) -> u32 {
        self.value.load(Acquire)
    }
    #[cfg(test)]
    /// Returns the number of threads that are parked until the value changes.
    pub(super) fn sleepers(&self) -> u32 {
        self.sleepers.load(Relaxed)
    }
    /// Sets the value and wakes the parked threads.
    pub(super) fn set(&self, value: u32) {
        // the value is written before the number of sleepers is read, and a sleeper increments that
        // number before it reads the value again, so that one of the two sees the other
        self.value.store(value, SeqCst);
        self.wake();
    }
    pub(crate) fn add(&self, n: u32) {
        self.value.fetch_add(n, SeqCst);
        self.wake();
    }
    pub(super) fn subtract(&self, n: u32) {
        self.value.fetch_sub(n, SeqCst);
        self.wake();
    }
    fn wake(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            self.parker.wake(&self.value);
        }
    }
    /// Waits while `same` holds for the value.
    pub(super) fn wait_while(&self, same: impl Fn(u32) -> bool) {
        for _ in 0..NUM_SPINS {
            if !same(self.value.load(Acquire)) {
                return;
            }
            spin_loop();
        }
        self.wait(NUM_YIELDS, same);
    }
    /// Waits as `wait_while` does, but does not spin, for threads that may outnumber the cores.
    #[cfg(all(test, shuttle))]
    pub(super) fn wait_without_spinning(&self, same: impl Fn(u32) -> bool) {
        self.wait(NUM_OVERSUBSCRIBED_YIELDS, same);
    }
    /// Waits as `wait_while` does, but does not spin, and calls `look` each time that `every` has
    /// passed.
    pub(super) fn wait_with_interval(&self, same: impl Fn(u32) -> bool, every: Duration, look: impl Fn()) {
        let begun = Instant::now();
        let looks = Cell::new(1);
        self.sleep(NUM_OVERSUBSCRIBED_YIELDS, Some(every), |value| {
            if begun.elapsed() >= every * looks.get() {
                looks.set(looks.get() + 1);
                look();
            }
            same(value)
        });
    }
    fn wait(&self, yields: usize, same: impl Fn(u32) -> bool) {
        self.sleep(yields, None, same);
    }
    fn sleep(&self, yields: usize, most: Option<Duration>, same: impl Fn(u32) -> bool) {
        for _ in 0..yields {
            if !same(self.value.load(Acquire)) {
                return;
            }
            yield_now();
        }
        self.sleepers.fetch_add(1, SeqCst);
        loop {
            let value = self.value.load(SeqCst);
            if !same(value) {
                break;
            }
            self.parker.park_until_changed(&self.value, value, most);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Tests that three threads that pass a value around in turn never miss their wake-up.
    fn turns<S: Park + Sync>() {
        let signal = Signal::<S>::default();
        let count = if cfg!(miri) { 12 } else { 3000 };
        std::thread::scope(|s| {
            for me in 0..3 {
                let signal = &signal;
                s.spawn(move || {
                    for turn in (me..count).step_by(3) {
                        signal.wait(1, |v| v != turn);
                        signal.set(turn + 1);
                    }
                });
            }
        });
        assert_eq!((signal.get(), signal.sleepers()), (count, 0));
    }
    #[test]
    fn no_thread_misses_its_wake_up() {
        turns::<System>();
        turns::<portable::CondvarParker>();
    }
}
