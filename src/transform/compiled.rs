//! The stages of a traced function as values: traced, lowered, compiled.

use super::implicit::ImplicitReshard;
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result, Spot};
use crate::engine::RunReport;
use crate::engine::{self, EngineKind, Failure};
use crate::partition::{Collectives, Localised, Memory, MemoryClass, PerByte, SpmdProgram};
use crate::plan::{Machine, Plan, Timeline};
use crate::program::{Call, Program};
use crate::runtime::Slab;
use crate::sharding::Sharding;
use crate::trace::Recorded;
use crate::trace::Repr;
use crate::trace::stages::{self, Ready, Staged};
use crate::tree::{Args, Path, Tree};
use crate::types::{ArrayType, DType};
use smallvec::SmallVec;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// What a program was traced for: an argument's type and sharding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Leaf {
    pub(crate) ty: ArrayType,
    pub(crate) sharding: Option<Sharding>,
}

impl Leaf {
    /// What an array is. Of one that carries an error: a scalar, since nobody asks.
    pub(crate) fn of(a: &Array) -> Leaf {
        let ty = a.type_ref().cloned().unwrap_or_else(|_| DType::F32.of([]));
        Leaf { ty, sharding: a.placed().cloned() }
    }
    fn is(&self, a: &Array) -> bool {
        match a.repr() {
            Repr::Concrete(c) => c.ty == self.ty && c.sharding == self.sharding,
            _ => false,
        }
    }
}

/// What all stages know of the function.
struct Signature<I, O> {
    args: I,
    leaves: Vec<Leaf>,
    /// For each leaf, then for each capture.
    donated: Vec<bool>,
    captures: Vec<Array>,
    out: O,
    engine: EngineKind,
    implicit: ImplicitReshard,
    per_byte: PerByte,
}

/// The tree without its numbers: types only, to compare with and to build results from.
pub(crate) fn stripped<T: Tree>(tree: &T) -> T {
    tree.rebuild(&mut Path::unnamed(), &mut |_, a| {
        let leaf = Leaf::of(a);
        Array::type_only(leaf.ty, leaf.sharding)
    })
}

/// A function as a typed program: the first stage. It prints.
pub struct Traced<I, O> {
    program: Arc<Program>,
    signature: Signature<I, O>,
}

/// A function as one per-device program with its collectives: the second stage. It prints.
pub struct Lowered<I, O> {
    program: Arc<Program>,
    staged: Staged,
    signature: Signature<I, O>,
}

/// A function that is ready to run on arguments of one set of types. It is `Send + Sync`, and cheap to clone.
pub struct Compiled<I, O>(Arc<Entry<I, O>>);

impl<I, O> Clone for Compiled<I, O> {
    fn clone(&self) -> Self {
        Compiled(self.0.clone())
    }
}

/// The types that it takes.
impl<I, O> fmt::Debug for Compiled<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<String> = self.0.signature.leaves.iter().map(|leaf| leaf.ty.to_string()).collect();
        write!(f, "Compiled(for {})", types.join(", "))
    }
}
// a call that panics leaves the program as it was
impl<I, O> UnwindSafe for Compiled<I, O> {}
impl<I, O> RefUnwindSafe for Compiled<I, O> {}

/// A compiled program for one set of argument types.
pub(crate) struct Entry<I, O> {
    program: Arc<Program>,
    signature: Signature<I, O>,
    /// Whether any argument is donated.
    donates: bool,
    captures: Vec<Slab>,
    ready: Arc<Ready>,
}

