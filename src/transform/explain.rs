//! Why a collective is there, and what would change it: changes are tried, not guessed.

use super::compiled::{Leaf, Lowered, Traced};
use super::jit::Jit;
use super::stablehlo::paths;
use crate::array::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::{Axes, AxisType, Mesh};
use crate::ops::sharding::{Constrain, Reshard};
use crate::partition::chain::{self, From};
use crate::partition::{Collective, Collectives, Why};
use crate::plan::{Link, Machine, Plan};
use crate::program::{Builder, Control, Equation, Input, Op, Phase, Program, Value, Var};
use crate::sharding::{Sharding, Spec};
use crate::sorted;
use crate::trace::stages::spec_of;
use crate::trace::trial::{self, Ask, Site};
use crate::tree::{Args, Path, Tree};
use std::fmt;
use std::panic::Location;

/// Why a collective is there, in plain sentences, and what would make it smaller. It prints.
///
/// Made by [`Jit::explain`] and [`Lowered::explain`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The collective.
    pub collective: Collective,
    /// One sentence for each value on the way to it, from the argument or the operation that is first sharded so.
    pub chain: Vec<String>,
    /// Changes that were tried and that help: the one with the least communication in all first.
    pub changes: Vec<Change>,
    /// How many changes were tried.
    pub tried: usize,
}

/// One thing to write otherwise, and what is communicated then.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Change {
    /// What to write, and where.
    pub what: String,
    /// Bytes that a device receives of this collective, all runs together: 0 where it is gone.
    pub own_bytes: u64,
    /// Bytes that a device receives of all collectives.
    pub bytes: u64,
    /// The most bytes that a device holds at once.
    pub peak_bytes: u64,
    /// The same three of the program as it is.
    before: [u64; 3],
}

/// Where something is changed.
#[derive(Clone, Debug, PartialEq)]
enum Where {
    Argument(usize),
    Value(Site),
    /// What an operation is asked for.
    Out(Site),
    Result(usize),
}

