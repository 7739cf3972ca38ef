//! Engines: how a per-device program is run. [`EngineKind::add`] adds one of your own.

mod added;
pub(crate) mod lockstep;
mod reference;
mod threads;
#[cfg(feature = "xla")]
mod xla;

pub use added::Added;

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::partition::{Collectives, SpmdProgram};
use crate::plan::Timeline;
use crate::program::Program;
use crate::runtime::Slab;
use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

/// Which engine runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// The device programs are tasks on the process's workers; a small program runs inline on the caller's thread.
    Lockstep,
    /// One OS thread per device; they meet through channels only.
    Threads,
    /// Element by element, ignoring distribution: slow, and plainly right. The oracle of tests.
    Reference,
    /// XLA, by the plugin that `ATMESH_PJRT_PLUGIN` names: the program goes to it as StableHLO, and so does the decision what is
    /// communicated. Results differ from other engines' in the last places. It takes the feature `xla`; without it, to compile is an error.
    ///
    /// Where it is the process's default, an operation outside of [`jit`](crate::jit) runs by the plugin if one of its operands is on the
    /// plugin's devices already, so that nothing is copied back; it is compiled once. Others run in lock-step, as do those that XLA does
    /// not run.
    Xla,
    /// One that the program [added](EngineKind::add).
    Added(Added),
}

/// The process's default: the environment variable `ATMESH_ENGINE` (`lockstep`, `threads`, `reference`, `xla`, or an
/// [added](EngineKind::add) one), else lockstep.
///
/// Where the variable names no engine nothing runs: each program's `compile()` is an error that lists the names, as are operations outside
/// of [`jit`](crate::jit).
impl Default for EngineKind {
    fn default() -> EngineKind {
        EngineKind::asked().unwrap_or(EngineKind::Lockstep)
    }
}

impl EngineKind {
    /// The engine that the command line asks for by `--engine NAME`; without it the default. An error where the name, or without one
    /// the environment's, is no engine's.
    pub fn from_args() -> Result<EngineKind> {
        let mut args = std::env::args().skip_while(|a| a != "--engine").skip(1);
        args.next().map_or_else(EngineKind::asked, |name| name.parse())
    }
    /// The engine that the environment asks for. It is read until it is an engine's: then all of a process has one default.
    fn asked() -> Result<EngineKind> {
        static ASKED: OnceLock<EngineKind> = OnceLock::new();
        if let Some(kind) = ASKED.get() {
            return Ok(*kind);
        }
        let kind = match std::env::var_os(VARIABLE) {
            Some(name) if !name.is_empty() => {
                let name = name.to_string_lossy();
                EngineKind::named(&name)
                    .ok_or_else(|| unknown(&format!("{name:?}, which {VARIABLE} names")))?
            }
            _ => EngineKind::Lockstep,
        };
        Ok(*ASKED.get_or_init(|| kind))
    }
    fn all() -> impl Iterator<Item = EngineKind> {
        OWN.into_iter().chain(added::all().into_iter().map(EngineKind::Added))
    }
    fn named(name: &str) -> Option<EngineKind> {
        EngineKind::all().find(|k| k.name() == name)
    }
    fn name(self) -> &'static str {
        match self {
            EngineKind::Lockstep => "lockstep",
            EngineKind::Threads => "threads",
            EngineKind::Reference => "reference",
            EngineKind::Xla => "xla",
            EngineKind::Added(own) => own.name(),
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
        EngineKind::named(name).ok_or_else(|| unknown(&format!("{name:?}")).into())
    }
}

const OWN: [EngineKind; 4] =
    [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference, EngineKind::Xla];
/// The environment variable of the process's default.
const VARIABLE: &str = "ATMESH_ENGINE";

/// No engine has the name that is asked for by these words.
fn unknown(asked: &str) -> Fault {
    let mut names: Vec<&str> = EngineKind::all().map(EngineKind::name).collect();
    let last = names.pop().unwrap_or_default();
    Fault::new(ErrorKind::Syntax, format!("there is no engine {asked}"))
        .help(format!("engines are {} and {last}", names.join(", ")))
}