impl<I, O> Traced<I, O> {
    pub(super) fn new(
        recorded: Recorded,
        args: I,
        leaves: Vec<Leaf>,
        mut donated: Vec<bool>,
        out: O,
        engine: EngineKind,
    ) -> Traced<I, O> {
        let Recorded { program, captures } = recorded;
        donated.resize(leaves.len() + captures.len(), false);
        let program = Arc::new(program);
        let (implicit, per_byte) = (ImplicitReshard::Allow, PerByte::default());
        let signature = Signature { args, leaves, donated, captures, out, engine, implicit, per_byte };
        Traced { program, signature }
    }
    /// The same, with what is done about moves that it does not ask for.
    pub(super) fn moving(mut self, implicit: ImplicitReshard) -> Traced<I, O> {
        self.signature.implicit = implicit;
        self
    }
    /// The same, where a byte costs so much.
    pub(super) fn priced(mut self, per_byte: PerByte) -> Traced<I, O> {
        self.signature.per_byte = per_byte;
        self
    }
    /// The program, typed over global arrays.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// All stages at once: an equal program that was compiled before serves again.
    pub(super) fn into_entry(self, place: Place) -> Result<Arc<Entry<I, O>>> {
        let Traced { program, signature } = self;
        if signature.implicit != ImplicitReshard::Allow {
            let staged = stages::lower(&program, signature.per_byte)?;
            signature.implicit.check(&staged.localised.collectives)?;
        }
        let Signature { donated, engine, per_byte, .. } = &signature;
        let ready = stages::ready(program.clone(), donated, *engine, *per_byte)?;
        Ok(Arc::new(Entry::new(program, signature, ready, place)?))
    }
    /// Places every value and makes the per-device program.
    pub fn lower(self) -> Result<Lowered<I, O>> {
        let mut staged = stages::lower(&self.program, self.signature.per_byte)?;
        if self.signature.donated.contains(&true) {
            let localised = &mut staged.localised;
            let all = std::mem::take(&mut localised.collectives);
            localised.collectives = all.donating(&localised.program, &self.signature.donated);
        }
        self.signature.implicit.check(&staged.localised.collectives)?;
        Ok(Lowered { program: self.program, staged, signature: self.signature })
    }
}
impl<I: Tree, O: Tree> Traced<I, O> {
    /// The same of another program of the same arguments and results.
    pub(super) fn with_program(self, program: Program) -> Traced<I, O> {
        Traced { program: Arc::new(program), ..self }
    }
    /// The paths of the arguments' leaves and of the results'.
    pub(super) fn paths(&self) -> (Vec<String>, Vec<String>) {
        (super::stablehlo::paths(&self.signature.args), super::stablehlo::paths(&self.signature.out))
    }
    /// Which inputs may be written over, and the captured arrays, which come last.
    pub(super) fn given(&self) -> (&[bool], &[Array]) {
        (&self.signature.donated, &self.signature.captures)
    }
}
impl<I, O> fmt::Display for Traced<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.program, f)
    }
}
impl<I, O> fmt::Debug for Traced<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<I, O> Lowered<I, O> {
    /// The program over global arrays, every value placed. On auto axes, values that nobody placed may be stored otherwise where that
    /// moves less: the per-device program, [`Lowered::spmd`], says where.
    pub fn program(&self) -> &Program {
        &self.staged.program
    }
    /// The per-device program.
    pub fn spmd(&self) -> &SpmdProgram {
        &self.staged.localised.program
    }
    /// Every collective, with its bytes, its source line, and the reason for it.
    pub fn collectives(&self) -> &Collectives {
        &self.staged.localised.collectives
    }
    /// How long one call takes on a machine, by arithmetic: each kernel and collective, what binds them, and their lines. Nothing runs, and
    /// the mesh needs no devices.
    ///
    /// # Errors
    /// A figure of the machine that is none, or a mesh axis over which something moves and along which the machine has no link.
    ///
    /// The example is at [`Plan`].
    #[track_caller]
    pub fn plan(&self, machine: &Machine) -> Result<Plan> {
        let place = Location::caller();
        Plan::new(self.spmd(), self.collectives(), machine).map_err(|e| e.located("plan", place))
    }
    /// Compiles the per-device program for its engine.
    #[track_caller]
    pub fn compile(self) -> Result<Compiled<I, O>> {
        let place = Location::caller();
        let engine = self.signature.engine;
        let exe = engine::compile(engine, self.staged.job(&self.signature.donated))?;
        let ready = Arc::new(Ready { exe, results: self.staged.results });
        Ok(Compiled(Arc::new(Entry::new(self.program, self.signature, ready, place)?)))
    }
}
impl<I: Tree, O> Lowered<I, O> {
    /// The arguments, as types.
    pub(super) fn arguments(&self) -> &I {
        &self.signature.args
    }
    /// What a device holds when it holds most: arguments by their paths, results, values between, and what was received. The sum of a
    /// class or of the arguments below a path is one call. Arguments that are [donated](crate::Jit::donate) are free behind their last
    /// reader; one that reads them element by element writes over them. What a loop's body reads of the program around it is counted
    /// once; what elementwise operations make that is read by what is computed with them, and by nothing else, is in no memory. Engines do not follow it step by step: it
    /// is a plan's figure for devices with memory of their own.
    ///
    /// ```
    /// use atmesh::{MemoryClass, prelude::*};
    ///
    /// let mesh = Mesh::without_devices([("X", 8)])?;
    /// let (w, g) = (|| F32.of([64, 16]).on(&mesh, p!["X"]), || F32.of([64, 16]).on(&mesh, p!["X"]));
    /// let step = |w: &Array, g: &Array| w - 0.5 * g;
    ///
    /// // both arguments and the result
    /// let kept = jit(step).lower((w(), g()))?.memory();
    /// assert_eq!(kept.peak_bytes, 3 * 8 * 16 * 4);
    /// assert_eq!((kept.under("0"), kept.bytes(MemoryClass::Result)), (512, 512));
    ///
    /// // the new weights are written over the old ones
    /// assert_eq!(jit(step).donate(0).lower((w(), g()))?.memory().peak_bytes, 2 * 8 * 16 * 4);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn memory(&self) -> Memory {
        let Localised { program, collectives } = &self.staged.localised;
        let mut memory = collectives.holds.memory(program, &self.signature.donated);
        let paths = super::stablehlo::paths(&self.signature.args);
        for e in memory.entries.iter_mut().filter(|e| e.class == MemoryClass::Argument) {
            if let Some(k) = e.number {
                e.path = paths.get(k).cloned().unwrap_or_else(|| format!("captured {}", k - paths.len()));
            }
        }
        memory
    }
}
impl<I, O> fmt::Display for Lowered<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.spmd(), f)
    }
}
impl<I, O> fmt::Debug for Lowered<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<I: Tree, O: Tree> Compiled<I, O> {
    /// Runs it. Arguments of other types than it was compiled for are refused, with the path of the first that differs.
    #[track_caller]
    pub fn call<A: Args<Owned = I>>(&self, args: A) -> Result<O> {
        let place = Location::caller();
        let args = args.into_tree();
        if !self.0.takes(&args) {
            return Err(self.0.refuse(&args, place));
        }
        self.0.run(&args, place)
    }
    /// Runs it, and tells what was done when: on each device of the engine [`Threads`](EngineKind::Threads), or by each worker of the engine
    /// [`Lockstep`](EngineKind::Lockstep), every kernel with its operation and line, and the waiting for others. Without it no time is looked at.
    ///
    /// # Errors
    /// As for [`call`](Compiled::call), and [`ErrorKind::Unsupported`] of an engine that keeps no times.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let (x, w) = (Array::ones([64, 32]).put(&mesh, p!["X"]), Array::ones([32, 32]));
    /// let layer = jit(|x: &Array, w: &Array| x.dot(w).tanh()).engine(Threads);
    /// let (y, timeline) = layer.lower((&x, &w))?.compile()?.call_timed((&x, &w))?;
    /// assert_eq!(y.to_vec::<f32>()?.len(), 64 * 32);
    /// assert_eq!(timeline.tracks(), 4);
    /// assert!(timeline.spans().iter().any(|s| s.op == "dot_general"));
    /// println!("{timeline}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn call_timed<A: Args<Owned = I>>(&self, args: A) -> Result<(O, Timeline)> {
        let place = Location::caller();
        let args = args.into_tree();
        if !self.0.takes(&args) {
            return Err(self.0.refuse(&args, place));
        }
        self.0.run_by(&args, place, Ready::call_timed)
    }
    /// How it runs: engine, workers, memory, and the compiled program as text.
    pub fn report(&self) -> RunReport {
        self.0.ready.exe.report()
    }
}

