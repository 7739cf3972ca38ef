//! Device threads: one operating-system thread per device, kept for a while for the next run.

use super::prints::Prints;
#[cfg(not(shuttle))]
use super::sync::channel::RecvTimeoutError;
use super::sync::channel::{Receiver, Sender, unbounded};
use super::sync::{Builder, Global, Mutex, MutexGuard, thread_local};
use super::wait::{self, Signal};
use crate::diagnostic::{ErrorKind, Fault, Result};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    /// Whether this is a device thread.
    static DEVICE: Cell<bool> = const { Cell::new(false) };
    /// The file, line and column of the last panic on this device thread.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Whether the calling thread runs a device's code: operations on global arrays are not for it.
pub fn on_device_thread() -> bool {
    DEVICE.with(Cell::get)
}

/// What became of a device's code.
pub(crate) struct Panicked {
    pub(crate) payload: Box<dyn Any + Send>,
    /// `file:line:column`, where known.
    pub(crate) place: Option<String>,
}

/// A device thread, as those see it that have jobs for it.
#[derive(Clone)]
struct Thread {
    #[cfg_attr(shuttle, allow(dead_code))]
    id: usize,
    line: Sender<Job>,
}

/// Part `index` of a run, as a thread gets it.
struct Job {
    run: *const (dyn Fn(usize) + Sync),
    index: usize,
    left: Arc<Signal>,
    /// The thread itself, which joins the idle ones when the part is done.
    own: Thread,
}
// SAFETY: the closure is Sync, and outlives the job by the rules of `on_threads`
unsafe impl Send for Job {}

/// The threads that wait for a job. A thread ends when its line is dropped, or nobody has called it for a while.
struct Idle {
    threads: Vec<Thread>,
    /// The process that has them, by its forks.
    forks: u32,
}
static IDLE: Global<Mutex<Idle>> =
    Global::new(|| Mutex::new(Idle { threads: Vec::new(), forks: wait::forks() }));
/// How long an idle thread waits for a job.
#[cfg(not(shuttle))]
const LINGER: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 10_000 });

fn idle() -> MutexGuard<'static, Idle> {
    let mut idle = IDLE.get().lock().unwrap_or_else(|e| e.into_inner());
    if idle.forks != wait::forks() {
        // these are the parent's, and whoever held their locks is not here to leave them
        idle.threads.drain(..).for_each(std::mem::forget);
        idle.forks = wait::forks();
    }
    idle
}

/// Ends the threads that wait for a job.
pub(crate) fn dismiss() {
    let threads = std::mem::take(&mut idle().threads);
    drop(threads);
}

/// A thread's next job, unless it shall end.
#[cfg(not(shuttle))]
fn next(id: usize, jobs: &Receiver<Job>) -> Option<Job> {
    loop {
        match jobs.recv_timeout(LINGER) {
            Ok(job) => return Some(job),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {
                let mut idle = idle();
                // otherwise somebody has a job for it
                if let Some(k) = idle.threads.iter().position(|t| t.id == id) {
                    idle.threads.swap_remove(k);
                    return None;
                }
            }
        }
    }
}
/// Shuttle's threads do not wait for a time.
#[cfg(shuttle)]
fn next(_: usize, jobs: &Receiver<Job>) -> Option<Job> {
    jobs.recv().ok()
}

fn spawn() -> Result<Thread> {
    static MADE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let id = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let (line, jobs) = unbounded::<Job>();
    Builder::new()
        .name("atmesh device".into())
        .spawn(move || {
            DEVICE.with(|d| d.set(true));
            while let Some(Job { run, index, left, own }) = next(id, &jobs) {
                // SAFETY: the closure lives until all parts have reported
                let run = unsafe { &*run };
                // `on_threads` takes panics inside the closure, so that this one never sees any
                let _ = catch_unwind(AssertUnwindSafe(|| run(index)));
                // idle before it reports, so that the next run finds it
                idle().threads.push(own);
                left.subtract(1);
            }
        })
        .map_err(|e| {
            let message = format!("the system has no thread for another device: {e}");
            let fault = Fault::new(ErrorKind::Device, message);
            fault.help("use fewer devices, or the engine `lockstep`, which needs no thread for each")
        })?;
    Ok(Thread { id, line })
}

/// What the caller of a run does while it waits for the devices.
pub(crate) struct Caller<'a> {
    /// What it sleeps on: how many devices have not ended, and rings.
    pub(crate) bell: Arc<Signal>,
    /// Done whenever it wakes.
    pub(crate) heed: &'a dyn Fn(),
    /// Done every [`PATIENCE`].
    pub(crate) late: &'a dyn Fn(),
}
/// After so long the caller looks what it waits for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs code on this thread and takes its panic, with the line if this is a device thread.
pub(crate) fn guarded<R>(code: impl FnOnce() -> R) -> Result<R, Panicked> {
    PANICKED.with(RefCell::take);
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|payload| Panicked { payload, place: PANICKED.with(RefCell::take) })
}

