//! The stages of a traced function, as values: [`Traced`], [`Lowered`] and [`Compiled`].

use super::implicit_reshard::ImplicitReshard;
use crate::api::trace::pipeline::{self, CompiledProgram, LoweredProgram};
use crate::api::tree::{CallArgs, Path, Tree};
use crate::api::{array::Array, trace::RecordedProgram, trace::Repr};
use crate::core::{ArrayType, DType, Error, Fault, Result, Sharding, SourceLocation};
use crate::exec::engine::{self, ExecutionReport};
use crate::exec::engine::{EngineConfig, Failure};
use crate::exec::runtime::ArrayData;
use crate::ir::program::typing::agree::{first_difference, mark_difference};
use crate::ir::program::{CallSite, Program};
use crate::partition::plan::{Machine, Plan, Timeline};
use crate::partition::{Collectives, Memory, MemoryClass, Partitioned, SpmdProgram, TransferPrices};
use smallvec::SmallVec;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// The type and sharding of one argument leaf, for which a program was traced.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LeafType {
    pub(crate) ty: ArrayType,
    pub(crate) sharding: Option<Sharding>,
}

impl LeafType {
    /// Returns the type and sharding of an array.
    /// An array that carries an error counts as a scalar, since its type is never used.
    pub(crate) fn from_array(a: &Array) -> LeafType {
        let ty = a.type_ref().cloned().unwrap_or_else(|_| DType::F32.array_type([]));
        LeafType { ty, sharding: a.concrete_sharding().cloned() }
    }
    fn matches(&self, a: &Array) -> bool {
        match a.repr() {
            Repr::Concrete(c) => c.ty == self.ty && c.sharding == self.sharding,
            _ => false,
        }
    }
}

/// The interface of a traced function, which all stages share.
struct Signature<I, O> {
    /// The arguments, as types.
    args: I,
    /// The type and sharding of each argument leaf.
    leaves: Vec<LeafType>,
    /// For each argument leaf, then each capture: true if its memory may be overwritten.
    donated: Vec<bool>,
    captures: Vec<Array>,
    /// The results, as types.
    out: O,
    /// The engine that runs the function, with its options.
    engine: EngineConfig,
    implicit_reshard: ImplicitReshard,
    /// The cost of moving a byte, relative to computation.
    per_byte: TransferPrices,
}

impl<I: Tree, O: Tree> Signature<I, O> {
    /// Returns an equal signature.
    fn copy(&self) -> Signature<I, O> {
        let Signature { args, leaves, donated, captures, out, engine, implicit_reshard, per_byte } = self;
        Signature {
            args: types_only(args),
            leaves: leaves.clone(),
            donated: donated.clone(),
            captures: captures.clone(),
            out: types_only(out),
            engine: *engine,
            implicit_reshard: *implicit_reshard,
            per_byte: per_byte.clone(),
        }
    }
    /// Returns true if these arguments are arrays of the argument types.
    fn accepts(&self, args: &I) -> bool {
        let (mut at, mut same) = (0, true);
        args.visit(&mut Path::unnamed(), &mut |_, a| {
            same = same && self.leaves.get(at).is_some_and(|leaf| leaf.matches(a));
            at += 1;
        });
        same && at == self.leaves.len() && self.args.differs(args, &mut Path::unnamed()).is_none()
    }
}

/// Returns the tree with its data removed: types only, to compare with and to rebuild results from.
pub(crate) fn types_only<T: Tree>(tree: &T) -> T {
    tree.rebuild(&mut Path::unnamed(), &mut |_, a| {
        let leaf = LeafType::from_array(a);
        Array::type_only(leaf.ty, leaf.sharding)
    })
}

/// A traced function: its typed program over global arrays. This is the first stage.
///
/// `Display` prints the program.
///
/// ```
/// use atmesh::prelude::*;
/// let traced = jit(|x: &Array| x.sin()).trace(F32.array_type([2]))?;
/// assert!(traced.to_string().contains("sin"));
/// let lowered = traced.lower()?;
/// assert!(lowered.collectives().is_empty());
/// # Ok::<(), atmesh::Error>(())
/// ```
pub struct Traced<I, O> {
    program: Arc<Program>,
    signature: Signature<I, O>,
}