impl<I, O> Entry<I, O> {
    fn new(
        program: Arc<Program>,
        signature: Signature<I, O>,
        ready: Arc<Ready>,
        place: Place,
    ) -> Result<Entry<I, O>> {
        let captures = signature.captures.iter().map(|a| a.slab("compile", place)).collect::<Result<_>>()?;
        let donates = signature.donated.contains(&true);
        Ok(Entry { program, signature, donates, captures, ready })
    }
}

impl<I: Tree, O: Tree> Entry<I, O> {
    /// What was recorded for it.
    pub(super) fn traced(&self) -> Traced<I, O> {
        let Signature { args, leaves, donated, captures, out, engine, implicit, per_byte } = &self.signature;
        let signature = Signature {
            args: stripped(args),
            leaves: leaves.clone(),
            donated: donated.clone(),
            captures: captures.clone(),
            out: stripped(out),
            engine: *engine,
            implicit: *implicit,
            per_byte: *per_byte,
        };
        Traced { program: self.program.clone(), signature }
    }
    /// Whether it was compiled for arguments of these types.
    pub(super) fn takes(&self, args: &I) -> bool {
        let (mut at, mut same) = (0, true);
        args.visit(&mut Path::unnamed(), &mut |_, a| {
            same = same && self.signature.leaves.get(at).is_some_and(|leaf| leaf.is(a));
            at += 1;
        });
        same && at == self.signature.leaves.len()
            && self.signature.args.differs(args, &mut Path::unnamed()).is_none()
    }
    /// Runs it on arguments that it takes.
    pub(super) fn run(&self, args: &I, place: Place) -> Result<O> {
        self.run_by(args, place, |ready, slabs| Ok((ready.call(slabs)?, ()))).map(|(out, ())| out)
    }
    /// The same by a way to run what was compiled.
    fn run_by<T>(
        &self,
        args: &I,
        place: Place,
        way: impl FnOnce(&Ready, &mut [Slab]) -> Result<(Vec<Array>, T), Failure>,
    ) -> Result<(O, T)> {
        in_span!("call", engine = %self.signature.engine, %place);
        let mut slabs: SmallVec<[Slab; 8]> = SmallVec::new();
        let mut failed = None;
        args.visit(&mut Path::unnamed(), &mut |_, a| match a.slab("call", place) {
            Ok(slab) => slabs.push(slab),
            Err(e) => {
                failed.get_or_insert(e);
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let taken = if self.donates { self.donate(args, place, &slabs)? } else { SmallVec::new() };
        slabs.extend(self.captures.iter().cloned());
        let (results, told) = way(&self.ready, &mut slabs).map_err(|failure| {
            if failure.before {
                restore(args, &taken, &slabs);
            }
            failure.error.located("call", place)
        })?;
        let mut results = results.into_iter();
        let out = self
            .signature
            .out
            .rebuild(&mut Path::unnamed(), &mut |_, _| results.next().expect("one for each leaf"));
        Ok((out, told))
    }
    /// Takes the donated arguments' numbers from their handles: only the run holds them now. Which ones it took.
    fn donate(&self, args: &I, place: Place, slabs: &[Slab]) -> Result<SmallVec<[usize; 8]>> {
        let mut donated = self.signature.donated.iter().enumerate();
        let mut taken = SmallVec::new();
        let mut failed = None;
        args.visit(&mut Path::unnamed(), &mut |_, a| {
            if let (Some((at, true)), Repr::Concrete(c)) = (donated.next(), a.repr()) {
                match c.donate(place) {
                    Ok(_) => taken.push(at),
                    Err(e) => {
                        failed.get_or_insert(e);
                    }
                }
            }
        });
        match failed {
            None => Ok(taken),
            Some(error) => {
                restore(args, &taken, slabs);
                Err(error)
            }
        }
    }
    fn refuse(&self, args: &I, place: Place) -> Error {
        if let Some(how) = self.signature.args.differs(args, &mut Path::named()) {
            return crate::tree::mismatch(COMPILED, &how, Call::new("call", place));
        }
        let mut leaves = self.signature.leaves.iter();
        let mut found = Vec::new();
        args.visit(&mut Path::named(), &mut |path, a| {
            let Some(leaf) = leaves.next() else { return };
            if leaf.is(a) {
                return;
            }
            found.push(match a.type_ref() {
                Err(e) => e.clone(),
                Ok(ty) => {
                    let kind = differing(ty, &leaf.ty);
                    let lies = |l: &Leaf| l.sharding.as_ref().map_or("on no mesh".into(), |s| s.to_string());
                    let (was, is) = (lies(leaf), lies(&Leaf::of(a)));
                    let message = if *ty == leaf.ty {
                        format!(
                            "argument {} is sharded as {is}; the program was compiled for {was}",
                            path.or("0")
                        )
                    } else {
                        format!("argument {} is {ty}; the program was compiled for {}", path.or("0"), leaf.ty)
                    };
                    let fault = Fault::new(kind, message)
                        .help("`jit(f).call(..)` compiles one for each set of types");
                    Error::at(marked(fault, 0, ty, &leaf.ty), "call", vec![ty.to_string()], Some(place))
                }
            });
        });
        if found.is_empty() {
            return crate::tree::mismatch(COMPILED, "in number of arrays", Call::new("call", place));
        }
        Error::all(found)
    }
}

/// Gives these arguments their numbers back.
fn restore<I: Tree>(args: &I, taken: &[usize], slabs: &[Slab]) {
    let mut at = 0;
    args.visit(&mut Path::unnamed(), &mut |_, a| {
        if let (true, Repr::Concrete(c)) = (taken.contains(&at), a.repr()) {
            c.restore(slabs[at].clone());
        }
        at += 1;
    });
}

const COMPILED: &str = "the arguments that the program was compiled for and these";

/// The fault with that marked in the type of operand `k`, `ty`, in which it differs from another.
pub(crate) fn marked(fault: Fault, k: usize, ty: &ArrayType, other: &ArrayType) -> Fault {
    match differing(ty, other) {
        ErrorKind::Dtype => fault.mark(k, Spot::Dtype),
        ErrorKind::Vma => fault.mark(k, Spot::Sets),
        ErrorKind::Shape if ty.rank() != other.rank() => fault,
        kind => {
            let differs = |d: &usize| match kind {
                ErrorKind::Shape => ty.shape[*d] != other.shape[*d],
                _ => ty.spec.dim(*d) != other.spec.dim(*d),
            };
            let dims: Vec<usize> = (0..ty.rank()).filter(differs).collect();
            match dims.is_empty() {
                true => fault.mark(k, Spot::Sets),
                false => dims.into_iter().fold(fault, |f, d| f.dim(k, d)),
            }
        }
    }
}

/// In what two types differ first: shape, element type, varying axes, sharding.
pub(crate) fn differing(a: &ArrayType, b: &ArrayType) -> ErrorKind {
    if a.shape != b.shape {
        ErrorKind::Shape
    } else if a.dtype != b.dtype {
        ErrorKind::Dtype
    } else if a.varying != b.varying {
        ErrorKind::Vma
    } else {
        ErrorKind::Sharding
    }
}

/// Asserts the collectives of a lowered program: these and no others. `assert_collectives!(lowered)`: none.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::ones([4]).put(&mesh, p!["X"]);
/// let lowered = jit(|x: &Array| x.sum(..)).lower(&x)?;
/// assert_collectives!(lowered, AllReduce("X") x 1);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[macro_export]
macro_rules! assert_collectives {
    ($l:expr $(, $k:ident($a:expr) x $n:expr)* $(,)?) => {
        $l.collectives().assert(&[$(($crate::Kind::$k, $crate::Axes::from($a), $n)),*])
    };
}