impl<I: Tree, O: Tree> Lowered<I, O> {
    /// Why collective `i` of [`collectives`](Lowered::collectives) is there: the values from the one that is first sharded over its axes to the one that
    /// it moves, each with its line; then who asks for that, and the loop before which it is moved once, if it is the same at each step.
    /// [`Jit::explain`] also tries what would change it.
    ///
    /// # Errors
    /// A number beyond the last collective.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("X", 8)])?;
    /// let (x, w) = (F32.of([64, 32]).on(&mesh, p![]), F32.of([32, 16]).on(&mesh, p!["X", _]));
    /// let lowered = jit(|x: &Array, w: &Array| x.dot(w.sin().reshard(p![]))).lower((x, w))?;
    /// let why = lowered.explain(0)?;
    /// assert!(why.chain[0].starts_with("argument 1, f32[32@X,16], is sharded over X along dimension 0"), "{why}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn explain(&self, i: usize) -> Result<Explanation> {
        let c = self.numbered(i, Location::caller())?;
        Ok(self.told(c).0)
    }

    fn numbered(&self, i: usize, place: Place) -> Result<&Collective> {
        let n = self.collectives().len();
        self.collectives().iter().nth(i).ok_or_else(|| {
            let fault =
                Fault::new(ErrorKind::Data, format!("collective {i} is asked for, but there are {n}"));
            let fault = fault.help("they are counted from 0, as `collectives()` lists them");
            Error::at(fault, "explain", Vec::new(), Some(place))
        })
    }

    /// The sentences, and where something could be changed.
    fn told(&self, c: &Collective) -> (Explanation, Vec<Where>) {
        let told = chain::chain(self.spmd(), c);
        let names = paths(self.arguments());
        let mut places = Vec::new();
        let mut chain = Vec::new();
        for (k, link) in told.links.iter().enumerate() {
            let what = match &link.from {
                From::Argument(n) => {
                    if *n < names.len() {
                        places.push(Where::Argument(*n));
                    }
                    match names.get(*n) {
                        Some(name) if name.is_empty() => "the argument".to_string(),
                        Some(name) => format!("argument {name}"),
                        None => format!("captured array {}", n - names.len()),
                    }
                }
                From::Inside => "what the loop is given".into(),
                From::Op(op, place, phase) => {
                    if let (Some(place), Phase::Forward) = (place, phase) {
                        places.push(Where::Value(Site { op: op.clone(), place }));
                    }
                    format!("the result of {}", at(op, *place, *phase))
                }
            };
            chain.push(match link.dim {
                Some(d) if k == 0 => {
                    format!("{what}, {}, is sharded over {} along dimension {d}", link.ty, c.axes)
                }
                Some(d) => format!("{what}, {}, along dimension {d}", link.ty),
                None => {
                    let part = if link.adds { "a partial sum" } else { "of a part" };
                    format!("{what}, {}, is {part} on each device along {}", link.ty, c.axes)
                }
            });
        }
        chain.push(format!("{}: {}", at(&c.op, c.source, c.phase), c.reason));
        if let (Some(place), Phase::Forward) = (c.source, c.phase) {
            let site = Site { op: c.op.clone(), place };
            let readers =
                made(self.program(), &site).map(|(of, _, var)| read_by(of, var)).unwrap_or_default();
            if let Some(out) = self.asked_of(&site) {
                chain.push(format!("{} is asked for its result as `{out}`", at(&c.op, c.source, c.phase)));
                places.extend([Where::Value(site.clone()), Where::Out(site)]);
            } else {
                places.push(Where::Value(site));
            }
            places.extend(readers.into_iter().map(Where::Value));
        }
        if let Some(by) = &c.sake {
            let how = if c.asked { "asks for" } else { "reads" };
            chain.push(format!("{} {how} its result so", at(&by.op, by.place, by.phase)));
            if let (Some(place), Phase::Forward) = (by.place, by.phase) {
                places.push(Where::Value(Site { op: by.op.clone(), place }));
            }
        }
        if let Some(Why { place: Some(place), .. }) = &c.before {
            let (file, line) = (place.file(), place.line());
            chain.push(format!(
                "what is moved is the same at each step of the loop at {file}:{line}: it is moved once, before that loop"
            ));
        }
        places.extend(told.results.into_iter().map(Where::Result));
        places.reverse();
        let mut once: Vec<Where> = Vec::new();
        places.into_iter().for_each(|w| {
            if !once.contains(&w) {
                once.push(w)
            }
        });
        (Explanation { collective: c.clone(), chain, changes: Vec::new(), tried: 0 }, once)
    }

    /// The sharding that the user asks an operation for.
    fn asked_of(&self, site: &Site) -> Option<Spec> {
        let (of, e, var) = made(self.program(), site)?;
        let Op::Prim(prim) = &e.op else { return None };
        let out = prim.out()?;
        prim.with_out(out)?;
        // what is permuted on the same line is asked for in another order
        let permuted = |r: &Site| r.place == site.place && r.op == "transpose";
        (!read_by(of, var).iter().any(permuted)).then(|| out.padded(of.ty(var).rank()))
    }

    /// How a value is sharded, and on which mesh.
    fn lies(&self, at: &Where) -> Option<(Mesh, Spec, Vec<usize>)> {
        let program = self.program();
        let (of, var) = match at {
            Where::Argument(n) => (program, *program.inputs.get(*n)?),
            Where::Result(n) => match program.outputs.get(*n)? {
                Input::Var(v) => (program, *v),
                Input::Lit(_) => return None,
            },
            Where::Value(site) | Where::Out(site) => {
                let (of, _, var) = made(program, site)?;
                (of, var)
            }
        };
        let info = &of.vars[var.index()];
        let mesh = info.ty.mesh.clone()?;
        if let Where::Out(site) = at {
            return Some((mesh, self.asked_of(site)?, info.ty.shape.to_vec()));
        }
        let spec = info.placement.as_ref().and_then(|p| spec_of(&mesh, p)).unwrap_or(info.ty.spec);
        let spec = spec.padded(info.ty.rank()).unreduced(Axes::none());
        Some((mesh, spec, info.ty.shape.to_vec()))
    }
}

/// What an equation of this operation and line makes first, and the program that it is in.
fn made<'a>(program: &'a Program, site: &Site) -> Option<(&'a Program, &'a Equation, Var)> {
    program.equations.iter().find_map(|e| {
        let own = e.op.name() == site.op && e.place == Some(site.place) && e.phase == Phase::Forward;
        let own = own.then(|| e.outputs.first().map(|v| (program, e, *v))).flatten();
        let nested = || if let Op::Control(c) = &e.op { bodies(c).find_map(|b| made(b, site)) } else { None };
        own.or_else(nested)
    })
}

/// The operations that read a value, in the forward phase.
fn read_by(program: &Program, var: Var) -> Vec<Site> {
    let reads = |e: &&Equation| e.inputs.contains(&Input::Var(var)) && e.phase == Phase::Forward;
    let site = |e: &Equation| Some(Site { op: e.op.name().to_string(), place: e.place? });
    program.equations.iter().filter(reads).filter_map(site).collect()
}

fn bodies(c: &Control) -> impl Iterator<Item = &Program> {
    c.bodies().into_iter().map(|b| &**b)
}

/// An operation with its line.
fn at(op: &str, place: Option<Place>, phase: Phase) -> String {
    let line = place.map_or(String::new(), |p| format!(" at {}:{}", p.file(), p.line()));
    let phase = if phase == Phase::Forward { String::new() } else { format!(" ({})", phase.name()) };
    format!("{op}{line}{phase}")
}