/// A lowered function: one per-device program with its collectives. This is the second stage.
///
/// `Display` prints the program.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::without_devices([("X", 4)])?;
/// let x = F32.array_type([8]).on(&mesh, p!["X"]);
/// let lowered = jit(|x: &Array| x.sum(..)).lower(x)?;
/// assert_collectives!(lowered, AllReduce("X") x 1);
/// println!("{lowered}"); // the program of one device
/// # Ok::<(), atmesh::Error>(())
/// ```
pub struct Lowered<I, O> {
    program: Arc<Program>,
    lowered: LoweredProgram,
    signature: Signature<I, O>,
}

/// A compiled function, ready to run on arguments of one set of types.
///
/// It is `Send + Sync` and cheap to clone.
///
/// ```
/// use atmesh::prelude::*;
/// let compiled = jit(|x: &Array| x + 1).trace(I32.array_type([2]))?.lower()?.compile()?;
/// assert_eq!(compiled.call(Array::from([1, 2]))?.to_vec::<i32>()?, [2, 3]);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub struct Compiled<I, O>(Arc<CompiledFunction<I, O>>);

impl<I, O> Clone for Compiled<I, O> {
    fn clone(&self) -> Self {
        Compiled(self.0.clone())
    }
}

/// Prints the argument types.
impl<I, O> fmt::Debug for Compiled<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<String> = self.0.signature.leaves.iter().map(|leaf| leaf.ty.to_string()).collect();
        write!(f, "Compiled(for {})", types.join(", "))
    }
}
// a call that panics leaves the compiled program unchanged
impl<I, O> UnwindSafe for Compiled<I, O> {}
impl<I, O> RefUnwindSafe for Compiled<I, O> {}

/// A compiled program for one set of argument types, with the interface of its function.
pub(crate) struct CompiledFunction<I, O> {
    program: Arc<Program>,
    signature: Signature<I, O>,
    /// True if any argument is donated.
    donates: bool,
    captures: Vec<ArrayData>,
    executable: Arc<CompiledProgram>,
}

impl<I, O> Traced<I, O> {
    pub(super) fn new(
        recorded: RecordedProgram,
        args: I,
        leaves: Vec<LeafType>,
        mut donated: Vec<bool>,
        out: O,
        engine: EngineConfig,
    ) -> Traced<I, O> {
        let RecordedProgram { program, captures } = recorded;
        donated.resize(leaves.len() + captures.len(), false);
        let program = Arc::new(program);
        let (implicit, per_byte) = (ImplicitReshard::Allow, TransferPrices::default());
        let signature =
            Signature { args, leaves, donated, captures, out, engine, implicit_reshard: implicit, per_byte };
        Traced { program, signature }
    }
    /// Sets how implicit resharding is handled.
    pub(super) fn with_implicit_reshard(mut self, implicit: ImplicitReshard) -> Traced<I, O> {
        self.signature.implicit_reshard = implicit;
        self
    }
    /// Sets the cost of communicating a byte, relative to computation.
    pub(super) fn with_per_byte(mut self, per_byte: TransferPrices) -> Traced<I, O> {
        self.signature.per_byte = per_byte;
        self
    }
    /// Returns the program, typed over global arrays.
    #[doc(alias("make_jaxpr", "jaxpr"))]
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// Runs all remaining stages. A program equal to one compiled before reuses its executable.
    pub(super) fn into_compiled(self, location: SourceLocation) -> Result<Arc<CompiledFunction<I, O>>> {
        let Traced { program, signature } = self;
        if signature.implicit_reshard != ImplicitReshard::Allow {
            let staged = pipeline::lower(&program, signature.per_byte.clone())?;
            signature.implicit_reshard.check(&staged.partitioned.collectives)?;
        }
        let Signature { donated, engine, per_byte, .. } = &signature;
        let ready = pipeline::compile_cached(program.clone(), donated, *engine, per_byte.clone())?;
        Ok(Arc::new(CompiledFunction::new(program, signature, ready, location)?))
    }
    /// Places every value and derives the per-device program.
    pub fn lower(self) -> Result<Lowered<I, O>> {
        let staged = pipeline::lower(&self.program, self.signature.per_byte.clone())?;
        self.signature.implicit_reshard.check(&staged.partitioned.collectives)?;
        Ok(Lowered { program: self.program, lowered: staged, signature: self.signature })
    }
}
/// Returns the paths of a tree's leaves.
pub(super) fn paths<T: Tree>(tree: &T) -> Vec<String> {
    let mut names = Vec::new();
    tree.visit(&mut Path::named(), &mut |path, _| names.push(path.to_string()));
    names
}

