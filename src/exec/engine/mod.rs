//! Engines: the back ends that compile a partitioned program and run it.
//!
//! An engine receives a program in two forms (a placed program over global arrays, and the SPMD
//! program made from it by the partitioner) and returns an [`Executable`]. [`EngineKind`] names the
//! engines; [`EngineKind::register`] adds a custom one.

mod config;
pub(crate) mod lockstep;
mod reference;
mod registry;
mod threads;

pub(crate) use config::EngineConfig;
pub use config::{default_flush_subnormals, set_default_flush_subnormals};
pub use registry::CustomEngine;

use crate::core::{Error, Fault, Mesh, Result, diagnostic::requested_stages};
use crate::exec::runtime::{ArrayData, process_devices, thread_pool::requested_workers};
use crate::ir::program::Program;
use crate::kernels::cpu::requested_level;
use crate::partition::{Collectives, SpmdProgram, plan::Timeline};
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

/// An engine that runs programs.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 2]);
/// let f = |x: &Array| x * x;
/// let (a, b) = (jit(f).call(&x)?, jit(f).engine(EngineKind::Threads).call(&x)?);
/// assert_eq!(a.to_vec::<i32>()?, b.to_vec::<i32>()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Runs one program for all devices: its tasks go to a pool of worker threads.
    /// The plan covers global arrays and is cut into tasks by size, not by device. A small program
    /// runs inline on the caller's thread. This is the default engine.
    Lockstep,
    /// Runs one operating-system thread per device; devices synchronise through channels only.
    Threads,
    /// Interprets the program one element at a time, ignoring distribution.
    /// Slow but obviously correct; used as the test oracle.
    Reference,
    /// Compiles and runs the program with XLA, through the plugin that `ATMESH_PJRT_PLUGIN` names.
    /// The program is passed as StableHLO, and XLA chooses the collectives. Results may differ from
    /// those of the other engines in the last digits. Needs the feature `xla`; without it,
    /// compiling is an error.
    ///
    /// If this is the process's default, an operation outside of [`jit`](crate::jit) runs on the
    /// plugin when one of its operands is already on the plugin's devices, so that nothing is
    /// copied back; it is compiled once. Other such operations run in lock-step, as do those that
    /// XLA cannot run.
    Xla,
    /// An engine that the application [registered](EngineKind::register).
    Custom(CustomEngine),
}

/// Returns the process's default engine: the one that `ATMESH_ENGINE` names, otherwise lock-step.
/// The environment variable may be `lockstep`, `threads`, `reference`, `xla` or the name of a
/// [registered](EngineKind::register) engine. Several processes that share the devices of a plugin
/// ([`distributed`](crate::distributed)) run programs on meshes by XLA.
///
/// If the variable names no engine, nothing runs: each program's `compile()` returns an error that
/// lists the names, as do operations outside of [`jit`](crate::jit).
impl Default for EngineKind {
    fn default() -> EngineKind {
        match process_devices() {
            Some(_) => EngineKind::Xla,
            None => EngineKind::from_env().unwrap_or(EngineKind::Lockstep),
        }
    }
}

/// Returns an error if `ATMESH_ENGINE` names an engine other than XLA, the only one that runs
/// programs in several processes.
#[cfg(feature = "xla")]
pub(crate) fn check_default_engine(processes: usize) -> Result<()> {
    let is_set = std::env::var_os(ENGINE_VARIABLE).is_some_and(|name| !name.is_empty());
    match EngineKind::from_env()? {
        EngineKind::Xla => Ok(()),
        kind if is_set => {
            Err(fault!(Unsupported, "there are {processes} processes, and the engine {kind} runs in one")
                .help(format!("leave {ENGINE_VARIABLE} out, or set it to xla"))
                .into())
        }
        _ => Ok(()),
    }
}

/// Returns true if several processes run the programs on this mesh together.
pub(crate) fn is_run_by_processes(mesh: Option<&Mesh>) -> bool {
    process_devices().is_some() && has_devices(mesh)
}

fn has_devices(mesh: Option<&Mesh>) -> bool {
    mesh.is_some_and(|mesh| !mesh.is_abstract())
}

