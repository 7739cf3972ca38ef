//! `jit`: functions as programs, traced once for each set of argument types.

use super::compiled::{Entry, Leaf, Lowered, Traced, stripped};
use super::implicit::ImplicitReshard;
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::engine::EngineKind;
use crate::mesh::Mesh;
use crate::partition::PerByte;
use crate::plan::Machine;
use crate::program::{Call, Control, Keep, Program};
use crate::sharding::{Sharding, of_result};
use crate::trace::Repr;
use crate::trace::cache::Cache;
use crate::trace::eager;
use crate::trace::stages::{KEPT, WEIGHT};
use crate::trace::{Open, Recorded, apply_control, carried, innermost, poison};
use crate::tree::{Args, Func, Output, Path, SpecTree, Specs, Tree, collect, resolve};
use crate::types::DType;
use std::cell::RefCell;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// A traced function's body, boxed: its type can be written.
pub(crate) type Body<'f, I, O> = Box<dyn Fn(&I) -> Result<O> + 'f>;
/// The tree that a function returns.
pub(crate) type Out<F, M> = <<F as Func<M>>::Ret as Output>::Tree;

/// The function as a body.
pub(crate) fn body<'f, M, F: Func<M, Ret: Output> + 'f>(f: F) -> Body<'f, F::In, Out<F, M>> {
    Box::new(move |input| f.apply(input).into_result())
}

/// A function that is traced once for each set of argument types, then compiled; calls run what was compiled.
///
/// The types of its parameters are written out: nothing else says them. What is captured is constant. Inside another traced
/// function the call is one equation of that one.
///
/// ```
/// use atmesh::prelude::*;
/// let f = jit(|x: &Array, y: &Array| x * y + 1.0);
/// let x = Array::from([1.0f32, 2.0]);
/// assert_eq!(f.call((&x, 3.0))?.to_vec::<f32>()?, [4.0, 7.0]);
/// println!("{}", f.trace((&x, 3.0))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn jit<'f, M, F: Func<M, Ret: Output> + 'f>(f: F) -> Jit<'f, F::In, Out<F, M>> {
    Jit::of(body(f), F::ARITY)
}

/// A traced function, made by [`jit`]. It is not `Send`, since its closure need not be; a [`Compiled`](crate::Compiled) is.
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
    body: Body<'f, I, O>,
    arity: Option<usize>,
    mesh: Option<Mesh>,
    in_specs: Option<SpecTree>,
    out_specs: Option<SpecTree>,
    donate: Vec<usize>,
    engine: Option<EngineKind>,
    implicit: ImplicitReshard,
    machine: Option<(Machine, DType)>,
    cache: Cache<(u64, u32), Arc<Entry<I, O>>>,
    /// What ran last.
    last: RefCell<Option<Arc<Entry<I, O>>>>,
}

/// How it was made; not the function, which has no text.
impl<I, O> fmt::Debug for Jit<'_, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Jit { arity, mesh, in_specs, out_specs, donate, engine, implicit, machine, .. } = self;
        let mut told = f.debug_struct("Jit");
        told.field("parameters", arity).field("mesh", mesh).field("in_specs", in_specs);
        told.field("out_specs", out_specs)
            .field("donate", donate)
            .field("engine", engine)
            .field("implicit_reshard", implicit)
            .field("priced_for", machine)
            .finish_non_exhaustive()
    }
}
// a panic in its function leaves nothing of its own half done: what it keeps is put in place when complete
impl<I, O> UnwindSafe for Jit<'_, I, O> {}
impl<I, O> RefUnwindSafe for Jit<'_, I, O> {}

/// Which arguments: `0`, `[0, 2]`.
#[derive(Clone, Debug)]
pub struct ArgNums(Vec<usize>);
impl From<usize> for ArgNums {
    fn from(n: usize) -> ArgNums {
        ArgNums(vec![n])
    }
}
impl<const N: usize> From<[usize; N]> for ArgNums {
    fn from(n: [usize; N]) -> ArgNums {
        ArgNums(n.into())
    }
}

