//! `explain`: the reason for a collective, and suggestions that make it smaller.
//!
//! Every suggestion is verified by tracing and lowering the edited function.

use super::explain_edits::{
    EditSite, alternatives, consumers, describe_edit, describe_op, first_output, sites_of_line, trial_edit,
};
use super::stages::{LeafType, Lowered, Traced};
use super::{jit::Jit, stages::paths};
use crate::api::trace::what_if::{self, Site, TrialEdit};
use crate::api::tree::{CallArgs, Path, Tree};
use crate::api::{array::Array, trace::pipeline::spec_of};
use crate::core::{
    Axes, Error, LineLabels, Mesh, Result, Sharding, SourceLocation, Spec, util::small_sort,
    util::text::scaled,
};
use crate::ir::program::{Builder, Input, Op, Phase, Value, Var};
use crate::partition::plan::{Link, Machine, Plan};
use crate::partition::provenance::{self, ValueSource};
use crate::partition::{Collective, Collectives, StepOrigin};
use std::fmt;
use std::panic::Location;

/// The reason for a collective, and suggestions that make it smaller.
///
/// [`Jit::explain`] and [`Lowered::explain`] return it. `Display` prints it in plain sentences.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::without_devices([("X", 4)])?;
/// let x = F32.array_type([8, 2]).on(&mesh, p!["X"]);
/// let why = jit(|x: &Array| x.reshard(p![])).explain(x, 0)?;
/// assert!(why.chain[0].contains("is sharded over X"), "{why}");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The collective.
    pub collective: Collective,
    /// One sentence for each value on the way to the collective.
    ///
    /// The first value is the argument or operation result that introduces the sharding.
    pub chain: Vec<String>,
    /// The useful suggestions, by increasing total communication.
    pub suggestions: Vec<Suggestion>,
    /// The number of suggestions that were tried.
    pub tried: usize,
}

/// One edit of the user's program, and the communication that remains after it.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::without_devices([("X", 4)])?;
/// let x = F32.array_type([8, 2]).on(&mesh, p!["X"]);
/// let why = jit(|x: &Array| x.reshard(p![]) * 2.0).explain(x, 0)?;
/// for suggestion in &why.suggestions {
///     println!("{}: {} bytes remain", suggestion.edit, suggestion.bytes);
/// }
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Suggestion {
    /// The code to write, and where.
    pub edit: String,
    /// The bytes that a device receives by this collective in one call, over all iterations of
    /// loops. 0 if the edit removes the collective.
    pub collective_bytes: u64,
    /// The bytes that a device receives by all collectives in one call.
    pub bytes: u64,
    /// The peak memory of a device, in bytes.
    pub peak_bytes: u64,
    /// The figures of the unedited program: this collective's bytes, all bytes, peak bytes.
    baseline: [u64; 3],
}

