//! The lock-step engine: runs one compiled plan for all devices on a pool of worker threads.
//!
//! The plan covers global arrays: all shards of an array are in one buffer, and a device is a set
//! of boxes in these arrays. Each level of the plan is divided into tasks by size, and a barrier
//! separates two levels. So devices determine the blocks of values and the order in which sums are
//! evaluated, but not the thread that computes an element. A small program runs inline on the
//! caller's thread.

mod bound_body;
mod initial_copy;
mod profile;
mod run;
#[cfg(all(test, shuttle))]
#[path = "tests/shuttle.rs"]
mod shuttle_tests;
#[cfg(test)]
pub(crate) mod tests;

use super::threads::{self, ProgramDevices};
use super::{CompileRequest, Engine, Executable, ExecutionReport, Failure};
use crate::core::{DType, Error, Fault, Result, Shape};
use crate::exec::compile::plan::{BufferLocation, CompiledPlan, DonatedBuffer, DonationPurpose, ResultPlan};
use crate::exec::runtime::thread_pool::{Worker, thread_pool};
use crate::exec::runtime::{ArrayData, Buffer, check_available};
use crate::exec::{
    compile, compile::codegen::interpreter, compile::flush_subnormals::flush_subnormals,
    runtime::clock::nanoseconds, runtime::park::Signal, runtime::print_queue::PrintQueue,
    runtime::sync::atomic::AtomicUsize, runtime::sync::atomic::Ordering::Relaxed,
};
use crate::kernels::{buffer::Guards, flush_mode::FlushMode};
use crate::partition::{Slot, SpmdProgram, plan::Timeline};
use run::{RunMark, Runner};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::Arc;

/// The lock-step engine.
#[derive(Debug)]
pub(crate) struct Lockstep;

/// The estimated cost in microseconds below which a program may run on the caller's thread.
const MAX_INLINE_MICROS: f64 = 60.0;
/// The estimated cost in microseconds from which waking workers pays off if they still spin.
const MIN_SPINNING_MICROS: f64 = 8.0;
/// The time in nanoseconds for which an idle worker spins before it sleeps.
const WORKER_SPIN_NANOS: usize = 100_000;

impl Engine for Lockstep {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(LockstepExecutable::from_request(&job, None)?))
    }
}

/// The type of an argument or result: element type, shape, and number of partial values.
type BoundaryType = (DType, Shape, usize);

/// A compiled program of the lock-step or the threads engine.
pub(super) struct LockstepExecutable {
    compiled: CompiledPlan,
    ins: Vec<BoundaryType>,
    outs: Vec<BoundaryType>,
    /// The size in bytes of one device's blocks of all inputs, and of its block of each result.
    block_bytes: (usize, Vec<usize>),
    /// The number of devices that the program is for; at least 1.
    num_devices: usize,
    /// True if no level has more than one task.
    sequential: bool,
    /// An override of the decision to run inline; `None` if the cost decides. Set by tests.
    force_inline: Option<bool>,
    /// The devices, each with its own thread; `None` if the pool of workers runs the program.
    devices: Option<ProgramDevices>,
    /// True if kernels run in the mode that flushes subnormal numbers.
    flushes: bool,
    /// The time of the last call, in nanoseconds.
    last_call_nanos: AtomicUsize,
}

/// A log of the marks of each worker, with the worker's index.
#[derive(Default)]
struct MarkLog(std::sync::Mutex<Vec<(usize, Vec<RunMark>)>>);

/// Adds a worker's marks to the log, if there is one.
fn record_marks(clock: Option<&MarkLog>, member: usize, marks: Option<Vec<RunMark>>) {
    if let (Some(clock), Some(marks)) = (clock, marks) {
        clock.0.lock().unwrap_or_else(|e| e.into_inner()).push((member, marks));
    }
}

/// A table of base pointers that all workers share.
struct SharedTable<'a>(&'a [*mut u8]);
// SAFETY: workers write through the pointers as the plan says: no two workers access the same
// element between two barriers if one of them writes it (guaranteed by the planner)
unsafe impl Sync for SharedTable<'_> {}