impl<'f, I: Tree, O: Tree> Jit<'f, I, O> {
    /// The function of this body.
    pub(crate) fn of(body: Body<'f, I, O>, arity: Option<usize>) -> Self {
        Jit {
            body,
            arity,
            mesh: None,
            in_specs: None,
            out_specs: None,
            donate: Vec::new(),
            engine: None,
            implicit: ImplicitReshard::Allow,
            machine: None,
            cache: Cache::new(KEPT),
            last: RefCell::default(),
        }
    }
    /// The same function with an option that has changed: what was compiled before is of the old ones.
    pub(crate) fn anew(mut self) -> Self {
        (self.cache, self.last) = (Cache::new(KEPT), RefCell::default());
        self
    }
    /// The mesh of a program whose arguments are on none: they are on it, replicated.
    pub fn on(mut self, mesh: &Mesh) -> Self {
        self.mesh = Some(mesh.clone());
        self.anew()
    }
    /// How arguments are sharded. One that is on no mesh is placed so; one with another sharding is refused.
    pub fn in_specs(mut self, specs: impl Specs) -> Self {
        self.in_specs = Some(specs.spec_tree());
        self.anew()
    }
    /// How results are sharded.
    pub fn out_specs(mut self, specs: impl Specs) -> Self {
        self.out_specs = Some(specs.spec_tree());
        self.anew()
    }
    /// The memory of these arguments may be written over: `donate(0)`, `donate([0, 2])`. Whoever uses one of them afterwards gets an error.
    ///
    /// A donated argument becomes a result of its size, if its last reader has run before that result is made, or reads it index by index
    /// as the result is stored (`w - 0.1 * g`, `x.at(i).set(y)`): a training step updates its weights in place. It becomes one of the
    /// two places between which a loop's carry alternates. Otherwise it is room for values in between. The compiled program's
    /// [report](crate::Compiled::report) says which.
    ///
    /// Only memory that nobody else holds is written over. Where another array, a [`View`](crate::array::View) or a second argument has a part in
    /// it, or the argument is itself returned, it stays as it is, and results get memory of their own: they are the same to the last bit.
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
    pub fn donate(mut self, args: impl Into<ArgNums>) -> Self {
        self.donate = args.into().0;
        self.anew()
    }
    /// The engine that runs it, in place of the process's default.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let f = jit(|x: &Array| x + 1.0).engine(Threads);
    /// assert_eq!(f.call(Array::ones([2]))?.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn engine(mut self, engine: EngineKind) -> Self {
        self.engine = Some(engine);
        self.anew()
    }

    /// What is done about values that are moved although the program does not say so: by default nothing. It is looked at where the function is lowered or
    /// compiled; inside another traced function it is that one's to say. The example is at [`ImplicitReshard`].
    pub fn implicit_reshard(mut self, moves: ImplicitReshard) -> Self {
        self.implicit = moves;
        self.anew()
    }

    /// The machine for which the partitioner chooses, and the element type of the products that count on it. Where a value may be moved, or be
    /// computed on several devices so that less is moved, it takes the cheaper: a byte costs as much as the elements that the machine
    /// [computes meanwhile](Machine::work_per_byte). Without a machine these are 32: fit for devices that are threads of one processor, where
    /// accelerators have a thousand and more.
    ///
    /// Types and shardings of arguments and results stay as they are. Floats may round otherwise, as they do under another sharding, since their sums are
    /// made of other parts; for one machine they are the same bits always. Inside another traced function it is that one's to say, and the
    /// engine [`Xla`](EngineKind::Xla) partitions by itself.
    ///
    /// # Errors
    /// Where it is called, traced or lowered: those of [`Machine::work_per_byte`], for the program's mesh.
    ///
    /// ```
    /// use atmesh::plan::{Link, Machine};
    /// use atmesh::prelude::*;
    ///
    /// // the result is wanted on all devices
    /// let mesh = Mesh::auto([("X", 8)])?;
    /// let types = || (F32.of([4096, 512]).on(&mesh, p![_, "X"]), F32.of([512, 4096]).on(&mesh, p!["X", _]));
    /// let bytes = |machine: &Machine| -> Result<u64> {
    ///     let f = jit(|x: &Array, w: &Array| x.dot(w).constrain(p![])).priced_for(machine, F32);
    ///     Ok(f.lower(types())?.collectives().bytes())
    /// };
    /// // 32 elements for a byte: each device makes some rows, of its rows of x and all of w, and they are gathered
    /// let threads = Machine::new("threads").arithmetic(F32, 64e9).links(Link::switch(1e9));
    /// assert_eq!(bytes(&threads)?, (4096 * 512 / 8 + 512 * 4096 + 4096 * 4096) * 4 * 7 / 8);
    /// // 549: both operands are gathered, and each device makes all rows
    /// let gpus = Machine::h100().links(Link::NVLINK_4);
    /// assert_eq!(bytes(&gpus)?, (4096 * 512 + 512 * 4096) * 4 * 7 / 8);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn priced_for(mut self, machine: &Machine, dtype: DType) -> Self {
        self.machine = Some((machine.clone(), dtype));
        self.anew()
    }

    /// Runs the function. Inside another trace the call becomes one equation of it.
    #[track_caller]
    pub fn call<A: Args<Owned = I>>(&self, args: A) -> Result<O> {
        let place = Location::caller();
        let args = self.prepared(args.into_tree(), place)?;
        if crate::trace::tracing() || any_traced(&args) {
            return self.call_inside(&args, place);
        }
        self.call_cached(args, place)
    }
    /// Runs the function; inside another trace, as if its body were written there.
    pub(crate) fn call_inline(&self, args: I, place: Place) -> Result<O> {
        if crate::trace::tracing() || any_traced(&args) {
            return self.run_body(&args);
        }
        self.call_cached(args, place)
    }
    /// The body itself.
    pub(crate) fn run_body(&self, args: &I) -> Result<O> {
        (self.body)(args).inspect_err(note)
    }
    fn call_cached(&self, args: I, place: Place) -> Result<O> {
        let last = self.last.borrow().clone();
        if let Some(last) = last.filter(|e| e.takes(&args)) {
            return last.run(&args, place);
        }
        let entry = self.entry(&args, place)?;
        self.last.replace(Some(entry.clone()));
        entry.run(&args, place)
    }
    /// What was compiled for arguments like these, or is now. Those whose types have one hash are told apart by a number.
    fn entry(&self, args: &I, place: Place) -> Result<Arc<Entry<I, O>>> {
        let key = match self.known(args) {
            Ok(known) => return Ok(known),
            Err(free) => free,
        };
        let traced = self.trace_at(args, place)?;
        let weight = WEIGHT + traced.program().size();
        Ok(self.cache.put(key, traced.into_entry(place)?, weight))
    }
    /// What was compiled for arguments like these; or where it would be kept.
    fn known(&self, args: &I) -> Result<Arc<Entry<I, O>>, (u64, u32)> {
        let hash = hash(args);
        let mut number = 0;
        while let Some(known) = self.cache.get(&(hash, number)) {
            if known.takes(args) {
                return Ok(known);
            }
            number += 1;
        }
        Err((hash, number))
    }
    /// What a call with arguments like these recorded, or is recorded now.
    fn recorded(&self, args: &I, place: Place) -> Result<Traced<I, O>> {
        match self.known(args) {
            Ok(known) if !crate::trace::tracing() && !any_traced(args) => Ok(known.traced()),
            _ => self.trace_at(args, place),
        }
    }
    /// Records the function for arguments like these: a typed program. What a [call](Jit::call) with such arguments recorded serves again.
    #[track_caller]
    pub fn trace<A: Args<Owned = I>>(&self, args: A) -> Result<Traced<I, O>> {
        let place = Location::caller();
        let args = self.prepared(args.into_tree(), place)?;
        self.recorded(&args, place)
    }
    /// All stages up to the per-device program: `trace(args)?.lower()`.
    #[track_caller]
    pub fn lower<A: Args<Owned = I>>(&self, args: A) -> Result<Lowered<I, O>> {
        let place = Location::caller();
        let args = self.prepared(args.into_tree(), place)?;
        self.recorded(&args, place)?.lower()
    }

    /// The arguments as `in_specs` says they are sharded.
    pub(super) fn prepared(&self, args: I, place: Place) -> Result<I> {
        let Some(specs) = &self.in_specs else { return Ok(args) };
        let specs = resolve(specs, &args, "in_specs").map_err(|e| Call::new("jit", place).locate(e))?;
        let mesh = self.mesh_of(&args);
        let mut specs = specs.into_iter();
        let mut refused = Vec::new();
        let args = args.rebuild(&mut Path::named(), &mut |path, a| {
            let (Some(spec), Ok(ty)) = (specs.next().flatten(), a.type_ref()) else { return a.clone() };
            let mesh = a.placed().map(|s| &s.mesh).or(ty.mesh.as_ref()).or(mesh.as_ref());
            let Some(mesh) = mesh else {
                let fault = Fault::new(ErrorKind::Mesh, "in_specs name axes, but no argument is on a mesh")
                    .help("say which: `jit(f).on(&mesh)`");
                refused.push(Call::new("jit", place).error(fault, || vec![ty.to_string()]));
                return a.clone();
            };
            match a.placed() {
                Some(lies) if lies.spec.padded(ty.rank()) == spec.padded(ty.rank()).in_order(mesh) => {
                    a.clone()
                }
                Some(lies) => {
                    let fault = Fault::new(
                        ErrorKind::Sharding,
                        format!(
                            "{} is sharded as {}, but in_specs says {spec}",
                            path.or("the argument"),
                            lies.spec
                        ),
                    )
                    .help(format!("move it first: `.reshard({spec})`"));
                    refused.push(Call::new("jit", place).error(fault, || vec![ty.to_string()]));
                    a.clone()
                }
                None => a.put_at(mesh, spec, Call::new("jit", place)),
            }
        });
        if refused.is_empty() { Ok(args) } else { Err(Error::all(refused)) }
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
    fn record(&self, args: &I, place: Place) -> Result<(Recorded, O)> {
        in_span!("trace", %place);
        no_error(args)?;
        let mesh = self.mesh_of(args);
        let open = Open::new().map_err(|f| Call::new("jit", place).error(f, Vec::new))?;
        if let Some(mesh) = &self.mesh {
            open.on(mesh);
        }
        let inputs = args.rebuild(&mut Path::unnamed(), &mut |_, a| {
            let leaf = Leaf::of(a);
            let mut ty = leaf.ty;
            if ty.mesh.is_none() {
                ty.mesh = self.mesh.clone();
            }
            let inside = matches!(a.repr(), Repr::Traced(_));
            let at = (!inside).then(|| eager::placement(&ty, leaf.sharding.as_ref()));
            open.input(ty, at)
        });
        record_body(open, || {
            let out = (self.body)(&inputs)?;
            let Some(specs) = &self.out_specs else { return Ok(out) };
            let specs = resolve(specs, &out, "out_specs").map_err(|e| Call::new("jit", place).locate(e))?;
            let mut specs = specs.into_iter();
            Ok(out.rebuild(&mut Path::unnamed(), &mut |_, a| match (specs.next().flatten(), a.type_ref()) {
                (Some(spec), Ok(ty)) => match ty.mesh.as_ref().or(mesh.as_ref()) {
                    Some(mesh) => match Sharding::checked(mesh, spec, &ty.shape) {
                        Ok(_) => a.put_at(mesh, spec, Call::new("jit", place)),
                        Err(fault) => {
                            let fault = of_result(fault, spec, ty.rank());
                            poison(Call::new("jit", place).error(fault, || vec![ty.to_string()]))
                        }
                    },
                    None => {
                        let fault =
                            Fault::new(ErrorKind::Mesh, "out_specs name axes, but the program is on no mesh")
                                .help("say which: `jit(f).on(&mesh)`");
                        poison(Call::new("jit", place).error(fault, || vec![ty.to_string()]))
                    }
                },
                _ => a.clone(),
            }))
        })
    }

    pub(super) fn trace_at(&self, args: &I, place: Place) -> Result<Traced<I, O>> {
        let (recorded, out) = self.record(args, place)?;
        let mut leaves = Vec::new();
        let mut numbers = Vec::new();
        args.visit(&mut Path::named(), &mut |path, a| {
            leaves.push(Leaf::of(a));
            // the argument's number is the first part of the path, but for a function of one parameter
            let number = match self.arity {
                Some(1) => Some(0),
                _ => path.parts().first().and_then(|p| p.parse::<usize>().ok()),
            };
            numbers.push(number);
        });
        let given = self.arity.unwrap_or_else(|| numbers.iter().flatten().max().map_or(0, |n| n + 1));
        if let Some(none) = self.donate.iter().find(|n| **n >= given) {
            let fault = Fault::new(
                ErrorKind::Tree,
                format!("argument {none} is to be donated, but there are {given} arguments"),
            )
            .help("arguments are counted from 0: `.donate(0)`");
            return Err(Call::new("jit", place).error(fault, Vec::new));
        }
        let donated = numbers.iter().map(|n| n.is_some_and(|n| self.donate.contains(&n))).collect();
        let engine = self.engine.unwrap_or_default();
        let traced = Traced::new(recorded, stripped(args), leaves, donated, stripped(&out), engine);
        let per_byte = self.per_byte(traced.program()).map_err(|e| e.located("priced_for", place))?;
        Ok(traced.moving(self.implicit).priced(per_byte))
    }
    /// What a byte costs a program.
    fn per_byte(&self, program: &Program) -> Result<PerByte> {
        match (&self.machine, &program.mesh) {
            (Some((machine, dtype)), Some(mesh)) => Ok(PerByte::new(machine.work_per_byte(*dtype, mesh)?)),
            _ => Ok(PerByte::default()),
        }
    }

    fn call_inside(&self, args: &I, place: Place) -> Result<O> {
        let (recorded, out) = self.record(args, place).inspect_err(note)?;
        let types = recorded.program.output_types();
        let mut inputs = collect(args);
        inputs.extend(recorded.captures);
        let control = Control::Jit { body: Arc::new(recorded.program), keep: Keep::All };
        let results = apply_control(control, &inputs, types, Call::new("jit", place)).inspect_err(note)?;
        let mut results = results.into_iter();
        Ok(out.rebuild(&mut Path::unnamed(), &mut |_, _| results.next().expect("one for each leaf")))
    }
}

