//! Custom engines: a registry of engines that the application adds, and checks of their results.

use super::{CompileRequest, Engine, EngineKind, Executable, ExecutionReport, Failure};
use crate::core::{DType, Fault, Result, Shape, sharding::sub_axes::num_shards};
use crate::exec::runtime::ArrayData;
use crate::kernels::row_kernel::catch_user_panic;
use crate::partition::{Slot, SpmdProgram};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

/// A custom engine that was [registered](EngineKind::register).
#[derive(Clone, Copy)]
pub struct CustomEngine {
    /// The position in the registry.
    index: usize,
    name: &'static str,
    engine: &'static dyn Engine,
}

impl CustomEngine {
    /// Returns the engine's name.
    pub fn name(self) -> &'static str {
        self.name
    }
}
impl PartialEq for CustomEngine {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}
impl Eq for CustomEngine {}
impl Hash for CustomEngine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.index.hash(state);
    }
}
impl fmt::Debug for CustomEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

static REGISTRY: RwLock<Vec<CustomEngine>> = RwLock::new(Vec::new());

/// The maximum length of a chain of custom engines that delegate a program to one another.
const MAX_DELEGATIONS: u8 = 16;

/// Returns all registered engines, in order of registration.
pub(super) fn registered() -> Vec<CustomEngine> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl EngineKind {
    /// Registers a custom engine under this name and returns its kind.
    ///
    /// The engine stays registered until the process ends. Pass the returned value to
    /// [`Jit::engine`](crate::Jit::engine), or use the name with `--engine NAME` or
    /// `ATMESH_ENGINE`, if the engine is registered before these are read.
    ///
    /// # Errors
    /// The name is not a word (letters, digits, `_` and `-`), or another engine already has it.
    ///
    /// ```
    /// use atmesh::engine::{CompileRequest, Engine, Executable, ExecutionReport, Failure};
    /// use atmesh::prelude::*;
    /// use atmesh::runtime::ArrayData;
    /// use std::sync::Arc;
    /// use std::time::Instant;
    ///
    /// /// Runs programs in lock-step and prints how long each call takes.
    /// struct Timed;
    /// struct Run(Arc<dyn Executable>);
    ///
    /// impl Engine for Timed {
    ///     fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
    ///         println!("{} equations", job.program().equations.len());
    ///         Ok(Arc::new(Run(job.delegate_to(EngineKind::Lockstep)?)))
    ///     }
    /// }
    /// impl Executable for Run {
    ///     fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
    ///         let begin = Instant::now();
    ///         let results = self.0.call(args);
    ///         println!("{:?}", begin.elapsed());
    ///         results
    ///     }
    ///     fn report(&self) -> ExecutionReport {
    ///         self.0.report()
    ///     }
    /// }
    ///
    /// let timed = EngineKind::register("timed", Timed)?;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
    /// let sum = jit(|x: &Array| x.sum(..)).engine(timed);
    /// assert_eq!(sum.call(&x)?.item::<i32>()?, 6);
    /// assert_eq!("timed".parse::<EngineKind>()?, timed);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn register(name: &str, engine: impl Engine + 'static) -> Result<EngineKind> {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(word) {
            let fault = fault!(Syntax, "{name:?} is not a valid engine name");
            return Err(fault.help("use letters, digits, `_` and `-`").into());
        }
        let mut list = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
        if super::BUILT_IN.iter().map(|k| k.name()).chain(list.iter().map(|a| a.name)).any(|n| n == name) {
            let fault = fault!(Syntax, "an engine {name:?} is already registered");
            return Err(fault
                .help("give it another name; register an engine once, and keep the value that `register` returns")
                .into());
        }
        let added = CustomEngine {
            index: list.len(),
            name: Box::leak(name.into()),
            engine: Box::leak(Box::new(engine)),
        };
        list.push(added);
        Ok(EngineKind::Custom(added))
    }
}

/// Compiles with the custom engine, and checks the results of each call.
impl Engine for CustomEngine {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        if job.depth == MAX_DELEGATIONS {
            let fault = fault!(User, "the engine {} delegates to itself without end", self.name);
            return Err(fault
                .help("delegate to one of `Lockstep`, `Threads`, `Reference`, `Xla` in the end")
                .into());
        }
        let job = CompileRequest { depth: job.depth + 1, ..job };
        let made =
            catch_user_panic(|| self.engine.compile(job)).map_err(|message| self.panic_fault(&message))??;
        let wanted = job.spmd.outs.iter().map(|s| ExpectedResult::of_slot(job.spmd, *s)).collect();
        Ok(Arc::new(CheckedExecutable { engine: *self, inner: made, expected: wanted }))
    }
}

impl CustomEngine {
    fn panic_fault(&self, message: &str) -> Fault {
        fault!(User, "the engine {} panicked: {message}", self.name)
    }
}

/// The type that a result must have.
struct ExpectedResult {
    dtype: DType,
    shape: Shape,
    num_partials: usize,
}

impl ExpectedResult {
    fn of_slot(program: &SpmdProgram, slot: Slot) -> ExpectedResult {
        let stored = &program.slots[slot];
        let num_partials = stored.layout.partial.as_ref().map_or(1, |p| num_shards(&p.1));
        ExpectedResult { dtype: stored.dtype, shape: stored.shape.clone(), num_partials }
    }
    fn matches(&self, slab: &ArrayData) -> bool {
        (slab.dtype(), slab.shape(), slab.num_partials()) == (self.dtype, &self.shape, self.num_partials)
    }
}
impl fmt::Display for ExpectedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)?;
        if self.num_partials > 1 { write!(f, " of {} partial values", self.num_partials) } else { Ok(()) }
    }
}

struct CheckedExecutable {
    engine: CustomEngine,
    inner: Arc<dyn Executable>,
    expected: Vec<ExpectedResult>,
}

impl Executable for CheckedExecutable {
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
        let ran = catch_user_panic(|| self.inner.call(args));
        let results = ran.map_err(|message| Failure {
            error: self.engine.panic_fault(&message).into(),
            inputs_intact: false,
        })??;
        let describe = |text: String| {
            let fault = fault!(User, "the engine {} returned {text}", self.engine.name);
            Err(Failure { error: fault.into(), inputs_intact: false })
        };
        if results.len() != self.expected.len() {
            return describe(format!(
                "{} results, and the program has {}",
                results.len(),
                self.expected.len()
            ));
        }
        for (k, (slab, wanted)) in results.iter().zip(&self.expected).enumerate() {
            if !wanted.matches(slab) {
                let is = ExpectedResult {
                    dtype: slab.dtype(),
                    shape: slab.shape().clone(),
                    num_partials: slab.num_partials(),
                };
                return describe(format!("{is} for result {k}, which is {wanted}"));
            }
        }
        Ok(results)
    }
    fn report(&self) -> ExecutionReport {
        ExecutionReport { engine: self.engine.name, ..self.inner.report() }
    }
}