/// Returns the engine that runs a program which `kind` is asked to run.
///
/// If there are several processes, they run programs on meshes together, by XLA; each process runs
/// the others alone.
fn engine_of(kind: EngineKind, program: &Program) -> Result<EngineKind> {
    let Some(devices) = process_devices() else { return Ok(kind) };
    let on_devices = has_devices(program.mesh.as_ref());
    match kind {
        EngineKind::Xla if on_devices => Ok(kind),
        EngineKind::Xla => Ok(EngineKind::Lockstep),
        _ if on_devices => {
            let n = devices.processes();
            let fault =
                fault!(Unsupported, "the program runs in {n} processes, and the engine {kind} runs in one")
                    .help("leave the engine out, or say `.engine(EngineKind::Xla)`")
                    .help(
                        "or compute in each process, on arrays that it holds whole: `x.process_allgather()`",
                    );
            let location = program.equations.first().and_then(|equation| equation.location);
            Err(Error::new(fault, format!("the engine {kind}"), Vec::new(), location))
        }
        _ => Ok(kind),
    }
}

impl EngineKind {
    /// Returns the engine that `--engine NAME` on the command line asks for, otherwise the default.
    ///
    /// # Errors
    /// `NAME`, or the value of `ATMESH_ENGINE` if there is no `--engine`, is not the name of an
    /// engine.
    pub fn from_args() -> Result<EngineKind> {
        let mut args = std::env::args().skip_while(|a| a != "--engine").skip(1);
        args.next().map_or_else(EngineKind::from_env, |name| name.parse())
    }
    /// Returns the engine that `ATMESH_ENGINE` asks for.
    ///
    /// The variable is read until it names an engine; from then on, that engine is the process's
    /// default.
    fn from_env() -> Result<EngineKind> {
        static ASKED: OnceLock<EngineKind> = OnceLock::new();
        if let Some(kind) = ASKED.get() {
            return Ok(*kind);
        }
        let kind = match std::env::var_os(ENGINE_VARIABLE) {
            Some(name) if !name.is_empty() => {
                let name = name.to_string_lossy();
                EngineKind::from_name(&name)
                    .ok_or_else(|| unknown_engine(&format!("{name:?}, which {ENGINE_VARIABLE} names")))?
            }
            _ => EngineKind::Lockstep,
        };
        Ok(*ASKED.get_or_init(|| kind))
    }
    fn all() -> impl Iterator<Item = EngineKind> {
        BUILT_IN.into_iter().chain(registry::registered().into_iter().map(EngineKind::Custom))
    }
    fn from_name(name: &str) -> Option<EngineKind> {
        EngineKind::all().find(|k| k.name() == name)
    }
    fn name(self) -> &'static str {
        match self {
            EngineKind::Lockstep => "lockstep",
            EngineKind::Threads => "threads",
            EngineKind::Reference => "reference",
            EngineKind::Xla => "xla",
            EngineKind::Custom(own) => own.name(),
        }
    }
}
impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
impl FromStr for EngineKind {
    type Err = Error;
    fn from_str(name: &str) -> Result<EngineKind> {
        EngineKind::from_name(name).ok_or_else(|| unknown_engine(&format!("{name:?}")).into())
    }
}

const BUILT_IN: [EngineKind; 4] =
    [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference, EngineKind::Xla];
/// The environment variable that names the process's default engine.
const ENGINE_VARIABLE: &str = "ATMESH_ENGINE";

/// Returns the error for an unknown engine, described by `asked`, with a list of the known names.
fn unknown_engine(asked: &str) -> Fault {
    let mut names: Vec<&str> = EngineKind::all().map(EngineKind::name).collect();
    let last = names.pop().unwrap_or_default();
    fault!(Syntax, "there is no engine {asked}").help(format!("engines are {} and {last}", names.join(", ")))
}

