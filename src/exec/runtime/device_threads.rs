//! Device threads: one operating-system thread per device.
//!
//! A run takes idle threads, or starts new ones, and leaves them idle for the next run. A thread
//! that has been idle for 10 seconds ends.

use super::park::{self, Signal};
use super::print_queue::PrintQueue;
#[cfg(not(shuttle))]
use super::sync::channel::RecvTimeoutError;
use super::sync::channel::{Receiver, Sender, unbounded};
use super::sync::{Builder, Global, Mutex, MutexGuard, thread_local};
use crate::core::{Fault, Result};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    /// True on a device thread.
    static IS_DEVICE_THREAD: Cell<bool> = const { Cell::new(false) };
    /// The file, line and column of the last panic on this device thread.
    static PANIC_LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Returns true if the calling thread runs a device's code, which cannot operate on global arrays.
pub fn on_device_thread() -> bool {
    IS_DEVICE_THREAD.with(Cell::get)
}

/// A panic of a device's code.
pub(crate) struct DevicePanic {
    pub(crate) payload: Box<dyn Any + Send>,
    /// The location of the panic as `file:line:column`, or `None` if it is not known.
    pub(crate) location: Option<String>,
}

/// A handle to a device thread, for sending jobs to it.
#[derive(Clone)]
struct DeviceThread {
    #[cfg_attr(shuttle, allow(dead_code))]
    id: usize,
    jobs: Sender<DeviceJob>,
}

/// The call `run(index)` of a run, as it is sent to a thread.
struct DeviceJob {
    run: *const (dyn Fn(usize) + Sync),
    index: usize,
    remaining: Arc<Signal>,
    /// The handle of the receiving thread, which it adds to the idle threads when the call is done.
    thread: DeviceThread,
}
// SAFETY: the closure is `Sync`, and outlives the job: `on_threads` does not return before every
// job has reported.
unsafe impl Send for DeviceJob {}

/// The threads that wait for a job.
///
/// A thread ends when its sender is dropped, or after `IDLE_TIMEOUT` without a job.
struct IdleThreads {
    threads: Vec<DeviceThread>,
    /// The fork count of the process that owns the threads.
    forks: u32,
}
static IDLE: Global<Mutex<IdleThreads>> =
    Global::new(|| Mutex::new(IdleThreads { threads: Vec::new(), forks: park::fork_count() }));
/// The time that an idle thread waits for a job before it ends.
#[cfg(not(shuttle))]
const IDLE_TIMEOUT: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 10_000 });

fn lock_idle() -> MutexGuard<'static, IdleThreads> {
    let mut idle = IDLE.get().lock().unwrap_or_else(|e| e.into_inner());
    if idle.forks != park::fork_count() {
        // these belong to the parent process; their locks may be held for ever, so they are not
        // dropped
        idle.threads.drain(..).for_each(std::mem::forget);
        idle.forks = park::fork_count();
    }
    idle
}

/// Ends all idle threads.
pub(crate) fn end_idle_threads() {
    let threads = std::mem::take(&mut lock_idle().threads);
    drop(threads);
}

/// Waits for a thread's next job. Returns `None` if the thread should end.
#[cfg(not(shuttle))]
fn next_job(id: usize, jobs: &Receiver<DeviceJob>) -> Option<DeviceJob> {
    loop {
        match jobs.recv_timeout(IDLE_TIMEOUT) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                let mut idle = lock_idle();
                // if it is no longer idle, a caller has taken it and is about to send a job
                if let Some(k) = idle.threads.iter().position(|t| t.id == id) {
                    idle.threads.swap_remove(k);
                    return None;
                }
            }
        }
    }
}
/// Waits for a thread's next job, without a timeout, because Shuttle does not support timeouts.
#[cfg(shuttle)]
fn next_job(_: usize, jobs: &Receiver<DeviceJob>) -> Option<DeviceJob> {
    jobs.recv().ok()
}

