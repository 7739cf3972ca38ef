//! `jit`: functions as programs, traced and compiled once for each set of argument types.

use super::implicit_reshard::ImplicitReshard;
use super::stages::{CompiledFunction, LeafType, Lowered, Traced, types_only};
use crate::api::trace::pipeline::{MAX_CACHED_EQUATIONS, PROGRAM_OVERHEAD_EQUATIONS};
use crate::api::trace::{
    OpenTrace, RecordedProgram, apply_control, carried_errors, innermost, input_placement, poison,
};
use crate::api::tree::{CallArgs, Func, NamedSizes, Output, Path, SpecTree, Specs, Tree, collect, resolve};
use crate::api::{trace::Repr, trace::cache::Cache};
use crate::core::mesh::AxisRules;
use crate::core::{DType, Error, Mesh, Result, Sharding, SourceLocation, sharding::for_result};
use crate::exec::engine::{EngineConfig, EngineKind};
use crate::ir::program::{CallSite, CheckpointPolicy, Control, Program};
use crate::partition::{TransferPrices, plan::Machine};
use rustc_hash::FxHasher;
use std::cell::RefCell;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// The boxed body of a traced function.
pub(crate) type JitBody<'f, I, O> = Box<dyn Fn(&I) -> Result<O> + 'f>;
/// The result tree of a function.
pub(crate) type OutputTree<F, M> = <<F as Func<M>>::Ret as Output>::Tree;

/// Boxes the function as a body.
pub(crate) fn boxed_body<'f, M, F: Func<M, Ret: Output> + 'f>(f: F) -> JitBody<'f, F::In, OutputTree<F, M>> {
    Box::new(move |input| f.apply(input).into_result())
}

/// Wraps a function that is traced and compiled once for each set of argument types.
///
/// Calls run the compiled program. The parameter types of the closure must be written out, since
/// nothing else determines them: `|x: &Array, w: &Array|`, by reference or by value
/// ([closures and arguments](crate#closures-and-arguments)). Captured values are constants. Inside
/// another traced function the call is one equation of that function's program.
///
/// ```
/// use atmesh::prelude::*;
/// let f = jit(|x: &Array, y: &Array| x * y + 1.0);
/// let x = Array::from([1.0f32, 2.0]);
/// assert_eq!(f.call((&x, 3.0))?.to_vec::<f32>()?, [4.0, 7.0]);
/// println!("{}", f.trace((&x, 3.0))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn jit<'f, M, F: Func<M, Ret: Output> + 'f>(f: F) -> Jit<'f, F::In, OutputTree<F, M>> {
    let arity = f.arity();
    Jit::from_body(boxed_body(f), arity)
}

/// A traced function, made by [`jit`].
///
/// It is not `Send`, since its closure may not be; a [`Compiled`](crate::Compiled) is.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 8)])?;
/// let layer = jit(|x: &Array, w: &Array| x.dot(w).tanh());
/// let (x, w) = (Array::ones([32]).put(&mesh, p!["X"]), Array::ones([32, 4]));
/// println!("{}", layer.trace((&x, &w))?); // the program, each value with its type
/// assert_collectives!(layer.lower((&x, &w))?, AllReduce("X") x 1); // what it will communicate
/// assert_eq!(layer.call((&x, &w))?.to_vec::<f32>()?, [1.0; 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[must_use = "a traced function does nothing until it is called"]
pub struct Jit<'f, I, O> {
    body: JitBody<'f, I, O>,
    arity: usize,
    mesh: Option<Mesh>,
    in_specs: Option<SpecTree>,
    out_specs: Option<SpecTree>,
    donate: Vec<usize>,
    engine: Option<EngineKind>,
    flush_subnormals: Option<bool>,
    implicit: ImplicitReshard,
    machine: Option<(Machine, DType)>,
    cache: Cache<(u64, u32), Arc<CompiledFunction<I, O>>>,
    /// The compiled function of the last call.
    last_used: RefCell<Option<Arc<CompiledFunction<I, O>>>>,
    /// The program of the last `trace` or `lower`, until a call compiles it.
    last_traced: RefCell<Option<Traced<I, O>>>,
}