/// Checks the environment variables that affect all engines, until they are valid.
///
/// Otherwise a misspelt `ATMESH_CPU` would silently give other bits than the user asked for.
fn check_environment() -> Result<()> {
    static IS_VALID: OnceLock<()> = OnceLock::new();
    if IS_VALID.get().is_none() {
        requested_level()?;
        requested_workers()?;
        requested_stages()?;
        IS_VALID.get_or_init(|| ());
    }
    Ok(())
}

/// Compiles a program with an engine of this kind.
/// On WebAssembly it always uses the lock-step engine, so that the other engines are not linked in.
fn compile_with(kind: EngineKind, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
    check_environment()?;
    EngineConfig { kind, flush_subnormals: job.flush_subnormals }.check()?;
    if cfg!(target_family = "wasm") {
        return lockstep::Lockstep.compile(job);
    }
    match kind {
        EngineKind::Lockstep => lockstep::Lockstep.compile(job),
        EngineKind::Threads => Threads.compile(job),
        EngineKind::Reference => reference::Reference.compile(job),
        EngineKind::Xla => match XLA.get() {
            Some(xla) => xla.engine.compile(job),
            None => UnavailableEngine.compile(job),
        },
        EngineKind::Custom(own) => own.compile(job),
    }
}

/// The entry points of the XLA engine. The module `xla` registers them, so that this one does not
/// depend on it.
#[derive(Clone, Copy)]
pub(crate) struct XlaEngine {
    /// The engine.
    pub(crate) engine: &'static dyn Engine,
    /// Returns true if a value is on the devices of the plugin.
    pub(crate) is_device_resident: fn(&ArrayData) -> bool,
}

/// The XLA engine, if this build includes it and it has been registered.
static XLA: OnceLock<XlaEngine> = OnceLock::new();

/// Registers the XLA engine; later calls have no effect.
#[cfg(feature = "xla")]
pub(crate) fn register_xla(engine: XlaEngine) {
    XLA.get_or_init(|| engine);
}

/// Returns true if a value is on the devices of XLA's plugin.
pub(crate) fn on_plugin(value: &ArrayData) -> bool {
    XLA.get().is_some_and(|xla| (xla.is_device_resident)(value))
}

/// The input of an engine: one program in two forms.
#[derive(Clone, Copy, Debug)]
pub struct CompileRequest<'a> {
    /// The program over global arrays; every value has a placement.
    pub(crate) placed: &'a Program,
    /// The SPMD program: the steps that each device runs.
    pub(crate) spmd: &'a SpmdProgram,
    /// The collectives that the SPMD program communicates.
    pub(crate) collectives: &'a Collectives,
    /// For each input, true if it may be overwritten. Missing entries mean `false`.
    pub(crate) donated: &'a [bool],
    /// True if the program computes with zeros instead of subnormal numbers.
    pub(crate) flush_subnormals: bool,
    /// The number of custom engines that have delegated this request so far.
    pub(crate) depth: u8,
}

impl<'a> CompileRequest<'a> {
    /// Returns the program over global arrays: each variable has a type and a placement.
    pub fn program(&self) -> &'a Program {
        self.placed
    }
    /// Returns the SPMD program: the steps that each device runs.
    ///
    /// Its kernels are [loop nests](crate::program::loop_nest::LoopNest), and between them are the
    /// transfers from other devices.
    pub fn spmd(&self) -> &'a SpmdProgram {
        self.spmd
    }
    /// Returns the collectives that the SPMD program communicates.
    pub fn collectives(&self) -> &'a Collectives {
        self.collectives.with_peak(self.spmd, self.donated)
    }
    /// Returns true if the caller donates this input.
    ///
    /// Its memory may be overwritten if the call holds the only handle to it.
    pub fn donated(&self, input: usize) -> bool {
        self.donated.get(input) == Some(&true)
    }
    /// Returns true if the program computes with zeros instead of subnormal numbers, as
    /// [`Jit::flush_subnormals`](crate::Jit::flush_subnormals) says.
    ///
    /// An engine that cannot do so returns an error.
    pub fn flush_subnormals(&self) -> bool {
        self.flush_subnormals
    }
    /// Compiles the program with another engine.
    /// Custom engines use this if they leave some of the work to another engine, or compare results
    /// with it.
    pub fn delegate_to(&self, engine: EngineKind) -> Result<Arc<dyn Executable>> {
        compile_with(engine, *self)
    }
}