/// The shardings to try in place of this one: without the axes, and with them along each dimension.
fn others(mesh: &Mesh, spec: Spec, shape: &[usize], axes: &Axes) -> Vec<Spec> {
    let without = spec.only(|a| !axes.contains(a));
    let ways: usize = axes.iter().map(|a| mesh.axis_size(a).unwrap_or(1)).product();
    let along = (0..shape.len()).map(|d| {
        let held: usize = without.dim(d).iter().map(|a| mesh.axis_size(*a).unwrap_or(1)).product();
        let divides = shape[d].is_multiple_of(held.max(1) * ways.max(1));
        divides.then(|| {
            let entry: Axes = without.dim(d).iter().copied().chain(axes.iter()).collect();
            without.with_dim(d, &entry)
        })
    });
    let all = std::iter::once(Some(without)).chain(along).flatten();
    all.filter(|s| s.dims() != spec.dims()).collect()
}

/// At most so many equations are traced again for one explanation.
const EQUATIONS: usize = 1 << 17;
/// So many changes are tried at least and at most.
const TRIALS: (usize, usize) = (6, 48);
/// How much more a device may compute with a change that is told.
const MORE: f64 = 1.02;
/// So many are told.
const TOLD: usize = 3;

impl<I: Tree, O: Tree> Jit<'_, I, O> {
    /// Why collective `i` of the function's [report](Lowered::collectives) is there, and the cheapest changes that shrink it. Each is tried: the
    /// function is traced again with another sharding of an argument, of a value on the way (as if `.reshard(..)` or, over auto axes,
    /// `.constrain(..)` were written behind it, or as if another sharding were asked of an operation such as `einsum_to`) or of a result, lowered,
    /// and counted. Told are those with which this collective *and* all
    /// communication together are less and a device computes no more (by 2 % at most). Nothing runs, and the mesh needs no devices.
    ///
    /// # Errors
    /// Those of [`lower`](Jit::lower), and a number beyond the last collective.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("X", 8)])?;
    /// // the weights are gathered; sharded by columns they need not be
    /// let types = || (F32.of([512, 64]).on(&mesh, p![]), F32.of([64, 64]).on(&mesh, p!["X", _]));
    /// let layer = jit(|x: &Array, w: &Array| x.dot(w.sin()));
    /// let why = layer.explain(types(), 0)?;
    /// assert!(why.changes[0].bytes < why.collective.bytes, "{why}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn explain<A: Args<Owned = I>>(&self, args: A, i: usize) -> Result<Explanation> {
        let place = Location::caller();
        let args = self.prepared(args.into_tree(), place)?;
        let lowered = self.trace_at(&args, place)?.lower()?;
        let c = lowered.numbered(i, place)?.clone();
        let (mut why, places) = lowered.told(&c);
        let names = paths(&args);
        let most = (EQUATIONS / lowered.program().size().max(1)).clamp(TRIALS.0, TRIALS.1);
        // a change by which devices compute the same is none that helps
        let work = |l: &Lowered<I, O>| -> Result<f64> {
            let counts = Machine::new("counts").links(Link::switch(1.0));
            let plan = Plan::new(l.spmd(), l.collectives(), &counts)?;
            Ok(plan.items().iter().map(|i| i.operations * i.times as f64).sum())
        };
        let least = work(&lowered)?;
        let own =
            |all: &Collectives| all.iter().filter(|x| same(x, &c)).fold(0u64, |n, x| n + x.bytes * x.times);
        let figures = |all: &Collectives| [own(all), all.bytes(), all.peak_bytes()];
        let before = figures(lowered.collectives());
        for at in &places {
            let Some((mesh, spec, shape)) = lowered.lies(at) else { continue };
            for to in others(&mesh, spec, &shape, &c.axes) {
                if why.tried == most {
                    break;
                }
                let Some(ask) = asked(&mesh, at, to, &c.axes) else { continue };
                why.tried += 1;
                let Ok(traced) = self.changed(&args, at, &mesh, to, &ask, place) else { continue };
                let Ok(lowered) = traced.lower() else { continue };
                let [own_bytes, bytes, peak_bytes] = figures(lowered.collectives());
                if own_bytes < before[0] && bytes < before[1] && work(&lowered)? <= MORE * least {
                    let what = written(at, &ask, [spec, to], &names);
                    why.changes.push(Change { what, own_bytes, bytes, peak_bytes, before });
                }
            }
        }
        sorted::sort_by_key(&mut why.changes, |c| (c.bytes, c.own_bytes, c.peak_bytes));
        why.changes.truncate(TOLD);
        Ok(why)
    }

    /// The function, traced with a change.
    fn changed(
        &self,
        args: &I,
        at: &Where,
        mesh: &Mesh,
        to: Spec,
        ask: &Ask,
        place: Place,
    ) -> Result<Traced<I, O>> {
        match at {
            Where::Argument(n) => {
                let mut number = 0;
                let args = args.rebuild(&mut Path::unnamed(), &mut |_, a| {
                    number += 1;
                    if number != n + 1 {
                        return a.clone();
                    }
                    let Leaf { mut ty, .. } = Leaf::of(a);
                    let sharding = Sharding { mesh: mesh.clone(), spec: to };
                    (ty.spec, ty.mesh) = (sharding.explicit(), Some(mesh.clone()));
                    Array::type_only(ty, Some(sharding))
                });
                self.trace_at(&args, place)
            }
            Where::Value(site) | Where::Out(site) => trial::during(site, ask, || self.trace_at(args, place)),
            Where::Result(n) => {
                let traced = self.trace_at(args, place)?;
                let (mut b, from) = (Builder::new(), traced.program().clone());
                if let Some(mesh) = &from.mesh {
                    b.on(mesh);
                }
                let input = |v: &Var, b: &mut Builder| {
                    b.input(from.ty(*v).clone(), from.vars[v.index()].placement.clone())
                };
                let ins: Vec<Value> = from.inputs.iter().map(|v| input(v, &mut b)).collect();
                let mut outs = b.inline(&from, &ins);
                outs[*n] = ask.of(&mut b, &outs[*n])?;
                Ok(traced.with_program(b.finish(&outs)))
            }
        }
    }
}