/// Prints the options, without the function itself.
impl<I, O> fmt::Debug for Jit<'_, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Jit { arity, mesh, in_specs, out_specs, donate, engine, implicit, machine, .. } = self;
        let flush_subnormals = &self.flush_subnormals;
        let mut debug = f.debug_struct("Jit");
        debug.field("parameters", arity).field("mesh", mesh).field("in_specs", in_specs);
        debug
            .field("out_specs", out_specs)
            .field("donate", donate)
            .field("engine", engine)
            .field("flush_subnormals", flush_subnormals)
            .field("implicit_reshard", implicit)
            .field("cost_model", machine)
            .finish_non_exhaustive()
    }
}
// a panic in the function leaves no state half-updated: the caches store finished entries only
impl<I, O> UnwindSafe for Jit<'_, I, O> {}
impl<I, O> RefUnwindSafe for Jit<'_, I, O> {}

/// Argument positions, counted from 0: `0` or `[0, 2]`.
#[derive(Clone, Debug)]
pub struct ArgNums(Vec<usize>);
conversions! { ArgNums:
    [] usize => |n| ArgNums(vec![n]);
    [const N: usize] [usize; N] => |n| ArgNums(n.into());
}

impl<'f, I: Tree, O: Tree> Jit<'f, I, O> {
    /// Creates a traced function with this body and number of parameters.
    pub(crate) fn from_body(body: JitBody<'f, I, O>, arity: usize) -> Self {
        Jit {
            body,
            arity,
            mesh: None,
            in_specs: None,
            out_specs: None,
            donate: Vec::new(),
            engine: None,
            flush_subnormals: None,
            implicit: ImplicitReshard::Allow,
            machine: None,
            cache: Cache::new(MAX_CACHED_EQUATIONS),
            last_used: RefCell::default(),
            last_traced: RefCell::default(),
        }
    }
    /// Returns the number of parameters of the function.
    pub(crate) fn num_parameters(&self) -> usize {
        self.arity
    }
    /// Clears the caches after an option has changed.
    pub(crate) fn with_empty_cache(mut self) -> Self {
        self.cache = Cache::new(MAX_CACHED_EQUATIONS);
        (self.last_used, self.last_traced) = (RefCell::default(), RefCell::default());
        self
    }
    /// Sets the mesh of a program whose arguments are unplaced: they are replicated on it.
    #[doc(alias("set_mesh", "use_mesh"))]
    pub fn on(mut self, mesh: &Mesh) -> Self {
        self.mesh = Some(mesh.clone());
        self.with_empty_cache()
    }
    /// Sets the shardings of the arguments.
    ///
    /// An unplaced argument is placed as its spec says. An argument with another sharding is an
    /// error.
    #[doc(alias = "in_shardings")]
    pub fn in_specs(mut self, specs: impl Specs) -> Self {
        self.in_specs = Some(specs.spec_tree());
        self.with_empty_cache()
    }
    /// Sets the shardings of the results.
    #[doc(alias = "out_shardings")]
    pub fn out_specs(mut self, specs: impl Specs) -> Self {
        self.out_specs = Some(specs.spec_tree());
        self.with_empty_cache()
    }
    /// Donates these arguments: `donate(0)`, `donate([0, 2])`. Their memory may be overwritten.
    ///
    /// Using a donated array after the call is an error, which the Rust compiler reports if the
    /// argument was passed by value.
    ///
    /// A donated argument becomes a result of the same size if its last use comes before that
    /// result is computed, or if it is read at the index that is being written (`w - 0.1 * g`,
    /// `x.at(i).set(y)`): a training step updates its weights in place. It may also become one of
    /// the two buffers between which a loop carry alternates, or scratch memory for intermediate
    /// values. The compiled program's [report](crate::Compiled::report) says which, and names a
    /// donated argument whose memory is of no use, with the reason.
    ///
    /// A function that wraps another one (`jit(jit(f))`, `jit(shard_map(..))`) has the parameters
    /// of that one. The donations of a function that is called inside another traced function have
    /// no effect: the arguments are values of that function's program.
    ///
    /// Only memory without other owners is overwritten. If another array, a
    /// [`HostView`](crate::api::array::HostView) or a second argument shares it, or the argument is
    /// itself returned, it stays as it is and results get new memory. The results are equal to the
    /// last bit.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let step = jit(|w: &Array, g: &Array| w - 0.5 * g).donate(0);
    /// let (w, g) = (Array::from([1.0f32, 2.0]), Array::from([1.0f32, 1.0]));
    /// let at = w.view::<f32>()?.as_ptr();
    /// let next = step.call((&w, &g))?;
    /// assert_eq!(next.view::<f32>()?.as_ptr(), at);
    /// assert_eq!(next.to_vec::<f32>()?, [0.5, 1.5]);
    /// assert!(w.to_vec::<f32>().is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("donate_argnums", "donate_argnames"))]
    pub fn donate(mut self, args: impl Into<ArgNums>) -> Self {
        self.donate = args.into().0;
        self.with_empty_cache()
    }
    /// Sets the engine that runs the function. Defaults to the process's engine.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let f = jit(|x: &Array| x + 1.0).engine(Threads);
    /// assert_eq!(f.call(Array::ones([2]))?.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.engine = Some(engine);
        self.with_empty_cache()
    }

    /// Sets whether subnormal numbers are flushed to zero. Defaults to the process's setting
    /// ([`set_default_flush_subnormals`](crate::set_default_flush_subnormals)), which is false.
    ///
    /// Subnormal numbers are nearer to 0 than the smallest normal number, 1.2e-38 for float32 and
    /// 2.2e-308 for float64. Many processors are much slower on them, so that a wave or a decay
    /// that fades away slows down its program. A program that flushes computes as if each subnormal
    /// number among its arguments, its constants and the results of its operations were a zero of
    /// the same sign. The engines `Lockstep`, `Threads` and `Reference` give the same bits as far
    /// as they do without flushing.
    ///
    /// - bfloat16 and the parts of complex numbers are flushed, too. float16 is not, because it is
    ///   computed as float32, where its subnormal numbers are normal.
    /// - The code of a [custom operation](crate::custom_op), [`spmd`](crate::spmd::spmd) and Rust
    ///   code outside of the program compute with subnormal numbers. The results of a custom
    ///   operation, of a sort, of a linear algebra function and of similar operations on complete
    ///   rows are flushed.
    /// - Inside another traced function, the setting of that function applies.
    ///
    /// # Errors
    /// Compiling returns an error on processors other than x86-64 and AArch64, in WebAssembly, and
    /// for the engine [`Xla`](EngineKind::Xla), whose plugin decides by itself: on a CPU XLA
    /// flushes, on a GPU it does not, unless it is configured otherwise.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let decay = |x: &Array| fori_loop(0..140, x, |_, x| x * 0.5);
    /// let x = Array::from([1.0f32, 1e6]);
    /// let kept = jit(decay).call(&x)?.to_vec::<f32>()?;
    /// assert!(0.0 < kept[0] && kept[0] < f32::MIN_POSITIVE);
    /// let flushed = jit(decay).flush_subnormals(true).call(&x)?.to_vec::<f32>()?;
    /// assert_eq!((flushed[0], flushed[1]), (0.0, kept[1]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("denormals", "ftz", "daz", "xla_gpu_ftz"))]
    pub fn flush_subnormals(mut self, flush: bool) -> Self {
        self.flush_subnormals = Some(flush);
        self.with_empty_cache()
    }

    /// Sets how implicit resharding is handled. By default it is allowed.
    ///
    /// The check runs when the function is lowered or compiled. Inside another traced function, the
    /// setting of that function applies. For an example see [`ImplicitReshard`].
    pub fn implicit_reshard(mut self, policy: ImplicitReshard) -> Self {
        self.implicit = policy;
        self.with_empty_cache()
    }

    /// Sets the machine for which the partitioner optimises.
    ///
    /// `dtype` is the element type of the matrix products that matter for its speed.
    ///
    /// The partitioner can move a value to other devices, or compute it on several devices instead;
    /// it takes the cheaper option. A byte along the slowest mesh axis costs as much as the
    /// multiply-adds that the machine [executes in the same time](Machine::macs_per_byte). Bytes of
    /// other collectives cost more or less, by the same prices as in [`plan`](crate::plan): they
    /// cost less inside a node than between nodes, and on a ring, an exchange costs more than a
    /// gather of as many bytes. Where all devices share a switch, all bytes cost the same. The
    /// default is 32, which suits devices that are threads of one processor; accelerators have 1000
    /// and more.
    ///
    /// Types and shardings of arguments and results do not change. Floats may round differently, as
    /// under another sharding, because sums are split differently; on one machine the bits are
    /// always the same. Inside another traced function, the setting of that function applies. The
    /// engine [`Xla`](EngineKind::Xla) partitions by itself.
    ///
    /// # Errors
    /// Calling, tracing or lowering returns the errors of [`Machine::macs_per_byte`] for the
    /// program's mesh.
    ///
    /// ```
    /// use atmesh::plan::{Link, Machine};
    /// use atmesh::prelude::*;
    ///
    /// // the result is needed on all devices
    /// let mesh = Mesh::auto([("X", 8)])?;
    /// let types = || (F32.array_type([4096, 512]).on(&mesh, p![_, "X"]),
    ///     F32.array_type([512, 4096]).on(&mesh, p!["X", _]));
    /// let bytes = |machine: &Machine| -> Result<u64> {
    ///     let f = jit(|x: &Array, w: &Array| x.dot(w).constrain(p![])).cost_model(machine, F32);
    ///     Ok(f.lower(types())?.collectives().bytes())
    /// };
    /// // 32 multiply-adds per byte: each device computes some rows, from its rows of x and all of
    /// // w, then gathers
    /// let threads = Machine::new("threads").flops(F32, 64e9).links(Link::switch(1e9));
    /// assert_eq!(bytes(&threads)?, (4096 * 512 / 8 + 512 * 4096 + 4096 * 4096) * 4 * 7 / 8);
    /// // 549: both operands are gathered, and each device computes all rows
    /// let gpus = Machine::h100().links(Link::NVLINK_4);
    /// assert_eq!(bytes(&gpus)?, (4096 * 512 + 512 * 4096) * 4 * 7 / 8);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn cost_model(mut self, machine: &Machine, dtype: DType) -> Self {
        self.machine = Some((machine.clone(), dtype));
        self.with_empty_cache()
    }

    /// Runs the function. Inside another trace the call becomes one equation of it.
    ///
    /// Each argument is passed by value or by reference, several in one tuple: `f.call((&x, y))`.
    #[track_caller]
    pub fn call<A: CallArgs<I>>(&self, args: A) -> Result<O> {
        let location = Location::caller();
        let args = self.with_in_specs(args.into_tree(), location)?;
        if crate::api::trace::tracing() || any_traced(&args) {
            return self.call_in_trace(&args, location);
        }
        self.call_cached(args, location)
    }
    /// Runs the function; inside another trace, inlines its body there.
    pub(crate) fn call_inline(&self, args: I, location: SourceLocation) -> Result<O> {
        if crate::api::trace::tracing() || any_traced(&args) {
            return self.run_body(&args);
        }
        self.call_cached(args, location)
    }
    /// Runs the body itself.
    pub(crate) fn run_body(&self, args: &I) -> Result<O> {
        (self.body)(args).inspect_err(record_error)
    }
    fn call_cached(&self, args: I, location: SourceLocation) -> Result<O> {
        let last = self.last_used.borrow().clone();
        if let Some(last) = last.filter(|e| e.accepts(&args)) {
            return last.run(&args, location);
        }
        let entry = self.compiled_for(&args, location)?;
        self.last_used.replace(Some(entry.clone()));
        entry.run(&args, location)
    }
    /// Returns the compiled function for these arguments, compiling it if necessary.
    ///
    /// The key of an entry is the hash of its types and a number that tells entries of equal hash
    /// apart.
    fn compiled_for(&self, args: &I, location: SourceLocation) -> Result<Arc<CompiledFunction<I, O>>> {
        let key = match self.lookup(args) {
            Ok(known) => return Ok(known),
            Err(free) => free,
        };
        let kept = self.last_traced.borrow_mut().take_if(|traced| traced.accepts(args));
        let traced = kept.map_or_else(|| self.trace_at(args, location), Ok)?;
        let weight = PROGRAM_OVERHEAD_EQUATIONS + traced.program().num_equations();
        Ok(self.cache.put(key, traced.into_compiled(location)?, weight))
    }
    /// Looks up the compiled function for these arguments, or returns an unused key for it.
    fn lookup(&self, args: &I) -> Result<Arc<CompiledFunction<I, O>>, (u64, u32)> {
        let hash = hash_types(args);
        let mut number = 0;
        while let Some(known) = self.cache.get(&(hash, number)) {
            if known.accepts(args) {
                return Ok(known);
            }
            number += 1;
        }
        Err((hash, number))
    }
    /// Returns the traced stage of an earlier call, `trace` or `lower` with such arguments, or
    /// traces the function.
    fn trace_cached(&self, args: &I, location: SourceLocation) -> Result<Traced<I, O>> {
        if crate::api::trace::tracing() || any_traced(args) {
            return self.trace_at(args, location);
        }
        if let Ok(known) = self.lookup(args) {
            return Ok(known.traced());
        }
        if let Some(known) = self.last_traced.borrow().as_ref().filter(|traced| traced.accepts(args)) {
            return Ok(known.copy());
        }
        let traced = self.trace_at(args, location)?;
        self.last_traced.replace(Some(traced.copy()));
        Ok(traced)
    }
    /// Records the function for arguments like these, as a typed program.
    ///
    /// If the function was [called](Jit::call), traced or lowered with such arguments before, that
    /// program is reused; a call reuses the program of the last `trace` or [`lower`](Jit::lower).
    #[track_caller]
    pub fn trace<A: CallArgs<I>>(&self, args: A) -> Result<Traced<I, O>> {
        let location = Location::caller();
        let args = self.with_in_specs(args.into_tree(), location)?;
        self.trace_cached(&args, location)
    }
    /// Runs all stages up to the per-device program: `trace(args)?.lower()`.
    #[track_caller]
    pub fn lower<A: CallArgs<I>>(&self, args: A) -> Result<Lowered<I, O>> {
        let location = Location::caller();
        let args = self.with_in_specs(args.into_tree(), location)?;
        self.trace_cached(&args, location)?.lower()
    }

    /// Places the arguments as `in_specs` says, and checks those that are already placed.
    pub(super) fn with_in_specs(&self, args: I, location: SourceLocation) -> Result<I> {
        let Some(specs) = &self.in_specs else { return Ok(args) };
        let specs =
            resolve(specs, &args, "in_specs").map_err(|e| CallSite::new("jit", location).locate(e))?;
        let mesh = self.mesh_of(&args);
        let mut specs = specs.into_iter();
        let mut errors = Vec::new();
        let args = args.rebuild(&mut Path::named(), &mut |path, a| {
            let (Some(spec), Ok(ty)) = (specs.next().flatten(), a.type_ref()) else { return a.clone() };
            let mesh = a.concrete_sharding().map(|s| &s.mesh).or(ty.mesh.as_ref()).or(mesh.as_ref());
            let Some(mesh) = mesh else {
                let fault = fault!(Mesh, "in_specs name axes, but no argument is on a mesh")
                    .help("say which: `jit(f).on(&mesh)`");
                errors.push(CallSite::new("jit", location).error(fault, || vec![ty.to_string()]));
                return a.clone();
            };
            let spec = match mesh.try_resolve(spec, AxisRules::Compute) {
                Ok(spec) => spec,
                Err(fault) => {
                    errors.push(CallSite::new("jit", location).error(fault, || vec![ty.to_string()]));
                    return a.clone();
                }
            };
            match a.concrete_sharding() {
                Some(sharding)
                    if sharding.spec.padded(ty.rank()) == spec.padded(ty.rank()).in_order(mesh) =>
                {
                    a.clone()
                }
                Some(sharding) => {
                    let fault = fault!(
                        Sharding,
                        "{} is sharded as {}, but in_specs says {spec}",
                        path.name_or("the argument"),
                        sharding.spec
                    )
                    .help(format!("move it first: `.reshard({spec})`"));
                    errors.push(CallSite::new("jit", location).error(fault, || vec![ty.to_string()]));
                    a.clone()
                }
                None => a.put_at(mesh, spec, CallSite::new("jit", location)),
            }
        });
        if errors.is_empty() { Ok(args) } else { Err(Error::combine(errors)) }
    }

    fn mesh_of(&self, args: &I) -> Option<Mesh> {
        let mut mesh = self.mesh.clone();
        args.visit(&mut Path::unnamed(), &mut |_, a| {
            if let (None, Ok(ty)) = (&mesh, a.type_ref()) {
                mesh = ty.mesh.clone();
            }
        });
        mesh
    }

    /// Records the body on inputs like the arguments.
    fn record(&self, args: &I, location: SourceLocation) -> Result<(RecordedProgram, O)> {
        in_span!("trace", %location);
        check_arguments(args, CallSite::new("jit", location))?;
        let mesh = self.mesh_of(args);
        let open =
            OpenTrace::new(Some(location)).map_err(|f| CallSite::new("jit", location).error(f, Vec::new))?;
        if let Some(mesh) = &self.mesh {
            open.set_mesh(mesh);
        }
        let inputs = args.rebuild(&mut Path::unnamed(), &mut |_, a| {
            let leaf = LeafType::from_array(a);
            let mut ty = leaf.ty;
            if ty.mesh.is_none() {
                ty.mesh = self.mesh.clone();
            }
            let inside = matches!(a.repr(), Repr::Traced(_));
            let at = (!inside).then(|| input_placement(ty.rank(), leaf.sharding.as_ref()));
            open.input(ty, at)
        });
        record_body(open, || {
            let out = (self.body)(&inputs)?;
            let Some(specs) = &self.out_specs else { return Ok(out) };
            let specs =
                resolve(specs, &out, "out_specs").map_err(|e| CallSite::new("jit", location).locate(e))?;
            let mut specs = specs.into_iter();
            Ok(out.rebuild(&mut Path::unnamed(), &mut |_, a| match (specs.next().flatten(), a.type_ref()) {
                (Some(spec), Ok(ty)) => match ty.mesh.as_ref().or(mesh.as_ref()) {
                    Some(mesh) => match Sharding::try_new(mesh, spec, &ty.shape) {
                        Ok(_) => a.put_at(mesh, spec, CallSite::new("jit", location)),
                        Err(fault) => {
                            let fault = for_result(fault, spec, ty.rank());
                            poison(CallSite::new("jit", location).error(fault, || vec![ty.to_string()]))
                        }
                    },
                    None => {
                        let fault = fault!(Mesh, "out_specs name axes, but the program is on no mesh")
                            .help("say which: `jit(f).on(&mesh)`");
                        poison(CallSite::new("jit", location).error(fault, || vec![ty.to_string()]))
                    }
                },
                _ => a.clone(),
            }))
        })
    }

    pub(super) fn trace_at(&self, args: &I, location: SourceLocation) -> Result<Traced<I, O>> {
        let (recorded, out) = self.record(args, location)?;
        let mut leaves = Vec::new();
        let mut numbers = Vec::new();
        args.visit(&mut Path::named(), &mut |path, a| {
            leaves.push(LeafType::from_array(a));
            // the first path component is the argument's position, except in a function of one
            // parameter
            let number = match self.arity {
                1 => Some(0),
                _ => path.parts().first().and_then(|p| p.parse::<usize>().ok()),
            };
            numbers.push(number);
        });
        if let Some(none) = self.donate.iter().find(|n| **n >= self.arity) {
            let has = match self.arity {
                1 => "there is 1 argument".to_string(),
                n => format!("there are {n} arguments"),
            };
            let fault = fault!(Tree, "cannot donate argument {none}: {has}");
            let fault = match self.arity {
                0 => fault.help("leave `.donate(..)` out: captured arrays are not donated"),
                _ => fault.help("arguments are counted from 0: `.donate(0)`"),
            };
            return Err(CallSite::new("jit", location).error(fault, Vec::new));
        }
        let donated = numbers.iter().map(|n| n.is_some_and(|n| self.donate.contains(&n))).collect();
        let engine = EngineConfig::new(self.engine, self.flush_subnormals);
        let traced = Traced::new(recorded, types_only(args), leaves, donated, types_only(&out), engine);
        let per_byte =
            self.per_byte(traced.program()).map_err(|e| e.with_location("cost_model", location))?;
        Ok(traced.with_implicit_reshard(self.implicit).with_per_byte(per_byte))
    }
    /// Returns the cost of a byte for a program.
    fn per_byte(&self, program: &Program) -> Result<TransferPrices> {
        match (&self.machine, &program.mesh) {
            (Some((machine, dtype)), Some(mesh)) => {
                let elements = machine.macs_per_byte(*dtype, mesh)?;
                Ok(TransferPrices::over(elements, machine.mesh_links(mesh)?))
            }
            _ => Ok(TransferPrices::default()),
        }
    }

    fn call_in_trace(&self, args: &I, location: SourceLocation) -> Result<O> {
        let (recorded, out) = self.record(args, location).inspect_err(record_error)?;
        let types = recorded.program.output_types();
        let mut inputs = collect(args);
        inputs.extend(recorded.captures);
        let control = Control::call(Arc::new(recorded.program), CheckpointPolicy::SaveAll);
        let results = apply_control(control, &inputs, types, CallSite::new("jit", location))
            .inspect_err(record_error)?;
        let mut results = results.into_iter();
        Ok(out.rebuild(&mut Path::unnamed(), &mut |_, _| results.next().expect("one for each leaf")))
    }
}

