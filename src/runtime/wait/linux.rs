//! Futexes and affinity of Linux.

use super::Sleep;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};

/// The kernel sleeps on the number itself: a wake-up with nobody asleep costs no call, and a Signal is two words.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Futex;

fn futex(at: &AtomicU32, op: i32, value: u32) {
    // SAFETY: the address is valid for the call, and there is no timeout
    unsafe {
        let none = std::ptr::null::<libc::timespec>();
        libc::syscall(libc::SYS_futex, at.as_ptr(), op | libc::FUTEX_PRIVATE_FLAG, value, none);
    }
}
impl Sleep for Futex {
    fn wake(&self, at: &AtomicU32) {
        futex(at, libc::FUTEX_WAKE, i32::MAX as u32);
    }
    fn until_changed(&self, at: &AtomicU32, value: u32) {
        futex(at, libc::FUTEX_WAIT, value);
    }
}

/// A worker thread, as others may move it.
#[derive(Debug)]
pub(in crate::runtime) struct Thread {
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
    ALLOWED.get_or_init(|| may_use(0))
}
/// The processors that a thread may use; 0 is the caller.
fn may_use(thread: i32) -> libc::cpu_set_t {
    // SAFETY: a set of bits, for which zero is valid, filled by the call
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(thread, size_of_val(&set), &mut set);
        set
    }
}
/// The processor on which the caller runs.
pub(in crate::runtime) fn current() -> u32 {
    // SAFETY: no arguments
    unsafe { libc::sched_getcpu() as u32 }
}
impl Thread {
    /// This thread is it.
    pub(in crate::runtime) fn enter(&self) {
        allowed();
        // SAFETY: no arguments
        self.id.store(unsafe { libc::gettid() }, Release);
    }
    /// Keeps it off a processor, if there is another.
    pub(in crate::runtime) fn avoid(&self, cpu: u32) {
        let id = self.id.load(Acquire);
        if id == 0 || self.off.swap(cpu, Relaxed) == cpu || cpu as usize >= 8 * size_of::<libc::cpu_set_t>() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_off_a_processor_if_it_may_use_another() {
        let thread = Thread::default();
        thread.avoid(0);
        std::thread::scope(|s| {
            s.spawn(|| {
                thread.enter();
                let here = current();
                thread.avoid(here);
                let set = may_use(0);
                // SAFETY: the processor's number is within the set
                let (on, left) = unsafe { (libc::CPU_ISSET(here as usize, &set), libc::CPU_COUNT(&set)) };
                // SAFETY: reads a set of bits
                let before = unsafe { libc::CPU_COUNT(allowed()) };
                assert_eq!((on, left), if before > 1 { (false, before - 1) } else { (true, 1) });
                thread.avoid(u32::MAX);
                // SAFETY: as above
                assert_eq!(left, unsafe { libc::CPU_COUNT(&may_use(0)) });
            });
        });
    }
}
