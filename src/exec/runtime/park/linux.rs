//! Parking on futexes, and thread affinity, on Linux.

use super::Park;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// Parks threads on the signal's value itself.
///
/// A wake-up without sleepers costs no system call, and a signal is two words.
#[derive(Debug, Default)]
pub(crate) struct FutexParker;

fn futex(at: &AtomicU32, op: i32, value: u32, most: Option<Duration>) {
    let most = most.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let most = most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `at` is an aligned 32-bit word, and `most` is null or points to a timeout; both are
    // valid for the duration of the call.
    unsafe {
        libc::syscall(libc::SYS_futex, at.as_ptr(), op | libc::FUTEX_PRIVATE_FLAG, value, most);
    }
}
impl Park for FutexParker {
    fn wake(&self, at: &AtomicU32) {
        futex(at, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }
    fn park_until_changed(&self, at: &AtomicU32, value: u32, most: Option<Duration>) {
        futex(at, libc::FUTEX_WAIT, value, most);
    }
}

/// Returns how often this process and its ancestors have forked since the first call.
///
/// A child has none of its parent's threads, so it must not use them.
pub(in crate::exec::runtime) fn fork_count() -> u32 {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static REGISTERED: Once = Once::new();
    extern "C" fn child() {
        FORKS.fetch_add(1, Relaxed);
    }
    REGISTERED.call_once(|| {
        // SAFETY: the handler only increments an atomic, which is allowed in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
    FORKS.load(Relaxed)
}

/// A handle to a worker thread, through which other threads set its affinity.
#[derive(Debug)]
pub(in crate::exec::runtime) struct WorkerThread {
    id: AtomicI32,
    /// The processor that the thread is kept off, or `u32::MAX`.
    avoided_cpu: AtomicU32,
    mask: Mutex<Option<CpuMask>>,
}
impl Default for WorkerThread {
    fn default() -> WorkerThread {
        WorkerThread { id: AtomicI32::new(0), avoided_cpu: AtomicU32::new(u32::MAX), mask: Mutex::new(None) }
    }
}

/// The processors of a worker.
#[derive(Clone, Copy, Debug)]
struct CpuMask {
    /// The processors that the thread may use, as set by others.
    allowed: libc::cpu_set_t,
    /// The processors that the thread was last restricted to.
    applied: libc::cpu_set_t,
}

/// Returns the processors that a thread may use. Thread 0 is the caller.
fn affinity(thread: i32) -> libc::cpu_set_t {
    // SAFETY: the set is a bit set, for which all zeros are valid; the call fills it within its
    // size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(thread, size_of_val(&set), &mut set);
        set
    }
}
/// Returns the processor on which the caller runs.
pub(in crate::exec::runtime) fn current_cpu() -> u32 {
    // SAFETY: `sched_getcpu` has no preconditions.
    unsafe { libc::sched_getcpu() as u32 }
}
impl WorkerThread {
    /// Registers the calling thread as the one of this handle.
    pub(in crate::exec::runtime) fn register(&self) {
        // SAFETY: `gettid` has no preconditions.
        self.id.store(unsafe { libc::gettid() }, Release);
    }
    /// Keeps the thread off a processor, if it may use another one.
    ///
    /// If the affinity was changed by others in the meantime, the change is respected.
    pub(in crate::exec::runtime) fn avoid_cpu(&self, cpu: u32) {
        let id = self.id.load(Acquire);
        if id == 0
            || self.avoided_cpu.swap(cpu, Relaxed) == cpu
            || cpu as usize >= 8 * size_of::<libc::cpu_set_t>()
        {
            return;
        }
        let mut mask = self.mask.lock().unwrap_or_else(|e| e.into_inner());
        let now = affinity(id);
        let allowed = mask.filter(|m| equal(&m.applied, &now)).map_or(now, |m| m.allowed);
        let mut kept = allowed;
        // SAFETY: the processor's index is within the set (checked above). `sched_setaffinity` only
        // reads `kept`, and returns an error if no thread has this id.
        unsafe {
            libc::CPU_CLR(cpu as usize, &mut kept);
            if libc::CPU_COUNT(&kept) > 0 {
                libc::sched_setaffinity(id, size_of_val(&kept), &kept);
                *mask = Some(CpuMask { allowed, applied: kept });
            }
        }
    }
}

fn equal(a: &libc::cpu_set_t, b: &libc::cpu_set_t) -> bool {
    // SAFETY: both arguments are valid sets, which are only read.
    unsafe { libc::CPU_EQUAL(a, b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_kept_off_a_processor_if_it_may_use_another() {
        let thread = WorkerThread::default();
        thread.avoid_cpu(0);
        std::thread::scope(|s| {
            s.spawn(|| {
                thread.register();
                let (all, here) = (affinity(0), current_cpu());
                thread.avoid_cpu(here);
                let set = affinity(0);
                // SAFETY: the processor's index is within the set.
                let (on, left) = unsafe { (libc::CPU_ISSET(here as usize, &set), libc::CPU_COUNT(&set)) };
                // SAFETY: the set is valid, and is only read.
                let before = unsafe { libc::CPU_COUNT(&all) };
                assert_eq!((on, left), if before > 1 { (false, before - 1) } else { (true, 1) });
                thread.avoid_cpu(u32::MAX);
                // SAFETY: the set is valid, and is only read.
                assert_eq!(left, unsafe { libc::CPU_COUNT(&affinity(0)) });
            });
        });
    }

    #[test]
    fn what_others_say_of_a_thread_is_obeyed() {
        std::thread::scope(|s| {
            s.spawn(|| {
                let thread = WorkerThread::default();
                thread.register();
                let all = affinity(0);
                let on = |set: &libc::cpu_set_t, cpu: usize| {
                    // SAFETY: the processor's index is within the set.
                    unsafe { libc::CPU_ISSET(cpu, set) }
                };
                let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(|c| on(&all, *c)).collect();
                let [first, second, ..] = cpus[..] else { return };
                thread.avoid_cpu(first as u32);
                assert!(!on(&affinity(0), first));
                // another party restricts the thread to one processor
                // SAFETY: the set is valid, and `first` is within it.
                unsafe {
                    let mut one: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(first, &mut one);
                    libc::sched_setaffinity(0, size_of_val(&one), &one);
                }
                for cpu in [second, first, second] {
                    thread.avoid_cpu(cpu as u32);
                    assert!(on(&affinity(0), first) && !on(&affinity(0), second));
                }
            });
        });
    }
}