impl<I: Tree, O: Tree> Lowered<I, O> {
    /// Explains collective `i` of [`collectives`](Lowered::collectives).
    ///
    /// The explanation lists values with their source locations, from the value that is first
    /// sharded over the collective's axes to the value that it moves. Then it names the consumer
    /// that needs the data. For a loop-invariant value it names the loop before which the value is
    /// moved once. [`Jit::explain`] also tries edits that would make the collective smaller.
    ///
    /// # Errors
    /// Returns an error if `i` is out of range.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("X", 8)])?;
    /// let (x, w) = (F32.array_type([64, 32]).on(&mesh, p![]),
    ///     F32.array_type([32, 16]).on(&mesh, p!["X", _]));
    /// let lowered = jit(|x: &Array, w: &Array| x.dot(w.sin().reshard(p![]))).lower((x, w))?;
    /// let why = lowered.explain(0)?;
    /// let first = "argument 1, f32[32@X,16], is sharded over X along dimension 0";
    /// assert!(why.chain[0].starts_with(first), "{why}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn explain(&self, i: usize) -> Result<Explanation> {
        let c = self.collective_at(i, Location::caller())?;
        Ok(self.describe(c).0)
    }

    fn collective_at(&self, i: usize, location: SourceLocation) -> Result<&Collective> {
        let n = self.collectives().len();
        self.collectives().iter().nth(i).ok_or_else(|| {
            let fault = fault!(Data, "collective {i} is asked for, but there are {n}");
            let fault = fault.help("they are counted from 0, as `collectives()` lists them");
            Error::new(fault, "explain", Vec::new(), Some(location))
        })
    }

    /// Builds the explanation of a collective, and lists the targets of possible edits.
    fn describe(&self, c: &Collective) -> (Explanation, Vec<EditSite>) {
        let traced = provenance::trace_sharding(self.spmd(), c);
        let names = paths(self.arguments());
        let mut places = Vec::new();
        let mut chain = Vec::new();
        for (k, link) in traced.links.iter().enumerate() {
            let what = match &link.source {
                ValueSource::Argument(n) => {
                    if *n < names.len() {
                        places.push(EditSite::Argument(*n));
                    }
                    match names.get(*n) {
                        Some(name) if name.is_empty() => "the argument".to_string(),
                        Some(name) => format!("argument {name}"),
                        None => format!("captured array {}", n - names.len()),
                    }
                }
                ValueSource::NestedInput => "an input of the loop".into(),
                ValueSource::Op(op, place, phase) => {
                    if let (Some(place), Phase::Forward) = (place, phase) {
                        places.push(EditSite::Value(Site { op: op.clone(), location: place }));
                    }
                    format!("the result of {}", describe_op(op, *place, *phase))
                }
            };
            chain.push(match link.dim {
                Some(d) if k == 0 => {
                    format!("{what}, {}, is sharded over {} along dimension {d}", link.ty, c.axes)
                }
                Some(d) => format!("{what}, {}, along dimension {d}", link.ty),
                None => {
                    let part = if link.adds { "a partial sum" } else { "a partial value" };
                    format!("{what}, {}, is {part} on each device along {}", link.ty, c.axes)
                }
            });
        }
        chain.push(format!("{}: {}", describe_op(&c.op, c.location, c.phase), c.reason));
        if let (Some(place), Phase::Forward) = (c.location, c.phase) {
            let site = Site { op: c.op.clone(), location: place };
            let readers = first_output(self.program(), &site)
                .map(|(of, _, var)| consumers(of, var))
                .unwrap_or_default();
            if let Some(out) = self.requested_out_sharding(&site) {
                chain.push(format!(
                    "{} is asked for its result as `{out}`",
                    describe_op(&c.op, c.location, c.phase)
                ));
                places.extend([EditSite::Value(site.clone()), EditSite::OutSharding(site)]);
            } else {
                places.push(EditSite::Value(site));
            }
            places.extend(readers.into_iter().map(EditSite::Value));
        }
        if let (Some(place), Phase::Backward) = (c.location, c.phase) {
            sites_of_line(self.program(), place, &mut places);
        }
        if let Some(by) = &c.for_consumer {
            let how = if c.requested { "asks for" } else { "reads" };
            chain.push(format!("{} {how} its result so", describe_op(&by.op, by.location, by.phase)));
            if let (Some(place), Phase::Forward) = (by.location, by.phase) {
                places.push(EditSite::Value(Site { op: by.op.clone(), location: place }));
            }
        }
        if let Some(StepOrigin { location: Some(location), .. }) = &c.hoisted_from {
            let line = LineLabels::new().label(Some(*location));
            chain.push(format!(
                "the moved value is the same at each step of the loop at {line}: it is moved once, before that loop"
            ));
        }
        places.extend(traced.results.into_iter().map(EditSite::Result));
        places.reverse();
        let mut once: Vec<EditSite> = Vec::new();
        places.into_iter().for_each(|w| {
            if !once.contains(&w) {
                once.push(w)
            }
        });
        (Explanation { collective: c.clone(), chain, suggestions: Vec::new(), tried: 0 }, once)
    }

    /// Returns the result sharding that the user requested for an operation.
    fn requested_out_sharding(&self, site: &Site) -> Option<Spec> {
        let (of, e, var) = first_output(self.program(), site)?;
        let Op::Prim(prim) = &e.op else { return None };
        let out = prim.out_sharding()?;
        prim.with_out_sharding(out)?;
        // if the result is transposed on the same source line, the user wrote the requested
        // sharding for the transposed order
        let permuted = |r: &Site| r.location == site.location && r.op == "transpose";
        (!consumers(of, var).iter().any(permuted)).then(|| out.padded(of.ty(var).rank()))
    }

    /// Returns the mesh, the sharding and the shape of a value.
    fn current_sharding(&self, at: &EditSite) -> Option<(Mesh, Spec, Vec<usize>)> {
        let program = self.program();
        let (of, var) = match at {
            EditSite::Argument(n) => (program, *program.inputs.get(*n)?),
            EditSite::Result(n) => match program.outputs.get(*n)? {
                Input::Var(v) => (program, *v),
                Input::Lit(_) => return None,
            },
            EditSite::Value(site) | EditSite::OutSharding(site) => {
                let (of, _, var) = first_output(program, site)?;
                (of, var)
            }
        };
        let info = &of.vars[var.index()];
        let mesh = info.ty.mesh.clone()?;
        if let EditSite::OutSharding(site) = at {
            return Some((mesh, self.requested_out_sharding(site)?, info.ty.shape.to_vec()));
        }
        let spec = info.placement.as_ref().and_then(|p| spec_of(&mesh, p)).unwrap_or(info.ty.spec);
        let spec = spec.padded(info.ty.rank()).unreduced(Axes::none()).reduced(info.ty.spec.reduced_axes());
        Some((mesh, spec, info.ty.shape.to_vec()))
    }
}