impl LockstepExecutable {
    /// Compiles the requested program.
    pub(super) fn from_request(job: &CompileRequest<'_>, forced: Option<bool>) -> Result<LockstepExecutable> {
        if !job.flush_subnormals {
            return LockstepExecutable::new(job.spmd, job.donated, forced);
        }
        let compiled = LockstepExecutable::new(&flush_subnormals(job.spmd), job.donated, forced)?;
        Ok(LockstepExecutable { flushes: true, ..compiled })
    }
    fn new(p: &SpmdProgram, donated: &[bool], forced: Option<bool>) -> Result<LockstepExecutable> {
        let kind = |s: &Slot| {
            let v = &p.slots[*s];
            let copies = v.layout.partial.as_ref().map_or(1, |p| p.1.iter().map(|a| a.size).product());
            (v.dtype.storage(), v.shape.clone(), copies)
        };
        let block = |s: &Slot| p.slots[*s].block_bytes();
        let compiled = compile::compile(p, donated)?;
        Ok(LockstepExecutable {
            sequential: compiled.plan.is_sequential(),
            compiled,
            ins: p.ins.iter().map(kind).collect(),
            outs: p.outs.iter().map(kind).collect(),
            block_bytes: (saturating_sum(p.ins.iter().map(block)), p.outs.iter().map(block).collect()),
            num_devices: p.devices.max(1),
            force_inline: forced,
            devices: None,
            flushes: false,
            last_call_nanos: AtomicUsize::new(0),
        })
    }
    /// Returns the executable of the program `p`, changed to run with one thread per device.
    pub(super) fn on_device_threads(mut self, p: &SpmdProgram) -> LockstepExecutable {
        let devices = ProgramDevices::of_program(p);
        threads::limit_tasks(&mut self.compiled.plan, devices.count);
        self.devices = Some(devices);
        self
    }
    /// Returns true if this call runs on the caller's thread.
    fn runs_inline(&self) -> bool {
        let cost = self.compiled.plan.cost_us;
        match self.force_inline {
            Some(inline) => inline,
            None if self.sequential => true,
            None if cost >= MAX_INLINE_MICROS => false,
            None if cost < MIN_SPINNING_MICROS => true,
            None => {
                // if the program is called again soon, workers that are woken now will still spin
                let now = nanoseconds();
                now - self.last_call_nanos.swap(now, Relaxed).min(now) >= WORKER_SPIN_NANOS
            }
        }
    }
    fn check(&self, args: &[ArrayData]) -> Result<()> {
        if args.len() != self.ins.len() {
            let (got, want) = (args.len(), self.ins.len());
            return Err(Error::internal(format!("a program of {want} inputs was called with {got}")));
        }
        for (k, (a, (dtype, shape, copies))) in args.iter().zip(&self.ins).enumerate() {
            if a.dtype() != *dtype || a.shape() != shape || a.num_partials() != *copies {
                return Err(Error::internal(format!(
                    "input {k} is {}{} with {} partial values, but the program takes {dtype}{shape} with {copies}",
                    a.dtype(),
                    a.shape(),
                    a.num_partials()
                )));
            }
        }
        Ok(())
    }
}

/// The buffers of results: fresh buffers, and those of donated arguments.
type ResultBuffers = [SmallVec<[Arc<Buffer>; 2]>; 2];