/// Records an error in the innermost open trace, if any.
pub(crate) fn record_error(error: &Error) {
    if innermost().is_some() {
        let _ = poison(error.clone());
    }
}

/// Runs a body in an open trace, and ends the trace.
///
/// Returns the recorded program and the result tree, or all errors.
pub(crate) fn record_body<O: Tree>(
    open: OpenTrace,
    body: impl FnOnce() -> Result<O>,
) -> Result<(RecordedProgram, O)> {
    match body() {
        Ok(out) => {
            let recorded = open.finish(&collect(&out))?;
            Ok((recorded, out))
        }
        Err(error) => {
            open.fail(&error);
            match open.finish(&[]) {
                Ok(_) => Err(error),
                Err(all) => Err(all),
            }
        }
    }
}

/// Hashes the types and shardings of a tree's arrays.
fn hash_types<T: Tree>(tree: &T) -> u64 {
    let mut hasher = FxHasher::default();
    tree.visit(&mut Path::unnamed(), &mut |_, a| {
        if let Repr::Concrete(c) = a.repr() {
            c.ty.hash(&mut hasher);
            c.sharding.hash(&mut hasher);
        }
    });
    hasher.finish()
}

fn any_traced<T: Tree>(tree: &T) -> bool {
    let mut found = false;
    tree.visit(&mut Path::unnamed(), &mut |_, a| found |= matches!(a.repr(), Repr::Traced(_)));
    found
}