/// Compiles by the engine of this kind: on WebAssembly there is one, so that a page does not load the others.
fn compile_by(kind: EngineKind, job: Job<'_>) -> Result<Arc<dyn Executable>> {
    if cfg!(target_family = "wasm") {
        return lockstep::Lockstep.compile(job);
    }
    match kind {
        EngineKind::Lockstep => lockstep::Lockstep.compile(job),
        EngineKind::Threads => Threads.compile(job),
        EngineKind::Reference => reference::Reference.compile(job),
        #[cfg(feature = "xla")]
        EngineKind::Xla => xla::Xla.compile(job),
        #[cfg(not(feature = "xla"))]
        EngineKind::Xla => Left.compile(job),
        EngineKind::Added(own) => own.compile(job),
    }
}

/// Whether a value is on the devices of XLA's plugin.
pub(crate) fn on_plugin(value: &Slab) -> bool {
    #[cfg(feature = "xla")]
    return xla::holds(value);
    #[cfg(not(feature = "xla"))]
    {
        let _ = value;
        false
    }
}

/// What an engine compiles: one program in two forms.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Over global arrays, every value placed.
    pub(crate) placed: &'a Program,
    /// What each device does.
    pub(crate) spmd: &'a SpmdProgram,
    /// What the devices communicate then.
    pub(crate) collectives: &'a Collectives,
    /// Inputs that may be written over; missing ones may not.
    pub(crate) donated: &'a [bool],
    /// How many added engines ask for it, each for the next.
    pub(crate) depth: u8,
}

impl<'a> Job<'a> {
    /// The program over global arrays: each variable has its type, and a placement.
    pub fn program(&self) -> &'a Program {
        self.placed
    }
    /// What each device does, step by step: the kernels in the words of [`program::sentence`](crate::program::sentence), and what is fetched
    /// between them.
    pub fn spmd(&self) -> &'a SpmdProgram {
        self.spmd
    }
    /// What the devices communicate then.
    pub fn collectives(&self) -> &'a Collectives {
        self.collectives
    }
    /// Whether the call gives this input away: if its slab is the only handle, it may be written over.
    pub fn donated(&self, input: usize) -> bool {
        self.donated.get(input) == Some(&true)
    }
    /// The program as another engine compiles it, for engines that leave some of their work to another one, or compare with it.
    pub fn compile_by(&self, engine: EngineKind) -> Result<Arc<dyn Executable>> {
        compile_by(engine, *self)
    }
}

/// In place of an engine that was left out of the build.
#[cfg(not(feature = "xla"))]
struct Left;

#[cfg(not(feature = "xla"))]
impl Engine for Left {
    fn compile(&self, _job: Job<'_>) -> Result<Arc<dyn Executable>> {
        let fault = Fault::new(ErrorKind::Unsupported, "the engine xla is not in this build of atmesh").help(
            "build with it: `cargo … --features xla`, or `atmesh = { features = [\"xla\"] }` in Cargo.toml",
        );
        Err(fault.into())
    }
}

/// The threads engine: what the lock-step engine compiles, on a thread for each device.
struct Threads;

impl Engine for Threads {
    fn compile(&self, job: Job<'_>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(lockstep::Ready::on_devices(job.spmd, job.donated)?))
    }
}

/// Prepares a program to run many times on the engine of this kind.
pub(crate) fn compile(kind: EngineKind, job: Job<'_>) -> Result<Arc<dyn Executable>> {
    in_span!("compile", engine = %kind);
    // a misspelt name must not mean another engine
    EngineKind::asked()?;
    COMPILED.set(COMPILED.get() + 1);
    if cfg!(target_family = "wasm") && kind != EngineKind::Lockstep {
        let fault =
            Fault::new(ErrorKind::Unsupported, format!("the engine {kind} is not there on WebAssembly"));
        return Err(fault.help("use the engine lockstep: it gives the same bits").into());
    }
    compile_by(kind, job)
}

thread_local! {
    static COMPILED: Cell<usize> = const { Cell::new(0) };
}

/// How many programs this thread has compiled until now: one that stays the same between two steps of a loop shows that nothing in it
/// is compiled again.
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
    COMPILED.get()
}

