//! Engines that a program adds to this process's, and what is asked of them.

use super::{Engine, EngineKind, Executable, Failure, Job, RunReport};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::partition::{Slot, SpmdProgram};
use crate::program::line::guarded;
use crate::runtime::Slab;
use crate::sharding::atoms::ways;
use crate::types::{DType, Shape};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

/// An engine that was [added](EngineKind::add).
#[derive(Clone, Copy)]
pub struct Added {
    /// Among those that were added.
    number: usize,
    name: &'static str,
    engine: &'static dyn Engine,
}

impl Added {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.name
    }
}
impl PartialEq for Added {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Added {}
impl Hash for Added {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
impl fmt::Debug for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

static ADDED: RwLock<Vec<Added>> = RwLock::new(Vec::new());

/// So many engines may ask one another for a program.
const DEEP: u8 = 16;

/// All of them, in order.
pub(super) fn all() -> Vec<Added> {
    ADDED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl EngineKind {
    /// One more engine, of this name: whatever runs programs. It is there until the process ends, for [`Jit::engine`](crate::Jit::engine) by the
    /// value that is returned, and by its name for `--engine NAME` and `ATMESH_ENGINE`, if it is added before that is asked for.
    ///
    /// # Errors
    /// A name that is no word, or that an engine has already.
    ///
    /// ```
    /// use atmesh::engine::{Engine, Executable, Failure, Job, RunReport};
    /// use atmesh::prelude::*;
    /// use atmesh::runtime::Slab;
    /// use std::sync::Arc;
    /// use std::time::Instant;
    ///
    /// /// Runs programs in lock-step, and tells how long each call takes.
    /// struct Timed;
    /// struct Run(Arc<dyn Executable>);
    ///
    /// impl Engine for Timed {
    ///     fn compile(&self, job: Job<'_>) -> Result<Arc<dyn Executable>> {
    ///         println!("{} equations", job.program().equations.len());
    ///         Ok(Arc::new(Run(job.compile_by(EngineKind::Lockstep)?)))
    ///     }
    /// }
    /// impl Executable for Run {
    ///     fn call(&self, args: &mut [Slab]) -> Result<Vec<Slab>, Failure> {
    ///         let begin = Instant::now();
    ///         let results = self.0.call(args);
    ///         println!("{:?}", begin.elapsed());
    ///         results
    ///     }
    ///     fn report(&self) -> RunReport {
    ///         self.0.report()
    ///     }
    /// }
    ///
    /// let timed = EngineKind::add("timed", Timed)?;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p!["X"]);
    /// let sum = jit(|x: &Array| x.sum(..)).engine(timed);
    /// assert_eq!(sum.call(&x)?.item::<i32>()?, 6);
    /// assert_eq!("timed".parse::<EngineKind>()?, timed);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn add(name: &str, engine: impl Engine + 'static) -> Result<EngineKind> {
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(word) {
            let fault = Fault::new(ErrorKind::Syntax, format!("{name:?} is no name for an engine"));
            return Err(fault.help("name it by letters, digits, `_` and `-`").into());
        }
        let mut list = ADDED.write().unwrap_or_else(PoisonError::into_inner);
        if super::OWN.iter().map(|k| k.name()).chain(list.iter().map(|a| a.name)).any(|n| n == name) {
            let fault = Fault::new(ErrorKind::Syntax, format!("there is an engine {name:?} already"));
            return Err(fault
                .help("give it another name; add an engine once, and keep what `add` returns")
                .into());
        }
        let added =
            Added { number: list.len(), name: Box::leak(name.into()), engine: Box::leak(Box::new(engine)) };
        list.push(added);
        Ok(EngineKind::Added(added))
    }
}

/// What an added engine makes is what was asked for, or an error.
impl Engine for Added {
    fn compile(&self, job: Job<'_>) -> Result<Arc<dyn Executable>> {
        if job.depth == DEEP {
            let text = format!("the engine {} compiles by itself, without end", self.name);
            let fault = Fault::new(ErrorKind::Other, text);
            return Err(fault
                .help("compile by one of `Lockstep`, `Threads`, `Reference`, `Xla` in the end")
                .into());
        }
        let job = Job { depth: job.depth + 1, ..job };
        let made = guarded(|| self.engine.compile(job)).map_err(|said| self.panicked(&said))??;
        let wanted = job.spmd.outs.iter().map(|s| Wanted::of(job.spmd, *s)).collect();
        Ok(Arc::new(Checked { engine: *self, made, wanted }))
    }
}

impl Added {
    fn panicked(&self, said: &str) -> Fault {
        Fault::new(ErrorKind::Other, format!("the engine {} panicked: {said}", self.name))
    }
}

/// What a result is.
struct Wanted {
    dtype: DType,
    shape: Shape,
    parts: usize,
}

impl Wanted {
    fn of(program: &SpmdProgram, slot: Slot) -> Wanted {
        let stored = &program.slots[slot];
        let parts = stored.layout.partial.as_ref().map_or(1, |p| ways(&p.1));
        Wanted { dtype: stored.dtype, shape: stored.shape.clone(), parts }
    }
    fn is(&self, slab: &Slab) -> bool {
        (slab.dtype(), slab.shape(), slab.copies()) == (self.dtype, &self.shape, self.parts)
    }
}
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)?;
        if self.parts > 1 { write!(f, " of {} parts", self.parts) } else { Ok(()) }
    }
}

struct Checked {
    engine: Added,
    made: Arc<dyn Executable>,
    wanted: Vec<Wanted>,
}

impl Executable for Checked {
    fn call(&self, args: &mut [Slab]) -> Result<Vec<Slab>, Failure> {
        let ran = guarded(|| self.made.call(args));
        let results =
            ran.map_err(|said| Failure { error: self.engine.panicked(&said).into(), before: false })??;
        let told = |text: String| {
            let fault = Fault::new(ErrorKind::Other, format!("the engine {} gives {text}", self.engine.name));
            Err(Failure { error: fault.into(), before: false })
        };
        if results.len() != self.wanted.len() {
            return told(format!("{} results, and the program has {}", results.len(), self.wanted.len()));
        }
        for (k, (slab, wanted)) in results.iter().zip(&self.wanted).enumerate() {
            if !wanted.is(slab) {
                let is = Wanted { dtype: slab.dtype(), shape: slab.shape().clone(), parts: slab.copies() };
                return told(format!("{is} for result {k}, which is {wanted}"));
            }
        }
        Ok(results)
    }
    fn report(&self) -> RunReport {
        RunReport { engine: self.engine.name, ..self.made.report() }
    }
}