/// Returns the errors that leaves carry, if any.
pub(crate) fn check_errors<T: Tree>(tree: &T) -> Result<()> {
    carried_errors(collect(tree).iter()).map_or(Ok(()), Err)
}

/// Returns the errors that arguments carry, if any, or an error if one name is two sizes.
pub(crate) fn check_arguments<T: Tree>(tree: &T, call: CallSite<'_>) -> Result<()> {
    check_errors(tree)?;
    NamedSizes::of(tree, "argument").check(call)
}

/// The marker type `M` of [`Func<M>`](Func) for functions that wrap a function, such as [`Jit`].
///
/// It is not a `fn(..)` type, so it does not overlap the blanket impls for closures.
#[derive(Clone, Copy, Debug)]
pub struct WrapperMarker;

macro_rules! impl_func { ($($t:ty),*) => {$(
    #[diagnostic::do_not_recommend]
    impl<I: Tree, O: Tree> Func<WrapperMarker> for $t {
        type In = I;
        type Ret = Result<O>;
        fn arity(&self) -> usize {
            self.num_parameters()
        }
        #[track_caller]
        fn apply(&self, input: &I) -> Result<O> {
            self.call_tree(input, Location::caller())
        }
    }
)*} }
impl_func!(Jit<'_, I, O>, &Jit<'_, I, O>);

impl<I: Tree, O: Tree> Jit<'_, I, O> {
    fn call_tree(&self, args: &I, location: SourceLocation) -> Result<O> {
        let same = args.rebuild(&mut Path::unnamed(), &mut |_, a| a.clone());
        self.call_in_trace(&self.with_in_specs(same, location)?, location)
    }
}