/// Something that runs programs. All of this crate's, but XLA, give the same bits. The example is at [`EngineKind::add`].
pub trait Engine: Send + Sync {
    /// Prepares a program to run many times.
    fn compile(&self, job: Job<'_>) -> Result<Arc<dyn Executable>>;
}

/// Why a program did not run to its end.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The error.
    pub error: Error,
    /// Whether no kernel had run: donated arguments still have their values.
    pub before: bool,
}
impl Failure {
    /// What a kernel unwound with. It has nobody to give an error to, so a fault is its payload; other panics go on.
    fn unwound(panic: Box<dyn Any + Send>) -> Failure {
        match panic.downcast::<Fault>() {
            Ok(fault) => Failure { error: (*fault).into(), before: false },
            Err(panic) => resume_unwind(panic),
        }
    }
    /// Runs kernels on the caller's thread.
    fn caught<T>(kernels: impl FnOnce() -> T) -> Result<T, Failure> {
        catch_unwind(AssertUnwindSafe(kernels)).map_err(Failure::unwound)
    }
}
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, before: true }
    }
}
impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Error::from(fault).into()
    }
}
impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        failure.error
    }
}

/// A program that is ready to run. It may be called from many threads.
pub trait Executable: Send + Sync {
    /// Runs it. `args` are the inputs' values: whole ones in row-major order, however they are sharded; one that is unreduced has a copy of the shape
    /// for each part. So are the results, in the order of the program's. Those of donated inputs are written over if these are the only handles on
    /// them; their values are lost then.
    ///
    /// # Errors
    /// Why it did not run to its end. Of an [added](EngineKind::add) engine results that are not what the program's types say are one, and a panic is one too.
    fn call(&self, args: &mut [Slab]) -> Result<Vec<Slab>, Failure>;
    /// Runs it, and tells what was done when. An engine that cannot tell says so; our own ones can, but the reference.
    ///
    /// # Errors
    /// As for [`call`](Executable::call), and [`ErrorKind::Unsupported`] of an engine that keeps no times.
    fn call_timed(&self, args: &mut [Slab]) -> Result<(Vec<Slab>, Timeline), Failure> {
        let _ = args;
        let message = format!("the engine {} keeps no times", self.report().engine);
        let fault = Fault::new(ErrorKind::Unsupported, message);
        Err(fault.help("run it by the engine lockstep or threads: `jit(f).engine(Lockstep)`").into())
    }
    /// The first result only: operations outside of [`jit`](crate::jit) have one.
    ///
    /// # Errors
    /// As for [`call`](Executable::call); and where there is no result.
    fn call_one(&self, args: &mut [Slab]) -> Result<Slab, Failure> {
        let first = self.call(args)?.into_iter().next();
        first.ok_or_else(|| Error::internal("a program without results was asked for one").into())
    }
    /// How it runs: groups, levels, buffers, workers.
    fn report(&self) -> RunReport;
}

/// How a program runs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunReport {
    /// The engine's name.
    pub engine: &'static str,
    /// How many threads run it.
    pub workers: usize,
    /// Whether it runs inline on the caller's thread.
    pub inline: bool,
    /// Bytes of all arguments.
    pub arguments: usize,
    /// Bytes of all results but those that are arguments, or views of them.
    pub results: usize,
    /// Bytes of results that take the memory of donated arguments.
    pub donated: usize,
    /// Bytes of the static buffer plan: values in between, for which there is no room in donated arguments.
    pub arena: usize,
    /// The share of the busiest device in [`peak_bytes`](RunReport::peak_bytes), roughly: its blocks of arguments and results, and an equal
    /// part of the arena.
    pub device_bytes: usize,
    /// What the engine communicates, where it decides that itself: XLA's collectives, and below them those of our engines, of which
    /// [`assert_collectives!`](crate::assert_collectives) speaks. Empty on our own engines: see [`Collectives`].
    pub collectives: String,
    /// The compiled program as text.
    pub text: String,
}

impl RunReport {
    /// The most bytes that a call holds, its arguments and results among them. Replicas are one in memory.
    pub fn peak_bytes(&self) -> usize {
        self.arguments.saturating_add(self.results - self.donated).saturating_add(self.arena)
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on =
            if self.inline { "inline on the caller".into() } else { format!("{} workers", self.workers) };
        writeln!(f, "engine {}, {on}", self.engine)?;
        write!(f, "arguments {} B, results {} B", self.arguments, self.results)?;
        if self.donated > 0 {
            write!(f, " ({} B in donated arguments)", self.donated)?;
        }
        let (peak, device) = (self.peak_bytes(), self.device_bytes);
        writeln!(f, ", arena {} B: at most {peak} B, \u{2248} {device} B per device", self.arena)?;
        f.write_str(&self.collectives)?;
        f.write_str(&self.text)
    }
}