impl<I: Tree, O: Tree> Traced<I, O> {
    /// Replaces the program by another one with equal arguments and results.
    pub(super) fn with_program(self, program: Program) -> Traced<I, O> {
        Traced { program: Arc::new(program), ..self }
    }
    /// Returns the paths of the argument leaves and of the result leaves.
    pub(super) fn paths(&self) -> (Vec<String>, Vec<String>) {
        (paths(&self.signature.args), paths(&self.signature.out))
    }
    /// Returns the donation flag of each input, and the captured arrays, which are the last inputs.
    pub(super) fn donated_and_captures(&self) -> (&[bool], &[Array]) {
        (&self.signature.donated, &self.signature.captures)
    }
}
impl<I, O> fmt::Display for Traced<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.program, f)
    }
}
debug_as_display! { [I, O] Traced<I, O> }

impl<I, O> Lowered<I, O> {
    /// Returns the program over global arrays, with every value placed.
    ///
    /// On auto axes, an intermediate value may be stored with another sharding if that moves fewer
    /// bytes; [`Lowered::spmd`] shows the final placements.
    pub fn program(&self) -> &Program {
        &self.lowered.program
    }
    /// Returns the per-device program.
    pub fn spmd(&self) -> &SpmdProgram {
        &self.lowered.partitioned.program
    }
    /// Returns every collective, with its bytes, its source location and the reason for it.
    pub fn collectives(&self) -> &Collectives {
        let Partitioned { program, collectives } = &self.lowered.partitioned;
        collectives.with_peak(program, &self.signature.donated)
    }
    /// Estimates the time of one call on a machine.
    ///
    /// The plan lists each kernel and collective, what bounds it, and its source location. Nothing
    /// runs, and the mesh needs no devices. For an example see [`Plan`].
    ///
    /// # Errors
    /// Returns an error if a parameter of the machine is missing or invalid, or if data moves over
    /// a mesh axis for which the machine has no link.
    #[track_caller]
    pub fn plan(&self, machine: &Machine) -> Result<Plan> {
        let location = Location::caller();
        Plan::new(self.spmd(), self.collectives(), machine).map_err(|e| e.with_location("plan", location))
    }
    /// Compiles the per-device program for its engine.
    #[track_caller]
    pub fn compile(self) -> Result<Compiled<I, O>> {
        let location = Location::caller();
        let engine = self.signature.engine;
        let request = self.lowered.compile_request(&self.signature.donated, engine);
        let exe = engine::compile(engine.kind, request)?;
        let ready = Arc::new(CompiledProgram { exe, results: self.lowered.results });
        Ok(Compiled(Arc::new(CompiledFunction::new(self.program, self.signature, ready, location)?)))
    }
}
impl<I: Tree, O> Lowered<I, O> {
    /// Returns the arguments, as types.
    pub(super) fn arguments(&self) -> &I {
        &self.signature.args
    }
    /// Estimates the peak memory of one device.
    ///
    /// The estimate is itemised: arguments by path, results, intermediate values, and received
    /// data. [`Memory`] has one-call sums for a class and for the arguments under a path. Arguments
    /// and results are held from the beginning to the end. A result in the memory of a
    /// [donated](crate::Jit::donate) argument counts once, as the argument; other donated arguments
    /// are free after their last use. Values that a loop body reads from the surrounding program
    /// count once. Values that are fused into their consumers take no memory.
    ///
    /// The figure is for devices that have their own memory. It follows from the same decisions as
    /// the memory of the built-in engines, which allocate about as much on one device. They take
    /// more for matmuls of 16-bit floats, whose operands they convert to float32.
    ///
    /// ```
    /// use atmesh::{MemoryClass, prelude::*};
    ///
    /// let mesh = Mesh::without_devices([("X", 8)])?;
    /// let (w, g) = (|| F32.array_type([64, 16]).on(&mesh, p!["X"]),
    ///     || F32.array_type([64, 16]).on(&mesh, p!["X"]));
    /// let step = |w: &Array, g: &Array| w - 0.5 * g;
    ///
    /// // both arguments and the result
    /// let kept = jit(step).lower((w(), g()))?.memory();
    /// assert_eq!(kept.peak_bytes, 3 * 8 * 16 * 4);
    /// assert_eq!((kept.under("0"), kept.bytes(MemoryClass::Result)), (512, 512));
    ///
    /// // the new weights overwrite the old ones
    /// assert_eq!(jit(step).donate(0).lower((w(), g()))?.memory().peak_bytes, 2 * 8 * 16 * 4);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn memory(&self) -> Memory {
        let Partitioned { program, collectives } = &self.lowered.partitioned;
        let mut memory = collectives.memory.memory(program, &self.signature.donated);
        let paths = paths(&self.signature.args);
        for e in memory.entries.iter_mut().filter(|e| e.class == MemoryClass::Argument) {
            if let Some(k) = e.index {
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
debug_as_display! { [I, O] Lowered<I, O> }

impl<I: Tree, O: Tree> Compiled<I, O> {
    /// Runs the function.
    ///
    /// It is an error if the arguments have other types than those it was compiled for; the error
    /// names the path of each differing argument.
    #[track_caller]
    pub fn call<A: CallArgs<I>>(&self, args: A) -> Result<O> {
        let location = Location::caller();
        let args = args.into_tree();
        if !self.0.accepts(&args) {
            return Err(self.0.argument_error(&args, location));
        }
        self.0.run(&args, location)
    }
    /// Runs the function and returns its results with a timeline of the run.
    ///
    /// The timeline has every kernel, with its operation and source location, and the time spent
    /// waiting for others. It has one track per device on the engine
    /// [`Threads`](crate::EngineKind::Threads), and one per worker on
    /// [`Lockstep`](crate::EngineKind::Lockstep). Ordinary calls do not read the clock.
    ///
    /// # Errors
    /// Returns the errors of [`call`](Compiled::call), and
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the engine does not record times.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let (x, w) = (Array::ones([64, 32]).put(&mesh, p!["X"]), Array::ones([32, 32]));
    /// let layer = jit(|x: &Array, w: &Array| x.dot(w).tanh()).engine(Threads);
    /// let (y, timeline) = layer.lower((&x, &w))?.compile()?.profile((&x, &w))?;
    /// assert_eq!(y.to_vec::<f32>()?.len(), 64 * 32);
    /// assert_eq!(timeline.tracks(), 4);
    /// assert!(timeline.spans().iter().any(|s| s.op == "dot_general"));
    /// println!("{timeline}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("profiler"))]
    #[track_caller]
    pub fn profile<A: CallArgs<I>>(&self, args: A) -> Result<(O, Timeline)> {
        let location = Location::caller();
        let args = args.into_tree();
        if !self.0.accepts(&args) {
            return Err(self.0.argument_error(&args, location));
        }
        self.0.run_with(&args, location, CompiledProgram::profile)
    }
    /// Describes the execution: engine, workers, memory, and the compiled program as text.
    pub fn report(&self) -> ExecutionReport {
        self.0.executable.exe.report()
    }
}

impl<I: Tree, O: Tree> Traced<I, O> {
    /// Returns an equal stage.
    pub(super) fn copy(&self) -> Traced<I, O> {
        Traced { program: self.program.clone(), signature: self.signature.copy() }
    }
    /// Returns true if these arguments are arrays of the types that the function was traced for.
    pub(super) fn accepts(&self, args: &I) -> bool {
        self.signature.accepts(args)
    }
}

impl<I, O> CompiledFunction<I, O> {
    fn new(
        program: Arc<Program>,
        signature: Signature<I, O>,
        ready: Arc<CompiledProgram>,
        location: SourceLocation,
    ) -> Result<CompiledFunction<I, O>> {
        let captures =
            signature.captures.iter().map(|a| a.array_data("compile", location)).collect::<Result<_>>()?;
        let donates = signature.donated.contains(&true);
        Ok(CompiledFunction { program, signature, donates, captures, executable: ready })
    }
}

impl<I: Tree, O: Tree> CompiledFunction<I, O> {
    /// Returns the traced stage that this was compiled from.
    pub(super) fn traced(&self) -> Traced<I, O> {
        Traced { program: self.program.clone(), signature: self.signature.copy() }
    }
    /// Returns true if the program was compiled for arguments of these types.
    pub(super) fn accepts(&self, args: &I) -> bool {
        self.signature.accepts(args)
    }
    /// Runs the program on arguments that [`accepts`](CompiledFunction::accepts) allows.
    pub(super) fn run(&self, args: &I, location: SourceLocation) -> Result<O> {
        self.run_with(args, location, |ready, slabs| Ok((ready.call(slabs)?, ()))).map(|(out, ())| out)
    }
    /// Runs the program with `way`, which calls the executable.
    fn run_with<T>(
        &self,
        args: &I,
        location: SourceLocation,
        way: impl FnOnce(&CompiledProgram, &mut [ArrayData]) -> Result<(Vec<Array>, T), Failure>,
    ) -> Result<(O, T)> {
        in_span!("call", engine = %self.signature.engine.kind, %location);
        let mut slabs: SmallVec<[ArrayData; 8]> = SmallVec::new();
        let mut failed = None;
        args.visit(&mut Path::unnamed(), &mut |_, a| match a.array_data("call", location) {
            Ok(slab) => slabs.push(slab),
            Err(e) => {
                failed.get_or_insert(e);
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let taken = if self.donates { self.donate(args, location, &slabs)? } else { SmallVec::new() };
        if !self.captures.is_empty() {
            slabs.extend(self.captures.iter().cloned());
        }
        let (results, extra) = way(&self.executable, &mut slabs).map_err(|failure| {
            if failure.inputs_intact {
                restore(args, &taken, &slabs);
            }
            failure.error.with_location("call", location)
        })?;
        let mut results = results.into_iter();
        let out = self
            .signature
            .out
            .rebuild(&mut Path::unnamed(), &mut |_, _| results.next().expect("one for each leaf"));
        Ok((out, extra))
    }
    /// Takes the data of the donated arguments from their handles, so that only this run owns it.
    /// Returns the indices of these leaves.
    fn donate(
        &self,
        args: &I,
        location: SourceLocation,
        slabs: &[ArrayData],
    ) -> Result<SmallVec<[usize; 8]>> {
        let mut donated = self.signature.donated.iter().enumerate();
        let mut taken = SmallVec::new();
        let mut failed = None;
        args.visit(&mut Path::unnamed(), &mut |_, a| {
            if let (Some((at, true)), Repr::Concrete(c)) = (donated.next(), a.repr()) {
                match c.donate(location) {
                    Ok(_) => taken.push(at),
                    Err(e) => {
                        failed.get_or_insert(e);
                    }
                }
            }
        });
        let Some(error) = failed else { return Ok(taken) };
        restore(args, &taken, slabs);
        Err(error)
    }
    fn argument_error(&self, args: &I, location: SourceLocation) -> Error {
        if let Some(how) = self.signature.args.differs(args, &mut Path::named()) {
            return crate::api::tree::mismatch(ARGUMENT_TREES, &how, CallSite::new("call", location));
        }
        let mut leaves = self.signature.leaves.iter();
        let mut found = Vec::new();
        args.visit(&mut Path::named(), &mut |path, a| {
            let Some(leaf) = leaves.next() else { return };
            if leaf.matches(a) {
                return;
            }
            found.push(match a.type_ref() {
                Err(e) => e.clone(),
                Ok(ty) => {
                    let kind = first_difference(ty, &leaf.ty);
                    let sharding =
                        |l: &LeafType| l.sharding.as_ref().map_or("on no mesh".into(), |s| s.to_string());
                    let (was, is) = (sharding(leaf), sharding(&LeafType::from_array(a)));
                    let message = if *ty == leaf.ty {
                        format!(
                            "argument {} is sharded as {is}; the program was compiled for {was}",
                            path.name_or("0")
                        )
                    } else {
                        format!(
                            "argument {} is {ty}; the program was compiled for {}",
                            path.name_or("0"),
                            leaf.ty
                        )
                    };
                    let fault = Fault::new(kind, message)
                        .help("`jit(f).call(..)` compiles one for each set of types");
                    Error::new(
                        mark_difference(fault, 0, ty, &leaf.ty),
                        "call",
                        vec![ty.to_string()],
                        Some(location),
                    )
                }
            });
        });
        if found.is_empty() {
            return crate::api::tree::mismatch(
                ARGUMENT_TREES,
                "in number of arrays",
                CallSite::new("call", location),
            );
        }
        Error::combine(found)
    }
}

/// Restores the data of donated arguments to their handles.
fn restore<I: Tree>(args: &I, taken: &[usize], slabs: &[ArrayData]) {
    let mut at = 0;
    args.visit(&mut Path::unnamed(), &mut |_, a| {
        if let (true, Repr::Concrete(c)) = (taken.contains(&at), a.repr()) {
            c.restore(slabs[at].clone());
        }
        at += 1;
    });
}

const ARGUMENT_TREES: &str = "the arguments that the program was compiled for and these";

/// Asserts that a lowered program has exactly the listed collectives.
///
/// `assert_collectives!(lowered)` asserts that it has none.
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
        $l.collectives().assert(&[$(($crate::CollectiveKind::$k, $crate::Axes::from($a), $n)),*])
    };
}
