//! The thread pool of the process, with one worker per core unless `ATMESH_WORKERS` is set.
//!
//! The number of devices and meshes does not matter. A job is a closure that all workers, including
//! the caller, run concurrently; inside it they meet at barriers. A waiting thread spins for a
//! bounded time, then yields, then parks. On Linux, a worker that is woken is kept off the caller's
//! processor, which the two threads would otherwise often share for milliseconds.

use super::park::{self, Signal};
use super::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use super::sync::{Builder, Global, Mutex, thread_local};
use crate::core::Fault;
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The payload of a panic.
pub type PanicPayload = Box<dyn Any + Send>;

/// The thread pool of the process.
pub struct ThreadPool {
    /// The number of workers of a job, the caller included. Workers whose thread failed to start do
    /// not count.
    count: AtomicUsize,
    /// The fork count of the process that owns the threads.
    forks: u32,
    /// Held while a job runs, since there is one job at a time.
    running: Mutex<()>,
    /// The number of jobs so far; workers wait for it to change.
    epoch: CachePadded<Signal>,
    /// The number of workers that have not finished the job; the caller waits for 0.
    remaining: CachePadded<Signal>,
    job: UnsafeCell<Option<PoolJob>>,
    barrier: PoolBarrier,
    panic: Mutex<Option<PanicPayload>>,
    threads: Vec<park::WorkerThread>,
}
// SAFETY: `job` is written only by the holder of `running`, while no worker reads it: after
// `remaining` has fallen to 0 and before `epoch` changes.
unsafe impl Sync for ThreadPool {}

/// A pointer to the closure of a job, valid until [`ThreadPool::run`] returns, which is after every
/// worker has finished.
#[derive(Clone, Copy)]
struct PoolJob(*const (dyn Fn(&Worker) + Sync));

/// A barrier for the workers of a job.
pub(crate) trait WorkerBarrier {
    /// Waits until all `count` workers have arrived. Returns false if the job must end.
    fn wait_all(&self, count: usize) -> bool;
}

/// One of the threads that run a job, as the job's closure sees it.
pub struct Worker<'a> {
    index: usize,
    count: usize,
    barrier: Option<&'a dyn WorkerBarrier>,
}
impl std::fmt::Debug for Worker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {} of {}", self.index, self.count)
    }
}
impl<'a> Worker<'a> {
    /// Creates a worker of a job that does not run on the thread pool.
    pub(crate) fn new(index: usize, count: usize, meeting: &'a dyn WorkerBarrier) -> Worker<'a> {
        Worker { index, count, barrier: Some(meeting) }
    }
    /// Returns the worker's index; 0 is the caller.
    pub fn index(&self) -> usize {
        self.index
    }
    /// Returns the number of workers of the job.
    pub fn count(&self) -> usize {
        self.count
    }
    /// Waits until all workers of the job have arrived. Returns false if one of them panicked; then
    /// the job must end.
    #[must_use]
    pub fn barrier(&self) -> bool {
        self.barrier.is_none_or(|b| b.wait_all(self.count))
    }
}

/// The barrier of the pool's jobs. It is poisoned when a worker panics.
#[derive(Debug, Default)]
struct PoolBarrier {
    arrived: CachePadded<AtomicU32>,
    generation: CachePadded<Signal>,
    broken: AtomicBool,
}
impl WorkerBarrier for PoolBarrier {
    fn wait_all(&self, count: usize) -> bool {
        let n = count as u32;
        let generation = self.generation.get();
        if self.arrived.fetch_add(1, AcqRel) + 1 == n {
            self.arrived.store(0, Relaxed);
            self.generation.set(generation.wrapping_add(1));
        } else {
            self.generation.wait_while(|g| g == generation && !self.broken.load(Acquire));
        }
        !self.broken.load(Acquire)
    }
}
impl PoolBarrier {
    fn poison(&self) {
        self.broken.store(true, SeqCst);
        // several workers may panic: each one counts, so that the generation does not return to a
        // value that a waiter has seen
        self.generation.add(1);
    }
    /// Prepares the barrier for the next job. No worker may be waiting at it.
    fn reset(&self) {
        self.arrived.store(0, Relaxed);
        self.broken.store(false, SeqCst);
    }
}

thread_local! {
    /// True while this thread runs a job.
    static IN_JOB: Cell<bool> = const { Cell::new(false) };
}
fn set_in_job(yes: bool) {
    IN_JOB.with(|b| b.set(yes));
}

/// Returns the thread pool of the process, which is started on first use.
///
/// It has as many workers as the process may use cores, or as many as `ATMESH_WORKERS` says.
pub fn thread_pool() -> &'static ThreadPool {
    static TEAM: Global<&'static ThreadPool> = Global::new(|| {
        let asked = requested_workers().ok().flatten();
        // under shuttle, tests start their own pools
        let cores =
            if cfg!(shuttle) { 1 } else { std::thread::available_parallelism().map_or(1, |n| n.get()) };
        ThreadPool::start(asked.unwrap_or(cores).clamp(1, MAX_WORKERS))
    });
    TEAM.get()
}

