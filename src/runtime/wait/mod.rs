//! Waiting for a number to change, and processors: futexes and affinity on Linux, what every system has elsewhere, under Miri and under
//! shuttle. Tests run both.

#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
mod linux;
#[cfg(any(test, not(target_os = "linux"), miri, shuttle))]
mod portable;

#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
use linux::Futex as System;
#[cfg(all(target_os = "linux", not(miri), not(shuttle)))]
pub(super) use linux::{Thread, current, forks};
#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
use portable::Condition as System;
#[cfg(not(all(target_os = "linux", not(miri), not(shuttle))))]
pub(super) use portable::{Thread, current, forks};

use super::sync::atomic::{AtomicU32, Ordering::*};
use super::sync::{rounds, spin_loop, yield_now};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Pauses, then yields, before a worker sleeps. Workers are no more than cores, so that a pause costs nobody anything.
const PAUSES: usize = rounds(3000);
const YIELDS: usize = rounds(200);
/// Yields of threads that are more than cores.
const POLITE: usize = rounds(50);

/// How threads sleep on a number.
pub(crate) trait Sleep: Default {
    /// Wakes all that sleep. The number changed before.
    fn wake(&self, at: &AtomicU32);
    /// Returns when the number is no longer `value`, after `most`, or for no reason.
    fn until_changed(&self, at: &AtomicU32, value: u32, most: Option<Duration>);
}

/// A number that threads wait for.
///
/// It must not come back to a value that a waiter saw before the waiter can look again: it counts, or changes once in a job.
#[derive(Debug, Default)]
pub(crate) struct Signal<S = System> {
    value: AtomicU32,
    sleepers: AtomicU32,
    sleep: S,
}
impl<S: Sleep> Signal<S> {
    pub(super) fn get(&self) -> u32 {
        self.value.load(Acquire)
    }
    #[cfg(test)]
    /// How many threads sleep until it changes.
    pub(super) fn sleepers(&self) -> u32 {
        self.sleepers.load(Relaxed)
    }
    /// Changes it and wakes those that sleep.
    pub(super) fn set(&self, value: u32) {
        // written before the count is read, which sleepers raise before they read it again: one of the two sees the other
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
            self.sleep.wake(&self.value);
        }
    }
    /// Waits while `same` holds of the number.
    pub(super) fn wait_while(&self, same: impl Fn(u32) -> bool) {
        for _ in 0..PAUSES {
            if !same(self.value.load(Acquire)) {
                return;
            }
            spin_loop();
        }
        self.wait(YIELDS, same);
    }
    /// The same among more threads than cores: without pauses.
    #[cfg(all(test, shuttle))]
    pub(super) fn wait_politely(&self, same: impl Fn(u32) -> bool) {
        self.wait(POLITE, same);
    }
    /// The same among more threads than cores, without pauses, and with a look at something each time that so much has passed.
    pub(super) fn wait_watchfully(&self, same: impl Fn(u32) -> bool, every: Duration, look: impl Fn()) {
        let begun = Instant::now();
        let looks = Cell::new(1);
        self.sleep(POLITE, Some(every), |value| {
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
            self.sleep.until_changed(&self.value, value, most);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Three threads that hand a number on in turn; nobody may sleep through its own.
    fn turns<S: Sleep + Sync>() {
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
    fn nobody_sleeps_through_its_turn() {
        turns::<System>();
        turns::<portable::Condition>();
    }
}