/// The maximum number of equations traced again for one explanation.
const MAX_RETRACED_EQUATIONS: usize = 1 << 17;
/// The minimum and maximum number of edits to try.
const MIN_MAX_TRIALS: (usize, usize) = (6, 48);
/// The maximum work of a device after an edit, relative to the unedited program.
const MAX_WORK_RATIO: f64 = 1.02;
/// The maximum number of suggestions reported.
const MAX_SUGGESTIONS: usize = 3;

impl<I: Tree, O: Tree> Jit<'_, I, O> {
    /// Explains collective `i` of the [report](Lowered::collectives), and suggests edits.
    ///
    /// Each suggestion is verified: the function is traced again with another sharding of an
    /// argument, of an intermediate value (as if `.reshard(..)` or, over auto axes,
    /// `.constrain(..)` were written after it, or another result sharding were requested of an
    /// operation such as `einsum_to`) or of a result, then lowered and measured. Suggestions are
    /// reported if both this collective *and* the total communication shrink and a device computes
    /// at most 2 % more. Nothing runs, and the mesh needs no devices.
    ///
    /// # Errors
    /// Returns the errors of [`lower`](Jit::lower), and an error if `i` is out of range.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::without_devices([("X", 8)])?;
    /// // the weights are gathered; sharding them by columns avoids that
    /// let types = || (F32.array_type([512, 64]).on(&mesh, p![]),
    ///     F32.array_type([64, 64]).on(&mesh, p!["X", _]));
    /// let layer = jit(|x: &Array, w: &Array| x.dot(w.sin()));
    /// let why = layer.explain(types(), 0)?;
    /// assert!(why.suggestions[0].collective_bytes < why.collective.bytes_per_device, "{why}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn explain<A: CallArgs<I>>(&self, args: A, i: usize) -> Result<Explanation> {
        let location = Location::caller();
        let args = self.with_in_specs(args.into_tree(), location)?;
        let lowered = self.trace_at(&args, location)?.lower()?;
        let c = lowered.collective_at(i, location)?.clone();
        let (mut why, places) = lowered.describe(&c);
        let names = paths(&args);
        let most = (MAX_RETRACED_EQUATIONS / lowered.program().num_equations().max(1))
            .clamp(MIN_MAX_TRIALS.0, MIN_MAX_TRIALS.1);
        // reject edits that save communication by computing the same values on several devices
        let work = |l: &Lowered<I, O>| -> Result<f64> {
            let counts = Machine::new("counts").links(Link::switch(1.0));
            let plan = Plan::new(l.spmd(), l.collectives(), &counts)?;
            Ok(plan.entries().iter().map(|i| i.flops * i.count as f64).sum())
        };
        let least = work(&lowered)?;
        let own = |all: &Collectives| {
            all.iter()
                .filter(|x| is_same_collective(x, &c))
                .fold(0u64, |n, x| n + x.bytes_per_device * x.count)
        };
        let figures = |all: &Collectives| [own(all), all.bytes(), all.peak_bytes()];
        let before = figures(lowered.collectives());
        for at in &places {
            let Some((mesh, spec, shape)) = lowered.current_sharding(at) else { continue };
            for to in alternatives(&mesh, spec, &shape, &c.axes) {
                if why.tried == most {
                    break;
                }
                let Some(ask) = trial_edit(&mesh, at, to, &c.axes) else { continue };
                why.tried += 1;
                let Ok(traced) = self.trace_edited(&args, at, &mesh, to, &ask, location) else { continue };
                let Ok(lowered) = traced.lower() else { continue };
                let [own_bytes, bytes, peak_bytes] = figures(lowered.collectives());
                if own_bytes < before[0] && bytes < before[1] && work(&lowered)? <= MAX_WORK_RATIO * least {
                    let what = describe_edit(at, &ask, [spec, to], &names);
                    why.suggestions.push(Suggestion {
                        edit: what,
                        collective_bytes: own_bytes,
                        bytes,
                        peak_bytes,
                        baseline: before,
                    });
                }
            }
        }
        small_sort::sort_by_key(&mut why.suggestions, |c| (c.bytes, c.collective_bytes, c.peak_bytes));
        why.suggestions.truncate(MAX_SUGGESTIONS);
        Ok(why)
    }

    /// Traces the function with an edit applied.
    fn trace_edited(
        &self,
        args: &I,
        at: &EditSite,
        mesh: &Mesh,
        to: Spec,
        ask: &TrialEdit,
        location: SourceLocation,
    ) -> Result<Traced<I, O>> {
        match at {
            EditSite::Argument(n) => {
                let mut number = 0;
                let args = args.rebuild(&mut Path::unnamed(), &mut |_, a| {
                    number += 1;
                    if number != n + 1 {
                        return a.clone();
                    }
                    let LeafType { mut ty, .. } = LeafType::from_array(a);
                    let sharding = Sharding { mesh: mesh.clone(), spec: to };
                    (ty.spec, ty.mesh) = (sharding.explicit(), Some(mesh.clone()));
                    Array::type_only(ty, Some(sharding))
                });
                self.trace_at(&args, location)
            }
            EditSite::Value(site) | EditSite::OutSharding(site) => {
                what_if::with_trial(site, ask, || self.trace_at(args, location))
            }
            EditSite::Result(n) => {
                let traced = self.trace_at(args, location)?;
                let (mut b, from) = (Builder::new(), traced.program().clone());
                if let Some(mesh) = &from.mesh {
                    b.set_default_mesh(mesh);
                }
                let input = |v: &Var, b: &mut Builder| {
                    b.input(from.ty(*v).clone(), from.vars[v.index()].placement.clone())
                };
                let ins: Vec<Value> = from.inputs.iter().map(|v| input(v, &mut b)).collect();
                let mut outs = b.inline(&from, &ins);
                outs[*n] = ask.apply_to(&mut b, &outs[*n])?;
                Ok(traced.with_program(b.finish(&outs)))
            }
        }
    }
}

