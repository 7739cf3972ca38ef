//! Waiting for a number to change, and processors: futexes and affinity on Linux, the standard library elsewhere.

use std::sync::atomic::{AtomicU32, Ordering::*};

/// Pauses, then yields, before a worker sleeps. Workers are no more than cores, so that a pause costs nobody anything.
const PAUSES: usize = if cfg!(miri) { 2 } else { 3000 };
const YIELDS: usize = if cfg!(miri) { 2 } else { 200 };

/// A number that threads wait for.
#[derive(Debug, Default)]
pub(super) struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
    sleep: sleep::Sleep,
}
impl Signal {
    pub(super) fn get(&self) -> u32 {
        self.value.load(Acquire)
    }
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
            std::hint::spin_loop();
        }
        self.wait(YIELDS, same);
    }
    /// The same among more threads than cores: without pauses.
    pub(super) fn wait_politely(&self, same: impl Fn(u32) -> bool) {
        self.wait(50, same);
    }
    fn wait(&self, yields: usize, same: impl Fn(u32) -> bool) {
        for _ in 0..yields {
            if !same(self.value.load(Acquire)) {
                return;
            }
            std::thread::yield_now();
        }
        self.sleepers.fetch_add(1, SeqCst);
        loop {
            let value = self.value.load(SeqCst);
            if !same(value) {
                break;
            }
            self.sleep.until_changed(&self.value, value);
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod sleep {
    use std::sync::atomic::AtomicU32;

    /// The kernel sleeps on the number itself.
    #[derive(Debug, Default)]
    pub(super) struct Sleep;
    fn futex(at: &AtomicU32, op: i32, value: u32) {
        // SAFETY: the address is valid for the call, and there is no timeout
        unsafe {
            let none = std::ptr::null::<libc::timespec>();
            libc::syscall(libc::SYS_futex, at.as_ptr(), op | libc::FUTEX_PRIVATE_FLAG, value, none);
        }
    }
    impl Sleep {
        pub(super) fn wake(&self, at: &AtomicU32) {
            futex(at, libc::FUTEX_WAKE, i32::MAX as u32);
        }
        /// Returns when the number is no longer `value`, or for no reason.
        pub(super) fn until_changed(&self, at: &AtomicU32, value: u32) {
            futex(at, libc::FUTEX_WAIT, value);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod sleep {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::{Condvar, Mutex};

    #[derive(Debug, Default)]
    pub(super) struct Sleep {
        lock: Mutex<()>,
        changed: Condvar,
    }
    impl Sleep {
        pub(super) fn wake(&self, _: &AtomicU32) {
            // whoever is between its look and its sleep holds the lock
            drop(self.lock.lock().unwrap_or_else(|e| e.into_inner()));
            self.changed.notify_all();
        }
        pub(super) fn until_changed(&self, at: &AtomicU32, value: u32) {
            let held = self.lock.lock().unwrap_or_else(|e| e.into_inner());
            if at.load(SeqCst) == value {
                drop(self.changed.wait(held).unwrap_or_else(|e| e.into_inner()));
            }
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
pub(super) mod cpus {
    //! Which processor a thread runs on, and may run on.

    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};

    /// A worker thread, as others may move it.
    #[derive(Debug)]
    pub(in super::super) struct Thread {
        id: AtomicI32,
        /// The processor that it is kept off.
        off: AtomicU32,
    }
    impl Default for Thread {
        fn default() -> Thread {
            Thread { id: AtomicI32::new(0), off: AtomicU32::new(u32::MAX) }
        }
    }

    /// The processors that the process may use.
    fn allowed() -> &'static libc::cpu_set_t {
        static ALLOWED: OnceLock<libc::cpu_set_t> = OnceLock::new();
        // SAFETY: a set of bits, for which zero is valid, filled by the call
        ALLOWED.get_or_init(|| unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&set), &mut set);
            set
        })
    }
    /// The processor on which the caller runs.
    pub(in super::super) fn current() -> u32 {
        // SAFETY: no arguments
        unsafe { libc::sched_getcpu() as u32 }
    }
    impl Thread {
        /// This thread is it.
        pub(in super::super) fn enter(&self) {
            allowed();
            // SAFETY: no arguments
            self.id.store(unsafe { libc::gettid() }, Release);
        }
        /// Keeps it off a processor, if there is another.
        pub(in super::super) fn avoid(&self, cpu: u32) {
            let id = self.id.load(Acquire);
            if id == 0
                || self.off.swap(cpu, Relaxed) == cpu
                || cpu as usize >= 8 * size_of::<libc::cpu_set_t>()
            {
                return;
            }
            let mut set = *allowed();
            // SAFETY: the processor's number is within the set; the thread lives as long as the process
            unsafe {
                libc::CPU_CLR(cpu as usize, &mut set);
                if libc::CPU_COUNT(&set) > 0 {
                    libc::sched_setaffinity(id, size_of_val(&set), &set);
                }
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) mod cpus {
    //! Elsewhere threads are left where the system puts them.

    #[derive(Debug, Default)]
    pub(in super::super) struct Thread;
    pub(in super::super) fn current() -> u32 {
        0
    }
    impl Thread {
        pub(in super::super) fn enter(&self) {}
        pub(in super::super) fn avoid(&self, _: u32) {}
    }
}