impl LockstepExecutable {
    /// Runs the program; if there is a log, each worker adds its marks to it.
    fn run(&self, args: &mut [ArrayData], clock: Option<&MarkLog>) -> Result<ResultBuffers, Failure> {
        self.check(args)?;
        let c = &self.compiled;
        check_available(c.fresh_bytes.iter().fold(c.arena_bytes, |sum, n| sum.saturating_add(*n)))?;
        let mut fresh: SmallVec<[Arc<Buffer>; 2]> = SmallVec::new();
        for n in &c.fresh_bytes {
            fresh.push(Arc::new(Buffer::allocate(*n)?));
        }
        // a donated argument that has other handles keeps its value: use a new buffer instead
        let own = |g: &DonatedBuffer, args: &mut [ArrayData]| match args[g.arg].unique_buffer() {
            Some(own) => Ok(own),
            None => Buffer::allocate(g.bytes).map(Arc::new),
        };
        let mut given: SmallVec<[Arc<Buffer>; 2]> = SmallVec::new();
        for g in &c.donated {
            given.push(own(g, args)?);
        }
        if c.plan.levels.is_empty() {
            return Ok([fresh, given]);
        }
        let mut arena = if c.arena_bytes > 0 { Some(Buffer::allocate(c.arena_bytes)?) } else { None };
        let arena = arena.as_mut().map_or(std::ptr::null_mut(), Buffer::as_mut_ptr);
        // the base address of each slot
        let mut base: SmallVec<[*mut u8; 16]> = SmallVec::with_capacity(c.locations.len());
        for location in &c.locations {
            base.push(match *location {
                BufferLocation::Argument(i) => args[i].contiguous()?.as_ptr().cast_mut(),
                BufferLocation::Result(i) => fresh[i].as_ptr().cast_mut(),
                BufferLocation::Arena(at) => arena.wrapping_add(at),
                BufferLocation::Donated(donation, at) => given[donation].as_ptr().cast_mut().wrapping_add(at),
                BufferLocation::None | BufferLocation::LoopControlled => std::ptr::null_mut(),
            });
        }
        let guards = c.guards.iter().map(|(slot, bytes)| (base[*slot as usize], *bytes));
        // SAFETY: the arena has the bytes of each guard, and outlives them (it is declared first). No
        // value has these bytes (guaranteed by the planner).
        let _guards = (!c.guards.is_empty()).then(|| unsafe { Guards::new(guards) });
        // SAFETY: the table points to buffers of the sizes that the plan needs (`check` has compared
        // the arguments). The plan writes only fresh buffers, the arena, and donated arguments
        // without other handles (`unique_buffer`), the latter after their last reads (guaranteed by
        // the planner).
        unsafe {
            if self.devices.is_none() && self.runs_inline() {
                self.run_inline(&mut base, clock)?;
            } else {
                self.run_on_workers(&base, clock)?;
            }
        }
        Ok([fresh, given])
    }
    /// Runs the plan on the caller's thread.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies to the table `base`.
    unsafe fn run_inline(&self, base: &mut [*mut u8], clock: Option<&MarkLog>) -> Result<(), Failure> {
        let prints = PrintQueue::default();
        let ran = Failure::catch(|| {
            let _mode = self.flushes.then(FlushMode::on);
            interpreter::with_scratch(|scratch| {
                let (counters, rounds) = (&[][..], Vec::new());
                let marks = clock.map(|_| Vec::new());
                let mut r = Runner { worker: None, counters, rounds, prints: &prints, scratch, marks };
                // SAFETY: the table is valid, and its writes are exclusive (caller contract).
                let ran = unsafe { r.run_plan(&self.compiled.plan, base) };
                record_marks(clock, 0, r.marks);
                ran
            })
        })?;
        debug_assert!(ran.is_ok(), "a single worker cannot be aborted by others");
        Ok(())
    }
    /// Runs the plan on the worker pool, or on one thread for each device.
    ///
    /// # Safety
    /// The contract of [`Runner::run_plan`] applies to the table `base`.
    unsafe fn run_on_workers(&self, base: &[*mut u8], clock: Option<&MarkLog>) -> Result<(), Failure> {
        let c = &self.compiled;
        let wakeup = self.devices.as_ref().map(|_| Arc::<Signal>::default());
        let prints = wakeup.clone().map_or_else(PrintQueue::default, PrintQueue::with_wakeup);
        // with the threads engine each device has a fixed share of every level
        let dynamic = if self.devices.is_none() { c.num_levels } else { 0 };
        let counters: Vec<AtomicUsize> = (0..dynamic).map(|_| AtomicUsize::new(0)).collect();
        let shared = SharedTable(base);
        let job = |m: &Worker| {
            let SharedTable(base) = &shared;
            let mut base = base.to_vec();
            let _mode = self.flushes.then(FlushMode::on);
            interpreter::with_scratch(|scratch| {
                let rounds = vec![0; c.num_levels];
                let (member, counters, prints) = (Some(m), &counters[..], &prints);
                let marks = clock.map(|_| Vec::new());
                let mut r = Runner { worker: member, counters, rounds, prints, scratch, marks };
                // SAFETY: the table is valid, and its writes are exclusive (caller contract); every
                // worker has a separate copy of it. An error means that another worker panicked,
                // which `run` reports.
                let _ = unsafe { r.run_plan(&c.plan, &mut base) };
                record_marks(clock, m.index(), r.marks);
            });
        };
        match (&self.devices, wakeup) {
            (Some(devices), Some(wakeup)) => {
                let ran = devices.run(wakeup, &prints, &job);
                ran.map_err(|error| Failure { error, inputs_intact: false })
            }
            _ => {
                let ran = thread_pool().run(&job);
                prints.flush();
                ran.map(|_| ()).map_err(Failure::from_panic)
            }
        }
    }
    /// Returns all results after the run.
    fn results(&self, args: &[ArrayData], made: &ResultBuffers) -> Result<Vec<ArrayData>, Failure> {
        (0..self.outs.len()).map(|k| self.result(k, args, made)).collect()
    }
    /// Returns result `k` after the run.
    fn result(
        &self,
        k: usize,
        args: &[ArrayData],
        [fresh, given]: &ResultBuffers,
    ) -> Result<ArrayData, Failure> {
        let (dtype, shape, copies) = &self.outs[k];
        Ok(match &self.compiled.results[k] {
            ResultPlan::Fresh(i) => ArrayData::new(*dtype, shape.clone(), *copies, fresh[*i].clone()),
            ResultPlan::Donated(i) => ArrayData::new(*dtype, shape.clone(), *copies, given[*i].clone()),
            ResultPlan::Argument(i) => {
                args[*i].reshaped(*dtype, shape.clone(), *copies).map_err(failure_after_run)?
            }
            ResultPlan::View { arg, block, blocks } => {
                args[*arg].select_blocks(*dtype, shape.clone(), *block, blocks).map_err(failure_after_run)?
            }
        })
    }
}

