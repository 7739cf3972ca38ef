//! The process's workers: as many threads as there are cores, however many devices and meshes exist.
//!
//! A job is a closure that all workers and the caller run at once; inside it they meet at barriers. Waiting is bounded: first pauses,
//! then yields, then sleep. A worker that is woken is kept off the caller's processor, which it would otherwise often share for
//! milliseconds.

use super::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::*};
use super::sync::{Builder, Global, Mutex, thread_local};
use super::wait::{self, Signal};
use crossbeam_utils::CachePadded;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic's payload.
pub type Panic = Box<dyn Any + Send>;

/// All workers of the process.
pub struct Team {
    /// How many run a job, the caller among them: those for which the system had a thread.
    count: AtomicUsize,
    /// The process that has the threads, by its forks.
    forks: u32,
    /// One job at a time.
    running: Mutex<()>,
    /// Counts jobs; workers wait for the next.
    epoch: CachePadded<Signal>,
    /// How many workers have not finished the job; the caller waits for 0.
    left: CachePadded<Signal>,
    job: UnsafeCell<Option<Job>>,
    barrier: Barrier,
    panic: Mutex<Option<Panic>>,
    threads: Vec<wait::Thread>,
}
// SAFETY: `job` is written by the holder of `running` while no worker reads it: before `epoch` rises and after `left` fell to 0
unsafe impl Sync for Team {}

/// A job that outlives its use by the rules of [`Team::run`]: `run` returns when no worker holds it any more.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(&Member) + Sync));

/// Where the members of a job meet.
pub(crate) trait Meeting {
    /// Waits until all `count` members are here. False if the job must end.
    fn meet(&self, count: usize) -> bool;
}

/// One of those that run a job.
pub struct Member<'a> {
    index: usize,
    count: usize,
    barrier: Option<&'a dyn Meeting>,
}
impl std::fmt::Debug for Member<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {} of {}", self.index, self.count)
    }
}
impl<'a> Member<'a> {
    /// A member of a job that is not the team's.
    pub(crate) fn of(index: usize, count: usize, meeting: &'a dyn Meeting) -> Member<'a> {
        Member { index, count, barrier: Some(meeting) }
    }
    /// Its number: 0 is the caller.
    pub fn index(&self) -> usize {
        self.index
    }
    /// How many run the job.
    pub fn count(&self) -> usize {
        self.count
    }
    /// Waits until all members of the job are here. False if one of them panicked: then the job must end.
    #[must_use]
    pub fn barrier(&self) -> bool {
        self.barrier.is_none_or(|b| b.meet(self.count))
    }
}

/// Where the members of a job meet.
#[derive(Debug, Default)]
struct Barrier {
    here: CachePadded<AtomicU32>,
    generation: CachePadded<Signal>,
    broken: AtomicBool,
}
impl Meeting for Barrier {
    fn meet(&self, count: usize) -> bool {
        let n = count as u32;
        let generation = self.generation.get();
        if self.here.fetch_add(1, AcqRel) + 1 == n {
            self.here.store(0, Relaxed);
            self.generation.set(generation.wrapping_add(1));
        } else {
            self.generation.wait_while(|g| g == generation && !self.broken.load(Acquire));
        }
        !self.broken.load(Acquire)
    }
}
impl Barrier {
    fn destroy(&self) {
        self.broken.store(true, SeqCst);
        // several members may panic at once: each counts, so that the number does not come back to what a waiter saw
        self.generation.add(1);
    }
    /// Ready for the next job. Nobody waits at it.
    fn mend(&self) {
        self.here.store(0, Relaxed);
        self.broken.store(false, SeqCst);
    }
}

thread_local! {
    /// Whether this thread runs a job.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}
fn busy(yes: bool) {
    BUSY.with(|b| b.set(yes));
}

/// The process's workers, started when they are first asked for.
///
/// There are as many as the process may use cores, or as `ATMESH_WORKERS` says.
pub fn team() -> &'static Team {
    static TEAM: Global<&'static Team> = Global::new(|| {
        let asked = std::env::var("ATMESH_WORKERS").ok().and_then(|s| s.parse::<usize>().ok());
        // under shuttle tests start their own
        let cores =
            if cfg!(shuttle) { 1 } else { std::thread::available_parallelism().map_or(1, |n| n.get()) };
        Team::start(asked.unwrap_or(cores).clamp(1, 1024))
    });
    TEAM.get()
}

