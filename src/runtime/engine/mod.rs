//! Engines: how a per-device program is run.

mod lockstep;
mod reference;

use super::Slab;
use crate::diagnostic::Result;
use crate::partition::SpmdProgram;
use std::sync::{Arc, LazyLock};

/// Which engine runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// The device programs are tasks on the process's workers; a small program runs inline on the caller's thread.
    Lockstep,
    /// One OS thread a device; they meet through channels only.
    Threads,
    /// Element by element, ignoring distribution: slow, and plainly right. The oracle of tests.
    Reference,
}

/// The process's default: the environment variable `ATMESH_ENGINE` (`lockstep`, `threads`, `reference`), else lockstep.
impl Default for EngineKind {
    fn default() -> EngineKind {
        static DEFAULT: LazyLock<EngineKind> =
            LazyLock::new(|| match std::env::var("ATMESH_ENGINE").as_deref() {
                Ok("threads") => EngineKind::Threads,
                Ok("reference") => EngineKind::Reference,
                _ => EngineKind::Lockstep,
            });
        *DEFAULT
    }
}

/// The engine of this kind.
pub(crate) fn get(kind: EngineKind) -> &'static dyn Engine {
    match kind {
        EngineKind::Lockstep => &lockstep::Lockstep,
        EngineKind::Threads | EngineKind::Reference => &reference::Reference,
    }
}

/// Something that runs per-device programs. All engines give the same bits.
pub trait Engine: Send + Sync {
    /// Its name: `lockstep`, `threads`.
    fn name(&self) -> &'static str;
    /// Prepares a program to run many times.
    fn compile(&self, program: &SpmdProgram) -> Result<Arc<dyn Executable>>;
}

/// A program that is ready to run. It may be called from many threads.
pub trait Executable: Send + Sync {
    /// Runs it. `args` are the inputs' slabs; where `donated` is true the buffer may be overwritten if nobody else holds it.
    fn call(&self, args: &[Slab], donated: &[bool]) -> Result<Vec<Slab>>;
    /// How it runs: groups, levels, buffers, workers.
    fn report(&self) -> RunReport;
}

/// How a program runs.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// The engine's name.
    pub engine: &'static str,
    /// How many threads run it.
    pub workers: usize,
    /// Whether it runs inline on the caller's thread.
    pub inline: bool,
    /// Bytes of the static buffer plan.
    pub arena: usize,
    /// The compiled program as text.
    pub text: String,
}