fn spawn() -> Result<DeviceThread> {
    static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let id = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let (line, jobs) = unbounded::<DeviceJob>();
    Builder::new()
        .name("atmesh device".into())
        .spawn(move || {
            IS_DEVICE_THREAD.with(|d| d.set(true));
            while let Some(DeviceJob { run, index, remaining: left, thread: own }) = next_job(id, &jobs) {
                // SAFETY: the closure lives until every call has reported (`on_threads` waits for
                // all of them).
                let run = unsafe { &*run };
                // `on_threads` catches panics inside the closure, so this one never sees any
                let _ = catch_unwind(AssertUnwindSafe(|| run(index)));
                // return to the idle threads before reporting, so that the next run can reuse this
                // thread
                lock_idle().threads.push(own);
                left.subtract(1);
            }
        })
        .map_err(|e| {
            let fault = fault!(Device, "the system has no thread for another device: {e}");
            fault.help("use fewer devices, or the engine `lockstep`, which needs no thread for each")
        })?;
    Ok(DeviceThread { id, jobs: line })
}

/// The actions of the caller of a run while it waits for the devices.
pub(crate) struct CallerHooks<'a> {
    /// The signal it sleeps on: counts the devices that have not ended, plus wake-ups.
    pub(crate) wakeup: Arc<Signal>,
    /// The function that is called whenever the caller wakes up.
    pub(crate) on_wake: &'a dyn Fn(),
    /// The function that is called every [`TIMEOUT_INTERVAL`] while the caller waits.
    pub(crate) on_timeout: &'a dyn Fn(),
}
/// The time between two calls of `on_timeout`.
const TIMEOUT_INTERVAL: Duration = Duration::from_secs(3);

/// Runs code on this thread and catches its panic. On a device thread the location is known.
pub(crate) fn catch_panic<R>(code: impl FnOnce() -> R) -> Result<R, DevicePanic> {
    PANIC_LOCATION.with(RefCell::take);
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|payload| DevicePanic { payload, location: PANIC_LOCATION.with(RefCell::take) })
}

/// Runs `code(0)`, …, `code(n − 1)` concurrently, each on a separate device thread.
///
/// Returns when all calls have ended, with the result or the panic of each. If the system cannot
/// provide `n` threads, it returns an error before any call has started.
///
/// The code may borrow: it is not used after this function returns.
pub(crate) fn on_threads<R: Send>(
    n: usize,
    caller: &CallerHooks,
    code: &(dyn Fn(usize) -> R + Sync),
) -> Result<Vec<Result<R, DevicePanic>>> {
    install_panic_hook();
    let results: Vec<Mutex<Option<Result<R, DevicePanic>>>> = (0..n).map(|_| Mutex::new(None)).collect();
    let part = |i: usize| {
        let result = catch_panic(|| code(i));
        *results[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
    };
    let left = caller.wakeup.clone();
    let part: &(dyn Fn(usize) + Sync) = &part;
    // SAFETY: only the lifetime is erased. The closure is used only by the jobs below, each of
    // which decrements the signal after its last use of it. `all` keeps this function from ending,
    // by return or by panic, before the signal is 0.
    let run = unsafe {
        std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
            part,
        )
    };
    struct WaitForAll<'a>(&'a CallerHooks<'a>);
    impl Drop for WaitForAll<'_> {
        fn drop(&mut self) {
            let CallerHooks { wakeup: bell, on_wake: heed, on_timeout: late } = self.0;
            let some_run = |bell| {
                heed();
                PrintQueue::num_running(bell) != 0
            };
            bell.wait_with_interval(some_run, TIMEOUT_INTERVAL, late);
        }
    }
    let mut threads = {
        let mut idle = lock_idle();
        let from = idle.threads.len().saturating_sub(n);
        idle.threads.split_off(from)
    };
    while threads.len() < n {
        match spawn() {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                lock_idle().threads.append(&mut threads);
                return Err(error);
            }
        }
    }
    left.set(n as u32);
    let all = WaitForAll(caller);
    for (index, own) in threads.into_iter().enumerate() {
        let line = own.jobs.clone();
        if let Err(unsent) = line.send(DeviceJob { run, index, remaining: left.clone(), thread: own }) {
            // a thread does not end while its sender exists; if it did, the call runs here
            part(unsent.0.index);
            left.subtract(1);
        }
    }
    drop(all);
    let results = results.into_iter().map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner()));
    Ok(results.map(|r| r.expect("each call has reported")).collect())
}