/// A placeholder for an engine that is not part of this build; compiling with it is an error.
struct UnavailableEngine;

impl Engine for UnavailableEngine {
    fn compile(&self, _job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        let fault = fault!(Unsupported, "the engine xla is not in this build of atmesh").help(
            "build with it: `cargo … --features xla`, or `atmesh = { features = [\"xla\"] }` in Cargo.toml",
        );
        Err(fault.into())
    }
}

/// The threads engine: runs the plan of the lock-step engine with one thread per device.
struct Threads;

impl Engine for Threads {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        let compiled = lockstep::LockstepExecutable::from_request(&job, Some(false))?;
        Ok(Arc::new(compiled.on_device_threads(job.spmd)))
    }
}

/// Prepares a program to run many times on an engine of this kind.
pub(crate) fn compile(kind: EngineKind, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
    in_span!("compile", engine = %kind);
    // report a misspelt `ATMESH_ENGINE` instead of silently using another engine
    EngineKind::from_env()?;
    COMPILATIONS.set(COMPILATIONS.get() + 1);
    if cfg!(target_family = "wasm") && kind != EngineKind::Lockstep {
        let fault = fault!(Unsupported, "the engine {kind} is not available on WebAssembly");
        return Err(fault.help("use the engine lockstep: it gives the same bits").into());
    }
    compile_with(engine_of(kind, job.placed)?, job)
}

thread_local! {
    static COMPILATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Returns how many programs this thread has compiled so far.
///
/// If the count is the same before and after a step of a loop, that step compiled nothing.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::engine::compilations;
/// let mut w = Array::from([1.0f32, 2.0]);
/// let mut step = || w = &w - 0.1 * grad(&w, |w| w.square().sum(..));
/// step();
/// let before = compilations();
/// (0..10).for_each(|_| step());
/// assert_eq!(compilations(), before);
/// ```
pub fn compilations() -> usize {
    COMPILATIONS.get()
}

/// A back end that compiles programs.
///
/// All built-in engines except XLA give bit-identical results. [`EngineKind::register`] has an
/// example.
pub trait Engine: Send + Sync {
    /// Prepares a program to run many times.
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>>;
}

/// The error of a run that did not complete.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The error.
    pub error: Error,
    /// True if donated arguments still have their values, because no kernel had run.
    pub inputs_intact: bool,
}
impl Failure {
    /// Returns the failure for a panic in a kernel.
    /// Kernels cannot return errors, so they panic with a `Fault` as the payload. Any other panic
    /// is resumed.
    fn from_panic(panic: Box<dyn Any + Send>) -> Failure {
        match panic.downcast::<Fault>() {
            Ok(fault) => Failure { error: (*fault).into(), inputs_intact: false },
            Err(panic) => resume_unwind(panic),
        }
    }
    /// Runs kernels on the caller's thread and returns a `Fault` that they panic with as a failure.
    fn catch<T>(kernels: impl FnOnce() -> T) -> Result<T, Failure> {
        catch_unwind(AssertUnwindSafe(kernels)).map_err(Failure::from_panic)
    }
}
conversions! { Failure:
    [] Error => |error| Failure { error, inputs_intact: true };
    [] Fault => |fault| Error::from(fault).into();
}
conversions! { Error: [] Failure => |failure| failure.error; }