/// Runs `code(0)`, …, `code(n − 1)`, each on a device thread of its own, at once. Returns when all have ended, with what each
/// returned or its panic; an error where the system has not as many threads, before any has begun.
///
/// The code may borrow: it is not used after this function returns.
pub(crate) fn on_threads<R: Send>(
    n: usize,
    caller: &Caller,
    code: &(dyn Fn(usize) -> R + Sync),
) -> Result<Vec<Result<R, Panicked>>> {
    note_panics();
    let results: Vec<Mutex<Option<Result<R, Panicked>>>> = (0..n).map(|_| Mutex::new(None)).collect();
    let part = |i: usize| {
        let result = guarded(|| code(i));
        *results[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
    };
    let left = caller.bell.clone();
    let part: &(dyn Fn(usize) + Sync) = &part;
    // SAFETY: only the lifetime is erased. The closure is used by the jobs below alone, each of which counts `left` down
    // after its last use of it, and `_all` does not let this function end, by return or by panic, before `left` is 0
    let run = unsafe {
        std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
            part,
        )
    };
    struct All<'a>(&'a Caller<'a>);
    impl Drop for All<'_> {
        fn drop(&mut self) {
            let Caller { bell, heed, late } = self.0;
            let some_run = |bell| {
                heed();
                Prints::running(bell) != 0
            };
            bell.wait_watchfully(some_run, PATIENCE, late);
        }
    }
    let mut threads = {
        let mut idle = idle();
        let from = idle.threads.len().saturating_sub(n);
        idle.threads.split_off(from)
    };
    while threads.len() < n {
        match spawn() {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                idle().threads.append(&mut threads);
                return Err(error);
            }
        }
    }
    left.set(n as u32);
    let all = All(caller);
    for (index, own) in threads.into_iter().enumerate() {
        let line = own.line.clone();
        if let Err(unsent) = line.send(Job { run, index, left: left.clone(), own }) {
            // a thread never ends while its line is known; were it so, the part runs here
            part(unsent.0.index);
            left.subtract(1);
        }
    }
    drop(all);
    let results = results.into_iter().map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner()));
    Ok(results.map(|r| r.expect("each part has reported")).collect())
}

impl Panicked {
    /// The fault with which a kernel unwound.
    pub(crate) fn fault(self) -> Result<Fault, Panicked> {
        let Panicked { payload, place } = self;
        payload.downcast::<Fault>().map(|f| *f).map_err(|payload| Panicked { payload, place })
    }
    /// What it said. What device code throws is dropped only where that cannot panic: others are left.
    pub(crate) fn message(self) -> String {
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

/// Notes where device code panics. It is not printed too: it comes out as an error of the run. Panics of other threads are printed as before,
/// and so are all where a panic ends the process.
#[cfg(not(shuttle))]
fn note_panics() {
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
            PANICKED.set(info.location().map(Location::to_string));
            if std::env::var_os("RUST_BACKTRACE").is_some_and(|v| v != "0") {
                before(info);
            }
        }));
    });
}

/// Shuttle's own hook prints the order of steps that led to a panic.
#[cfg(shuttle)]
fn note_panics() {}

/// Runs code on device threads as [`on_threads`] does, for a caller who only waits.
#[cfg(test)]
pub(crate) fn on_threads_plainly<R: Send>(
    n: usize,
    code: &(dyn Fn(usize) -> R + Sync),
) -> Result<Vec<Result<R, Panicked>>> {
    on_threads(n, &Caller { bell: Arc::default(), heed: &|| (), late: &|| () }, code)
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
        let results = on_threads_plainly(5, &|i| {
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
        let results = on_threads_plainly(2, &|i| assert_eq!(i, 0, "not the first")).unwrap();
        assert!(results[0].is_ok());
        let panic = results.into_iter().nth(1).unwrap().err().unwrap();
        assert!(panic.place.as_ref().unwrap().contains("devices.rs"), "{:?}", panic.place);
        assert!(panic.message().contains("not the first"));
    }

    /// The threads of a run, as the system numbers them.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn numbers(n: usize) -> Vec<i32> {
        let barrier = Barrier::new(n);
        // SAFETY: no arguments
        let ends = on_threads_plainly(n, &|_| (barrier.wait(), unsafe { libc::gettid() }).1).unwrap();
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
        dismiss();
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
                        let sums = on_threads_plainly(n, &|i| {
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
