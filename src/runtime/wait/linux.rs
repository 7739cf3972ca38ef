//! Futexes and affinity of Linux.

use super::Sleep;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// The kernel sleeps on the number itself: a wake-up with nobody asleep costs no call, and a Signal is two words.
#[derive(Debug, Default)]
pub(crate) struct Futex;

fn futex(at: &AtomicU32, op: i32, value: u32, most: Option<Duration>) {
    let most = most.map(|t| libc::timespec {
        tv_sec: t.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: t.subsec_nanos().into(),
    });
    let most = most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the addresses are valid for the call
    unsafe {
        libc::syscall(libc::SYS_futex, at.as_ptr(), op | libc::FUTEX_PRIVATE_FLAG, value, most);
    }
}
impl Sleep for Futex {
    fn wake(&self, at: &AtomicU32) {
        futex(at, libc::FUTEX_WAKE, i32::MAX as u32, None);
    }
    fn until_changed(&self, at: &AtomicU32, value: u32, most: Option<Duration>) {
        futex(at, libc::FUTEX_WAIT, value, most);
    }
}

/// How often this process's line has forked since [`forks`] was first asked: a child has none of its parent's threads.
pub(in crate::runtime) fn forks() -> u32 {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static TOLD: Once = Once::new();
    extern "C" fn child() {
        FORKS.fetch_add(1, Relaxed);
    }
    TOLD.call_once(|| {
        // SAFETY: the handler only adds to a number
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
    FORKS.load(Relaxed)
}

/// A worker thread, as others may move it.
#[derive(Debug)]
pub(in crate::runtime) struct Thread {
    id: AtomicI32,
    /// The processor that it is kept off.
    off: AtomicU32,
    mask: Mutex<Option<Mask>>,
}
impl Default for Thread {
    fn default() -> Thread {
        Thread { id: AtomicI32::new(0), off: AtomicU32::new(u32::MAX), mask: Mutex::new(None) }
    }
}

/// The processors of a worker.
#[derive(Clone, Copy, Debug)]
struct Mask {
    /// Those that it may use, as others said.
    allowed: libc::cpu_set_t,
    /// Those to which it was kept.
    kept: libc::cpu_set_t,
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
        // SAFETY: no arguments
        self.id.store(unsafe { libc::gettid() }, Release);
    }
    /// Keeps it off a processor, if there is another. Where somebody else has moved it meanwhile, that is obeyed.
    pub(in crate::runtime) fn avoid(&self, cpu: u32) {
        let id = self.id.load(Acquire);
        if id == 0 || self.off.swap(cpu, Relaxed) == cpu || cpu as usize >= 8 * size_of::<libc::cpu_set_t>() {
            return;
        }
        let mut mask = self.mask.lock().unwrap_or_else(|e| e.into_inner());
        let now = may_use(id);
        let allowed = mask.filter(|m| equal(&m.kept, &now)).map_or(now, |m| m.allowed);
        let mut kept = allowed;
        // SAFETY: the processor's number is within the set; the thread lives as long as the process
        unsafe {
            libc::CPU_CLR(cpu as usize, &mut kept);
            if libc::CPU_COUNT(&kept) > 0 {
                libc::sched_setaffinity(id, size_of_val(&kept), &kept);
                *mask = Some(Mask { allowed, kept });
            }
        }
    }
}

fn equal(a: &libc::cpu_set_t, b: &libc::cpu_set_t) -> bool {
    // SAFETY: reads two sets of bits
    unsafe { libc::CPU_EQUAL(a, b) }
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
                let (all, here) = (may_use(0), current());
                thread.avoid(here);
                let set = may_use(0);
                // SAFETY: the processor's number is within the set
                let (on, left) = unsafe { (libc::CPU_ISSET(here as usize, &set), libc::CPU_COUNT(&set)) };
                // SAFETY: reads a set of bits
                let before = unsafe { libc::CPU_COUNT(&all) };
                assert_eq!((on, left), if before > 1 { (false, before - 1) } else { (true, 1) });
                thread.avoid(u32::MAX);
                // SAFETY: as above
                assert_eq!(left, unsafe { libc::CPU_COUNT(&may_use(0)) });
            });
        });
    }

    #[test]
    fn what_others_say_of_a_thread_is_obeyed() {
        std::thread::scope(|s| {
            s.spawn(|| {
                let thread = Thread::default();
                thread.enter();
                let all = may_use(0);
                let on = |set: &libc::cpu_set_t, cpu: usize| {
                    // SAFETY: within the set
                    unsafe { libc::CPU_ISSET(cpu, set) }
                };
                let cpus: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(|c| on(&all, *c)).collect();
                let [first, second, ..] = cpus[..] else { return };
                thread.avoid(first as u32);
                assert!(!on(&may_use(0), first));
                // somebody keeps it to one processor
                // SAFETY: a set of bits with one more
                unsafe {
                    let mut one: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(first, &mut one);
                    libc::sched_setaffinity(0, size_of_val(&one), &one);
                }
                for cpu in [second, first, second] {
                    thread.avoid(cpu as u32);
                    assert!(on(&may_use(0), first) && !on(&may_use(0), second));
                }
            });
        });
    }
}