/// The maximum number of workers of the process's pool.
const MAX_WORKERS: usize = 1024;

/// Returns the number of workers that `ATMESH_WORKERS` asks for; `None` if it is unset or empty.
///
/// # Errors
/// The variable is not a number from 1 to `MAX_WORKERS`.
pub(crate) fn requested_workers() -> Result<Option<usize>, Fault> {
    let Some(text) = std::env::var_os("ATMESH_WORKERS").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.to_str().and_then(|text| text.parse().ok()) {
        Some(count @ 1..=MAX_WORKERS) => Ok(Some(count)),
        _ => Err(fault!(Syntax, "ATMESH_WORKERS is {text:?}, which is no number of workers")
            .help(format!("set it to a number from 1 to {MAX_WORKERS}, or unset it to use all cores"))),
    }
}

impl ThreadPool {
    /// Starts a pool of `count` workers, the caller included.
    ///
    /// Its threads live as long as the process, or until the pool is shut down.
    pub(crate) fn start(count: usize) -> &'static ThreadPool {
        ThreadPool::start_with(count, |name, work| Builder::new().name(name).spawn(work).map(|_| ()))
    }
    /// Starts a pool whose threads `spawn` starts. If that fails, the pool has the workers that
    /// were started before.
    fn start_with(
        count: usize,
        spawn: impl Fn(String, Box<dyn FnOnce() + Send>) -> std::io::Result<()>,
    ) -> &'static ThreadPool {
        let team: &'static ThreadPool = Box::leak(Box::new(ThreadPool {
            count: AtomicUsize::new(1),
            forks: park::fork_count(),
            running: Mutex::new(()),
            epoch: Default::default(),
            remaining: Default::default(),
            job: UnsafeCell::new(None),
            barrier: PoolBarrier::default(),
            panic: Mutex::new(None),
            threads: (1..count).map(|_| park::WorkerThread::default()).collect(),
        }));
        for (i, thread) in team.threads.iter().enumerate() {
            if spawn(format!("atmesh worker {}", i + 1), Box::new(move || team.worker_loop(i + 1, thread)))
                .is_err()
            {
                break;
            }
            team.count.store(i + 2, Relaxed);
        }
        team
    }
    /// Returns the number of workers of a job, the caller included.
    pub fn num_workers(&self) -> usize {
        self.count.load(Relaxed)
    }
    fn worker_loop(&self, index: usize, thread: &park::WorkerThread) {
        thread.register();
        set_in_job(true);
        let mut seen = 0;
        loop {
            self.epoch.wait_while(|e| e == seen);
            seen = seen.wrapping_add(1);
            // SAFETY: the job was written before the epoch changed, and is not written again before
            // this worker has decremented `remaining`.
            let job = unsafe { *self.job.get() };
            let Some(PoolJob(job)) = job else { return };
            // SAFETY: the caller of `run` keeps the closure alive until all workers have
            // decremented `remaining`.
            self.run_as_worker(index, unsafe { &*job });
            self.remaining.subtract(1);
        }
    }
    /// Ends the threads of the pool, which must not be used again.
    #[cfg(all(test, shuttle))]
    pub(crate) fn shut_down(&self) {
        // SAFETY: no job runs, and none will, so no worker reads `job` (it reads after the next
        // epoch).
        unsafe { *self.job.get() = None }
        self.epoch.set(self.epoch.get().wrapping_add(1));
    }
    /// Runs the job as the worker `index`, and stores its panic. Never unwinds.
    fn run_as_worker(&self, index: usize, job: &(dyn Fn(&Worker) + Sync)) {
        let me = Worker { index, count: self.num_workers(), barrier: Some(&self.barrier) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&me))) {
            let mut first = self.panic.lock().unwrap_or_else(|e| e.into_inner());
            match &*first {
                None => *first = Some(panic),
                // leaked, because its drop may panic, and nothing may unwind from here
                Some(_) => std::mem::forget(panic),
            }
            drop(first);
            self.barrier.poison();
        }
    }
    /// Runs a closure on all workers concurrently; the caller is worker 0.
    ///
    /// If a worker panics, its payload is returned as an error after all workers have ended. The
    /// caller runs the job alone, as the only worker, if it is inside a job already, if another
    /// thread's job occupies the pool, or if the process was forked from the one that owns the
    /// threads.
    pub fn run(&self, job: &(dyn Fn(&Worker) + Sync)) -> Result<(), PanicPayload> {
        let count = self.num_workers();
        let alone = count == 1 || IN_JOB.with(Cell::get) || park::fork_count() != self.forks;
        let held = if alone { None } else { self.running.try_lock().ok() };
        let Some(held) = held else {
            let alone = Worker { index: 0, count: 1, barrier: None };
            let before = IN_JOB.with(|b| b.replace(true));
            let ran = catch_unwind(AssertUnwindSafe(|| job(&alone)));
            set_in_job(before);
            return ran;
        };
        // SAFETY: only the lifetime is erased, for the workers. This function does not return
        // before all of them are done with the closure: `run_as_worker` does not unwind, and
        // `remaining` is 0 only after each worker has returned from it.
        let erased = unsafe {
            std::mem::transmute::<*const (dyn Fn(&Worker) + Sync + '_), *const (dyn Fn(&Worker) + Sync)>(job)
        };
        // SAFETY: this thread holds `running`, and no worker reads `job` before the epoch changes.
        unsafe { *self.job.get() = Some(PoolJob(erased)) }
        self.remaining.set(count as u32 - 1);
        // looked up for each job, because the caller may have moved onto the only processor that a
        // worker may use
        let here = park::current_cpu();
        for thread in &self.threads[..count - 1] {
            thread.avoid_cpu(here);
        }
        self.epoch.set(self.epoch.get().wrapping_add(1));
        set_in_job(true);
        self.run_as_worker(0, job);
        set_in_job(false);
        self.remaining.wait_while(|n| n != 0);
        self.barrier.reset();
        let panic = self.panic.lock().unwrap_or_else(|e| e.into_inner()).take();
        drop(held);
        panic.map_or(Ok(()), Err)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::OnceLock;

    fn four() -> &'static ThreadPool {
        static TEAM: OnceLock<&'static ThreadPool> = OnceLock::new();
        TEAM.get_or_init(|| ThreadPool::start(4))
    }

    #[test]
    fn all_members_run_and_meet() {
        let rounds = if cfg!(miri) { 3 } else { 200 };
        for _ in 0..rounds {
            let sum = AtomicUsize::new(0);
            let seen = AtomicUsize::new(0);
            four()
                .run(&|me| {
                    sum.fetch_add(me.index() + 1, SeqCst);
                    assert!(me.barrier());
                    let expected = me.count() * (me.count() + 1) / 2;
                    seen.fetch_add((sum.load(SeqCst) == expected) as usize, SeqCst);
                    assert!(me.barrier());
                })
                .unwrap();
            let (sum, seen) = (sum.into_inner(), seen.into_inner());
            assert!((sum, seen) == (10, 4) || (sum, seen) == (1, 1), "{sum} {seen}");
        }
    }

    #[test]
    fn a_panic_ends_those_that_wait_and_is_returned() {
        for who in [0, 2] {
            let result = four().run(&|me| {
                if me.index() == who || me.count() == 1 {
                    panic!("on {who}");
                }
                while me.barrier() {}
            });
            let payload = result.unwrap_err();
            assert_eq!(payload.downcast_ref::<String>().unwrap(), &format!("on {who}"));
            four().run(&|me| assert!(me.barrier())).unwrap();
        }
    }

    #[test]
    fn a_team_is_of_those_for_which_there_are_threads() {
        for most in [0, 2] {
            let started = AtomicUsize::new(0);
            let team = ThreadPool::start_with(6, |name, work| {
                if started.fetch_add(1, SeqCst) == most {
                    return Err(std::io::ErrorKind::WouldBlock.into());
                }
                Builder::new().name(name).spawn(work).map(|_| ())
            });
            assert_eq!(team.num_workers(), most + 1);
            let ran = AtomicUsize::new(0);
            team.run(&|me| {
                assert!(me.count() == most + 1 && me.barrier());
                ran.fetch_add(1, SeqCst);
            })
            .unwrap();
            assert_eq!(ran.into_inner(), most + 1);
        }
    }

    #[test]
    fn a_job_inside_a_job_runs_alone() {
        let inner = AtomicUsize::new(0);
        four()
            .run(&|_| {
                four()
                    .run(&|me| {
                        assert_eq!(me.count(), 1);
                        inner.fetch_add(1, SeqCst);
                    })
                    .unwrap();
            })
            .unwrap();
        assert!([1, 4].contains(&inner.into_inner()));
    }

    #[test]
    fn callers_do_not_wait_for_each_other() {
        let done = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..if cfg!(miri) { 3 } else { 20 } {
                        four()
                            .run(&|me| {
                                if me.index() == 0 {
                                    done.fetch_add(1, SeqCst);
                                }
                                assert!(me.barrier());
                            })
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), if cfg!(miri) { 12 } else { 80 });
    }
}