impl Team {
    /// A team of this many, the caller among them. Its threads live as long as the process, or until it is closed.
    pub(crate) fn start(count: usize) -> &'static Team {
        Team::start_by(count, |name, work| Builder::new().name(name).spawn(work).map(|_| ()))
    }
    /// The same where `spawn` starts threads. Where it fails the team is of those that started.
    fn start_by(
        count: usize,
        spawn: impl Fn(String, Box<dyn FnOnce() + Send>) -> std::io::Result<()>,
    ) -> &'static Team {
        let team: &'static Team = Box::leak(Box::new(Team {
            count: AtomicUsize::new(1),
            forks: wait::forks(),
            running: Mutex::new(()),
            epoch: Default::default(),
            left: Default::default(),
            job: UnsafeCell::new(None),
            barrier: Barrier::default(),
            panic: Mutex::new(None),
            threads: (1..count).map(|_| wait::Thread::default()).collect(),
        }));
        for (i, thread) in team.threads.iter().enumerate() {
            if spawn(format!("atmesh worker {}", i + 1), Box::new(move || team.work(i + 1, thread))).is_err()
            {
                break;
            }
            team.count.store(i + 2, Relaxed);
        }
        team
    }
    /// How many run a job, the caller among them.
    pub fn workers(&self) -> usize {
        self.count.load(Relaxed)
    }
    fn work(&self, index: usize, thread: &wait::Thread) {
        thread.enter();
        busy(true);
        let mut seen = 0;
        loop {
            self.epoch.wait_while(|e| e == seen);
            seen = seen.wrapping_add(1);
            // SAFETY: the job was written before the epoch rose, and is not changed before this worker has reported
            let job = unsafe { *self.job.get() };
            let Some(Job(job)) = job else { return };
            // SAFETY: the caller of `run` holds the closure until all workers have reported
            self.member(index, unsafe { &*job });
            self.left.subtract(1);
        }
    }
    /// Ends its threads; the team is not used again.
    #[cfg(all(test, shuttle))]
    pub(crate) fn close(&self) {
        // SAFETY: no job runs any more, and none will
        unsafe { *self.job.get() = None }
        self.epoch.set(self.epoch.get().wrapping_add(1));
    }
    /// Runs the job as this member and keeps its panic; never unwinds.
    fn member(&self, index: usize, job: &(dyn Fn(&Member) + Sync)) {
        let me = Member { index, count: self.workers(), barrier: Some(&self.barrier) };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&me))) {
            let mut first = self.panic.lock().unwrap_or_else(|e| e.into_inner());
            match &*first {
                None => *first = Some(panic),
                // not dropped: that may panic too, and nothing unwinds from here
                Some(_) => std::mem::forget(panic),
            }
            drop(first);
            self.barrier.destroy();
        }
    }
    /// Runs a closure on all workers at once; the caller is member 0. A panic of any of them is returned, after all have ended.
    ///
    /// On the caller alone (one member) where it is called from inside a job, where another thread's job holds the workers, and in a
    /// process that was forked from the one that has them.
    pub fn run(&self, job: &(dyn Fn(&Member) + Sync)) -> Result<(), Panic> {
        let count = self.workers();
        let alone = count == 1 || BUSY.with(Cell::get) || wait::forks() != self.forks;
        let held = if alone { None } else { self.running.try_lock().ok() };
        let Some(held) = held else {
            let alone = Member { index: 0, count: 1, barrier: None };
            let before = BUSY.with(|b| b.replace(true));
            let ran = catch_unwind(AssertUnwindSafe(|| job(&alone)));
            busy(before);
            return ran;
        };
        // SAFETY: the lifetime is erased for the workers only, and this function does not return before all of them are done
        // with it: `member` does not unwind, and `left` falls to 0 when each has returned from it
        let erased = unsafe {
            std::mem::transmute::<*const (dyn Fn(&Member) + Sync + '_), *const (dyn Fn(&Member) + Sync)>(job)
        };
        // SAFETY: this thread holds `running`, and no worker runs
        unsafe { *self.job.get() = Some(Job(erased)) }
        self.left.set(count as u32 - 1);
        // the caller may have moved onto the only processor that a worker may use, so it is asked each time
        let here = wait::current();
        for thread in &self.threads[..count - 1] {
            thread.avoid(here);
        }
        self.epoch.set(self.epoch.get().wrapping_add(1));
        busy(true);
        self.member(0, job);
        busy(false);
        self.left.wait_while(|n| n != 0);
        self.barrier.mend();
        let panic = self.panic.lock().unwrap_or_else(|e| e.into_inner()).take();
        drop(held);
        panic.map_or(Ok(()), Err)
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use std::sync::OnceLock;

    fn four() -> &'static Team {
        static TEAM: OnceLock<&'static Team> = OnceLock::new();
        TEAM.get_or_init(|| Team::start(4))
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
                    let want = me.count() * (me.count() + 1) / 2;
                    seen.fetch_add((sum.load(SeqCst) == want) as usize, SeqCst);
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
            let team = Team::start_by(6, |name, work| {
                if started.fetch_add(1, SeqCst) == most {
                    return Err(std::io::ErrorKind::WouldBlock.into());
                }
                Builder::new().name(name).spawn(work).map(|_| ())
            });
            assert_eq!(team.workers(), most + 1);
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