/// Returns true if both are the same collective of the same operation.
fn is_same_collective(a: &Collective, b: &Collective) -> bool {
    let of = |c: &Collective| (c.op.clone(), c.location, c.scope.clone(), c.phase, c.role);
    of(a) == of(b) && a.axes.same_set(&b.axes)
}

/// Formats a number of bytes with a unit.
fn format_bytes(n: u64) -> String {
    scaled(n as f64, "B")
}

/// Prints the collective, the chain of values, and the suggestions.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.collective;
        let times = if c.count == 1 { String::new() } else { format!(", {} times", c.count) };
        writeln!(f, "{} over {}: {} per device{times}", c.kind, c.axes, format_bytes(c.bytes_per_device))?;
        for (k, sentence) in self.chain.iter().enumerate() {
            writeln!(f, "  {}. {sentence}", k + 1)?;
        }
        for change in &self.suggestions {
            let [own, all, peak] = change.baseline;
            let this = match change.collective_bytes {
                0 => "it is gone".to_string(),
                left => format!("from {} to {}", format_bytes(own), format_bytes(left)),
            };
            writeln!(
                f,
                "  {}: {this}; all communication from {} to {}, peak memory from {} to {}",
                change.edit,
                format_bytes(all),
                format_bytes(change.bytes),
                format_bytes(peak),
                format_bytes(change.peak_bytes),
            )?;
        }
        if self.suggestions.is_empty() && self.tried > 0 {
            writeln!(f, "  tried {} alternative shardings; none of them moves fewer bytes", self.tried)?;
        }
        Ok(())
    }
}