/// Notes an error in the trace around.
pub(crate) fn note(error: &Error) {
    if innermost().is_some() {
        let _ = poison(error.clone());
    }
}

/// Runs a body in an open trace and ends the trace: what was recorded and the tree of its results, or all errors.
pub(crate) fn record_body<O: Tree>(open: Open, body: impl FnOnce() -> Result<O>) -> Result<(Recorded, O)> {
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

/// A hash of the types of a tree's arrays and of their shardings.
fn hash<T: Tree>(tree: &T) -> u64 {
    let mut hasher = DefaultHasher::new();
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

/// The errors that leaves carry.
pub(crate) fn no_error<T: Tree>(tree: &T) -> Result<()> {
    carried(collect(tree).iter()).map_or(Ok(()), Err)
}

/// The mark of functions made of functions. It is not a `fn(..)`, so it meets no blanket impl.
#[derive(Clone, Copy, Debug)]
pub struct Made;

macro_rules! made { ($($t:ty),*) => {$(
    #[diagnostic::do_not_recommend]
    impl<I: Tree, O: Tree> Func<Made> for $t {
        type In = I;
        type Ret = Result<O>;
        const ARITY: Option<usize> = None;
        #[track_caller]
        fn apply(&self, input: &I) -> Result<O> {
            self.call_tree(input, Location::caller())
        }
    }
)*} }
made!(Jit<'_, I, O>, &Jit<'_, I, O>);

impl<I: Tree, O: Tree> Jit<'_, I, O> {
    fn call_tree(&self, args: &I, place: Place) -> Result<O> {
        let same = args.rebuild(&mut Path::unnamed(), &mut |_, a| a.clone());
        self.call_inside(&self.prepared(same, place)?, place)
    }
}