impl Executable for LockstepExecutable {
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
        let made = self.run(args, None)?;
        self.results(args, &made)
    }
    fn call_one(&self, args: &mut [ArrayData]) -> Result<ArrayData, Failure> {
        if self.outs.is_empty() {
            return Err(Error::internal("a program without results was asked for one").into());
        }
        let made = self.run(args, None)?;
        self.result(0, args, &made)
    }
    fn profile(&self, args: &mut [ArrayData]) -> Result<(Vec<ArrayData>, Timeline), Failure> {
        // the WebAssembly target has no clock
        if cfg!(target_family = "wasm") {
            let fault = fault!(Unsupported, "the engine lockstep records no times on WebAssembly");
            return Err(fault.help("run it by `call`").into());
        }
        let (clock, begin) = (MarkLog::default(), nanoseconds());
        let made = self.run(args, Some(&clock))?;
        let outs = self.results(args, &made)?;
        let end = nanoseconds();
        let marks = clock.0.into_inner().unwrap_or_else(|e| e.into_inner());
        let ExecutionReport { engine, .. } = self.report();
        Ok((outs, profile::timeline(engine, &self.compiled.plan, marks, begin, end)))
    }
    fn report(&self) -> ExecutionReport {
        let c = &self.compiled;
        let mut text = c.plan.to_string();
        for (k, o) in c.results.iter().enumerate() {
            let _ = match o {
                ResultPlan::Fresh(_) => Ok(()),
                ResultPlan::Argument(arg) => writeln!(text, "result {k}: argument {arg}, not copied"),
                ResultPlan::Donated(donation) => {
                    writeln!(
                        text,
                        "result {k}: in the memory of donated argument {}",
                        c.donated[*donation].arg
                    )
                }
                ResultPlan::View { arg, block, blocks } => {
                    let n = blocks.len();
                    writeln!(text, "result {k}: {n} blocks of {block} bytes of argument {arg}, not copied")
                }
            };
        }
        for g in c.donated.iter().filter(|g| g.purpose != DonationPurpose::Result) {
            let _ = writeln!(text, "donated argument {}: {}", g.arg, g.purpose);
        }
        for (arg, reason) in &c.idle_donations {
            let _ = writeln!(text, "donated argument {arg}: not used: {reason}");
        }
        let bytes = |(dtype, shape, copies): &BoundaryType| {
            shape.num_elements().saturating_mul(dtype.size() * copies)
        };
        let given = |k: &usize| c.results.iter().any(|o| matches!(o, ResultPlan::Donated(g) if g == k));
        let donated = saturating_sum((0..c.donated.len()).filter(given).map(|k| c.donated[k].bytes));
        let first = |i: usize| c.results.iter().position(|o| matches!(o, ResultPlan::Fresh(k) if *k == i));
        let blocks =
            saturating_sum((0..c.fresh_bytes.len()).filter_map(first).map(|k| self.block_bytes.1[k]));
        let inline = self.force_inline.unwrap_or(c.plan.cost_us < MAX_INLINE_MICROS);
        let (engine, workers) = match &self.devices {
            Some(devices) => ("threads", devices.count),
            None => ("lockstep", if inline { 1 } else { thread_pool().num_workers() }),
        };
        ExecutionReport {
            engine,
            workers,
            processes: 0,
            inline,
            argument_bytes: saturating_sum(self.ins.iter().map(bytes)),
            result_bytes: saturating_sum(c.fresh_bytes.iter().copied().chain([donated])),
            donated_bytes: donated,
            scratch_bytes: c.arena_bytes,
            device_bytes: saturating_sum([
                self.block_bytes.0,
                blocks,
                c.arena_bytes.div_ceil(self.num_devices),
            ]),
            collectives: String::new(),
            listing: text,
        }
    }
}

/// Wraps a fault that occurs after donated arguments have been overwritten.
fn failure_after_run(fault: Fault) -> Failure {
    Failure { error: fault.into(), inputs_intact: false }
}

/// Returns the sum of the sizes, or `usize::MAX` if it overflows.
fn saturating_sum(bytes: impl IntoIterator<Item = usize>) -> usize {
    bytes.into_iter().fold(0, usize::saturating_add)
}