/// Whether two rows are of one collective: of the same part of one operation.
fn same(a: &Collective, b: &Collective) -> bool {
    (&a.op, a.source, a.phase, a.part) == (&b.op, b.source, b.phase, b.part) && a.axes.same_set(&b.axes)
}

/// The operation that shards so, if all these axes are of one type that a program may ask for.
fn asked(mesh: &Mesh, at: &Where, to: Spec, axes: &Axes) -> Option<Ask> {
    let only = |ty| axes.iter().all(|a| mesh.axis_type(a) == Some(ty));
    let of = |ty| to.only(|a| mesh.axis_type(a) == Some(ty));
    if let Where::Out(_) = at {
        only(AxisType::Explicit).then_some(Ask::Out(to))
    } else if only(AxisType::Explicit) {
        Some(Ask::Reshard(Reshard::new(mesh.clone(), of(AxisType::Explicit))))
    } else if only(AxisType::Auto) {
        Some(Ask::Constrain(Constrain::new(mesh.clone(), of(AxisType::Auto))))
    } else {
        None
    }
}

/// A change as the user writes it.
fn written(at: &Where, ask: &Ask, [was, to]: [Spec; 2], names: &[String]) -> String {
    let call = match ask {
        Ask::Out(out) => format!("`{out}`"),
        Ask::Reshard(r) => format!("`.reshard({})`", r.spec),
        Ask::Constrain(c) => format!("`.constrain({})`", c.spec),
    };
    match at {
        Where::Argument(n) => {
            let name = names
                .get(*n)
                .filter(|n| !n.is_empty())
                .map_or("the argument".into(), |n| format!("argument {n}"));
            format!("shard {name} as `{to}`")
        }
        Where::Value(site) => {
            format!("write {call} behind {}", self::at(&site.op, Some(site.place), Phase::Forward))
        }
        Where::Out(site) => {
            let op = self::at(&site.op, Some(site.place), Phase::Forward);
            format!("ask {op} for {call}, in place of `{was}`")
        }
        Where::Result(n) => format!("write {call} behind result {n}"),
    }
}

/// Bytes for people.
fn bytes(n: u64) -> String {
    crate::plan::amount(n as f64, "B")
}

/// The collective, the chain, and the changes.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.collective;
        let times = if c.times == 1 { String::new() } else { format!(", {} times", c.times) };
        writeln!(f, "{} over {}: {} per device{times}", c.kind, c.axes, bytes(c.bytes))?;
        for (k, sentence) in self.chain.iter().enumerate() {
            writeln!(f, "  {}. {sentence}", k + 1)?;
        }
        for change in &self.changes {
            let [own, all, peak] = change.before;
            let this = match change.own_bytes {
                0 => "it is gone".to_string(),
                left => format!("from {} to {}", bytes(own), bytes(left)),
            };
            writeln!(
                f,
                "  {}: {this}; all communication from {} to {}, peak memory from {} to {}",
                change.what,
                bytes(all),
                bytes(change.bytes),
                bytes(peak),
                bytes(change.peak_bytes),
            )?;
        }
        if self.changes.is_empty() && self.tried > 0 {
            writeln!(f, "  of {} other shardings that were tried none moves less", self.tried)?;
        }
        Ok(())
    }
}
