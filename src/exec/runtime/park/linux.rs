//! Parking on futexes, and thread affinity, on Linux.

use super::Park;
use rustix::thread::{
    CpuSet, Pid, Timespec, futex, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity,
};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// Parks threads on the signal's value itself.
///
/// A wake-up without sleepers costs no system call, and a signal is two words.
#[derive(Debug, Default)]
pub(crate) struct FutexParker;

impl Park for FutexParker {
    fn wake(&self, at: &AtomicU32) {
        let _ = futex::wake(at, futex::Flags::PRIVATE, i32::MAX as u32);
    }
    fn park_until_changed(&self, at: &AtomicU32, value: u32, most: Option<Duration>) {
        // a duration that the system cannot represent is longer than any wait
        let most = most.and_then(|t| Timespec::try_from(t).ok());
        // an error is a value that has changed, a timeout or a signal: the caller looks again
        let _ = futex::wait(at, futex::Flags::PRIVATE, value, most.as_ref());
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
    allowed: CpuSet,
    /// The processors that the thread was last restricted to.
    applied: CpuSet,
}

/// Returns the processors that a thread may use, or none if it has ended. `None` is the caller.
fn affinity(thread: Option<Pid>) -> CpuSet {
    sched_getaffinity(thread).unwrap_or_default()
}
/// Returns the processor on which the caller runs.
pub(in crate::exec::runtime) fn current_cpu() -> u32 {
    sched_getcpu() as u32
}
impl WorkerThread {
    /// Registers the calling thread as the one of this handle.
    pub(in crate::exec::runtime) fn register(&self) {
        self.id.store(gettid().as_raw_pid(), Release);
    }
    /// Keeps the thread off a processor, if it may use another one.
    ///
    /// If the affinity was changed by others in the meantime, the change is respected.
    pub(in crate::exec::runtime) fn avoid_cpu(&self, cpu: u32) {
        let Some(id) = Pid::from_raw(self.id.load(Acquire)) else { return };
        if self.avoided_cpu.swap(cpu, Relaxed) == cpu || cpu as usize >= CpuSet::MAX_CPU {
            return;
        }
        let mut mask = self.mask.lock().unwrap_or_else(|e| e.into_inner());
        let now = affinity(Some(id));
        let allowed = mask.filter(|m| m.applied == now).map_or(now, |m| m.allowed);
        let mut kept = allowed;
        kept.unset(cpu as usize);
        if kept.count() > 0 {
            let _ = sched_setaffinity(Some(id), &kept);
            *mask = Some(CpuMask { allowed, applied: kept });
        }
    }
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
                let (all, here) = (affinity(None), current_cpu());
                thread.avoid_cpu(here);
                let set = affinity(None);
                let before = all.count();
                let expected = if before > 1 { (false, before - 1) } else { (true, 1) };
                assert_eq!((set.is_set(here as usize), set.count()), expected);
                thread.avoid_cpu(u32::MAX);
                assert_eq!(affinity(None).count(), set.count());
            });
        });
    }

    #[test]
    fn what_others_say_of_a_thread_is_obeyed() {
        std::thread::scope(|s| {
            s.spawn(|| {
                let thread = WorkerThread::default();
                thread.register();
                let all = affinity(None);
                let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| all.is_set(*c)).collect();
                let [first, second, ..] = cpus[..] else { return };
                thread.avoid_cpu(first as u32);
                assert!(!affinity(None).is_set(first));
                // another party restricts the thread to one processor
                let mut one = CpuSet::new();
                one.set(first);
                sched_setaffinity(None, &one).unwrap();
                for cpu in [second, first, second] {
                    thread.avoid_cpu(cpu as u32);
                    assert!(affinity(None).is_set(first) && !affinity(None).is_set(second));
                }
            });
        });
    }
}