impl DevicePanic {
    /// Returns the [`Fault`] that a kernel unwound with, or the panic itself if it is not a fault.
    pub(crate) fn into_fault(self) -> Result<Fault, DevicePanic> {
        let DevicePanic { payload, location: source_location } = self;
        payload
            .downcast::<Fault>()
            .map(|f| *f)
            .map_err(|payload| DevicePanic { payload, location: source_location })
    }
    /// Returns the panic message.
    ///
    /// The payload is dropped only if it is a string. Others are leaked, because the drop of a
    /// value that device code threw may panic.
    pub(crate) fn into_message(self) -> String {
        match self.payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => {
                let text = payload.downcast_ref::<&str>().map_or("no message".into(), |s| s.to_string());
                std::mem::forget(payload);
                text
            }
        }
    }
}

/// Installs a panic hook that records where device code panics.
///
/// Such a panic is not printed, since the run returns it as an error. Panics of other threads are
/// printed as before, and so are all panics if a panic ends the process.
#[cfg(not(shuttle))]
fn install_panic_hook() {
    use std::{panic::Location, sync::Once};
    static ONCE: Once = Once::new();
    // the hook cannot be changed while a thread panics; a later run does it
    if ONCE.is_completed() || std::thread::panicking() {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !on_device_thread() || cfg!(panic = "abort") {
                return before(info);
            }
            PANIC_LOCATION.set(info.location().map(Location::to_string));
            if std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0") {
                before(info);
            }
        }));
    });
}

/// Does nothing: Shuttle's own hook prints the schedule that led to a panic.
#[cfg(shuttle)]
fn install_panic_hook() {}

/// Runs code on device threads as [`on_threads`] does, with hooks that do nothing.
#[cfg(test)]
pub(crate) fn on_threads_without_hooks<R: Send>(
    n: usize,
    code: &(dyn Fn(usize) -> R + Sync),
) -> Result<Vec<Result<R, DevicePanic>>> {
    on_threads(n, &CallerHooks { wakeup: Arc::default(), on_wake: &|| (), on_timeout: &|| () }, code)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn parts_run_at_once_and_may_borrow() {
        let barrier = Barrier::new(5);
        let sum = AtomicUsize::new(0);
        let results = on_threads_without_hooks(5, &|i| {
            assert!(on_device_thread());
            barrier.wait();
            sum.fetch_add(i, SeqCst);
            i * i
        })
        .unwrap();
        let results: Vec<_> = results.into_iter().map(|r| r.ok().unwrap()).collect();
        assert_eq!((results, sum.into_inner()), (vec![0, 1, 4, 9, 16], 10));
        assert!(!on_device_thread());
    }

    #[test]
    fn a_panic_names_its_line() {
        let results = on_threads_without_hooks(2, &|i| assert_eq!(i, 0, "not the first")).unwrap();
        assert!(results[0].is_ok());
        let panic = results.into_iter().nth(1).unwrap().err().unwrap();
        assert!(panic.location.as_ref().unwrap().contains("device_threads.rs"), "{:?}", panic.location);
        assert!(panic.into_message().contains("not the first"));
    }

    /// Returns the system's ids of the threads of a run.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn numbers(n: usize) -> Vec<i32> {
        let barrier = Barrier::new(n);
        let id = rustix::thread::gettid;
        let ends = on_threads_without_hooks(n, &|_| (barrier.wait(), id().as_raw_pid()).1).unwrap();
        ends.into_iter().map(|e| e.ok().unwrap()).collect()
    }
    #[cfg(all(target_os = "linux", not(miri)))]
    fn ends(thread: i32) {
        let begun = std::time::Instant::now();
        while std::fs::exists(format!("/proc/self/task/{thread}")).unwrap() {
            assert!(begun.elapsed() < Duration::from_secs(60), "thread {thread} does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn idle_threads_end() {
        numbers(40).into_iter().for_each(ends);
        let threads = numbers(40);
        end_idle_threads();
        threads.into_iter().for_each(ends);
        assert_eq!(numbers(3).len(), 3);
    }

    #[test]
    fn runs_of_different_callers_do_not_mix() {
        std::thread::scope(|s| {
            for k in 0..4 {
                s.spawn(move || {
                    for _ in 0..if cfg!(miri) { 3 } else { 20 } {
                        let n = 1 + k;
                        let meet = Barrier::new(n);
                        let sums = on_threads_without_hooks(n, &|i| {
                            meet.wait();
                            i + k
                        })
                        .unwrap();
                        assert!(sums.into_iter().enumerate().all(|(i, r)| r.ok() == Some(i + k)));
                    }
                });
            }
        });
    }
}
