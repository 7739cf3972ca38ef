//! Device threads: one operating-system thread a device, kept for the next run.

use super::sync::channel::{Sender, unbounded};
use super::sync::{Builder, Global, Mutex, MutexGuard, thread_local};
use super::wait::Signal;
use crate::diagnostic::{Error, Result};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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

/// Part `index` of a run, as a thread gets it.
struct Job {
    run: *const (dyn Fn(usize) + Sync),
    index: usize,
    left: Arc<Signal>,
    /// The thread's own line, which it lays with the idle ones when the part is done.
    line: Sender<Job>,
}
// SAFETY: the closure is Sync, and outlives the job by the rules of `on_threads`
unsafe impl Send for Job {}

/// The lines of threads that wait for a job. A thread ends when its line is dropped.
static IDLE: Global<Mutex<Vec<Sender<Job>>>> = Global::new(Mutex::default);

fn idle() -> MutexGuard<'static, Vec<Sender<Job>>> {
    IDLE.get().lock().unwrap_or_else(|e| e.into_inner())
}

/// Ends the threads that wait for a job.
#[cfg(all(test, shuttle))]
pub(crate) fn dismiss() {
    let lines = std::mem::take(&mut *idle());
    drop(lines);
}

fn spawn() -> Result<Sender<Job>> {
    let (line, jobs) = unbounded::<Job>();
    Builder::new()
        .name("atmesh device".into())
        .spawn(move || {
            DEVICE.with(|d| d.set(true));
            for Job { run, index, left, line } in jobs {
                // SAFETY: the closure lives until all parts have reported
                let run = unsafe { &*run };
                // `on_threads` takes panics inside the closure, so that this one never sees any
                let _ = catch_unwind(AssertUnwindSafe(|| run(index)));
                // idle before it reports, so that the next run finds it
                idle().push(line);
                left.subtract(1);
            }
        })
        .map_err(|e| Error::other(format!("the system has no thread for another device: {e}")))?;
    Ok(line)
}

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
    code: &(dyn Fn(usize) -> R + Sync),
) -> Result<Vec<Result<R, Panicked>>> {
    note_panics();
    let results: Vec<Mutex<Option<Result<R, Panicked>>>> = (0..n).map(|_| Mutex::new(None)).collect();
    let part = |i: usize| {
        let result = guarded(|| code(i));
        *results[i].lock().unwrap_or_else(|e| e.into_inner()) = Some(result);
    };
    let left = Arc::new(Signal::default());
    let part: &(dyn Fn(usize) + Sync) = &part;
    // SAFETY: only the lifetime is erased. The closure is used by the jobs below alone, each of which counts `left` down
    // after its last use of it, and `_all` does not let this function end, by return or by panic, before `left` is 0
    let run = unsafe {
        std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
            part,
        )
    };
    struct All(Arc<Signal>);
    impl Drop for All {
        fn drop(&mut self) {
            self.0.wait_politely(|n| n != 0);
        }
    }
    let mut threads = {
        let mut idle = idle();
        let from = idle.len().saturating_sub(n);
        idle.split_off(from)
    };
    while threads.len() < n {
        match spawn() {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                idle().append(&mut threads);
                return Err(error);
            }
        }
    }
    left.set(n as u32);
    let all = All(left.clone());
    for (index, line) in threads.into_iter().enumerate() {
        if let Err(unsent) = line.send(Job { run, index, left: left.clone(), line: line.clone() }) {
            // a thread never ends while its line is known; were it so, the part runs here
            part(unsent.0.index);
            left.subtract(1);
        }
    }
    drop(all);
    let results = results.into_iter().map(|r| r.into_inner().unwrap_or_else(|e| e.into_inner()));
    Ok(results.map(|r| r.expect("each part has reported")).collect())
}

/// What a panic said.
pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Notes where device code panics. It is not printed too: it comes out as an error of the run. Panics of other threads are printed as before.
#[cfg(not(shuttle))]
fn note_panics() {
    use std::{panic::Location, sync::Once};
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !on_device_thread() {
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn parts_run_at_once_and_may_borrow() {
        let barrier = Barrier::new(5);
        let sum = AtomicUsize::new(0);
        let results = on_threads(5, &|i| {
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
        let results = on_threads(2, &|i| assert_eq!(i, 0, "not the first")).unwrap();
        assert!(results[0].is_ok());
        let panic = results[1].as_ref().err().unwrap();
        assert!(message(&*panic.payload).contains("not the first"));
        assert!(panic.place.as_ref().unwrap().contains("devices.rs"), "{:?}", panic.place);
    }

    #[test]
    fn runs_of_different_callers_do_not_mix() {
        std::thread::scope(|s| {
            for k in 0..4 {
                s.spawn(move || {
                    for _ in 0..if cfg!(miri) { 3 } else { 20 } {
                        let n = 1 + k;
                        let meet = Barrier::new(n);
                        let sums = on_threads(n, &|i| {
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