/// A compiled program. It may be called from several threads at the same time.
pub trait Executable: Send + Sync {
    /// Runs the program and returns its results.
    ///
    /// `args` are the values of the inputs, and the results are in the order of the program's
    /// outputs. Each is a global array in row-major order, regardless of its sharding; an unreduced
    /// value holds all its partial values, one after another, each of the full shape. Donated
    /// inputs are overwritten if these are the only handles to them; their values are then lost.
    ///
    /// # Errors
    /// The run did not complete. For a [registered](EngineKind::register) engine, a panic and
    /// results whose types differ from the program's are errors too.
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure>;
    /// Runs the program and records when each kernel ran.
    ///
    /// # Errors
    /// The errors of [`call`](Executable::call), and [`Unsupported`] if the engine records no
    /// times. The lock-step and threads engines record them.
    ///
    /// [`Unsupported`]: crate::core::diagnostic::ErrorKind::Unsupported
    fn profile(&self, args: &mut [ArrayData]) -> Result<(Vec<ArrayData>, Timeline), Failure> {
        let _ = args;
        let fault = fault!(Unsupported, "the engine {} records no times", self.report().engine);
        Err(fault.help("run it by the engine lockstep or threads: `jit(f).engine(Lockstep)`").into())
    }
    /// Runs the program and returns only its first result.
    ///
    /// Operations outside of [`jit`](crate::jit) have a single result.
    ///
    /// # Errors
    /// The errors of [`call`](Executable::call), and an internal error if the program has no
    /// results.
    fn call_one(&self, args: &mut [ArrayData]) -> Result<ArrayData, Failure> {
        let first = self.call(args)?.into_iter().next();
        first.ok_or_else(|| Error::internal("a program without results was asked for one").into())
    }
    /// Describes how the program runs: fused groups, levels, buffers and workers.
    fn report(&self) -> ExecutionReport;
}

/// A description of how an engine runs a program.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ExecutionReport {
    /// The engine's name.
    pub engine: &'static str,
    /// The number of threads that run the program.
    pub workers: usize,
    /// The number of processes that run the program together, if there are several; otherwise 0.
    /// The sizes of arguments and results are then those of this process.
    pub processes: usize,
    /// True if the program runs inline on the caller's thread.
    pub inline: bool,
    /// The size of all arguments, in bytes.
    pub argument_bytes: usize,
    /// The size of all results that are neither arguments nor views of them, in bytes.
    pub result_bytes: usize,
    /// The size of the results that reuse the memory of donated arguments, in bytes.
    pub donated_bytes: usize,
    /// The size of the arena, in bytes.
    /// The arena holds the intermediate values that do not fit into donated arguments.
    pub scratch_bytes: usize,
    /// The busiest device's approximate share of the peak memory, in bytes.
    /// It is a part of [`peak_bytes`](ExecutionReport::peak_bytes) and consists of the device's
    /// blocks of arguments and results, and an equal part of the arena.
    pub device_bytes: usize,
    /// The collectives as text, if the engine chooses them itself; otherwise empty.
    ///
    /// For XLA this lists XLA's collectives, then those of the built-in engines, which
    /// [`assert_collectives!`](crate::assert_collectives) checks. For the built-in engines, see
    /// [`Collectives`].
    pub collectives: String,
    /// The compiled program as text.
    ///
    /// The built-in parallel engines list the kernels by level, with their tasks and estimated
    /// times. For a gather or a scatter, the line also says how rows are moved, and why.
    pub listing: String,
}

impl ExecutionReport {
    /// Returns the peak memory of a call in bytes, including its arguments and results.
    ///
    /// Replicas of a value are stored once.
    pub fn peak_bytes(&self) -> usize {
        self.argument_bytes
            .saturating_add(self.result_bytes - self.donated_bytes)
            .saturating_add(self.scratch_bytes)
    }
}

impl fmt::Display for ExecutionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on =
            if self.inline { "inline on the caller".into() } else { format!("{} workers", self.workers) };
        write!(f, "engine {}, {on}", self.engine)?;
        if self.processes > 1 {
            write!(f, " of {} processes, of which this one has:", self.processes)?;
        }
        writeln!(f)?;
        write!(f, "arguments {} B, results {} B", self.argument_bytes, self.result_bytes)?;
        if self.donated_bytes > 0 {
            write!(f, " ({} B in donated arguments)", self.donated_bytes)?;
        }
        let (peak, device) = (self.peak_bytes(), self.device_bytes);
        writeln!(f, ", arena {} B: at most {peak} B, \u{2248} {device} B per device", self.scratch_bytes)?;
        f.write_str(&self.collectives)?;
        f.write_str(&self.listing)
    }
}
