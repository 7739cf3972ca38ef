//! The pipeline from a program to something that runs: propagate, localise, compile.

use super::cache::Cache;
use crate::diagnostic::{ErrorKind, Result};
use crate::engine::{self, EngineKind, Executable, Failure};
use crate::mesh::{Axis, Mesh};
use crate::partition::{self, Localised, PerByte};
use crate::plan::Timeline;
use crate::program::dce::dce;
use crate::program::{Placement, Program, sound};
use crate::propagate;
use crate::runtime::Slab;
use crate::sharding::{Sharding, Spec, atoms};
use crate::trace::{Array, Placed};
use std::sync::{Arc, LazyLock};

/// A program of which every value is placed, and the per-device program made of it.
pub(crate) struct Staged {
    /// The placed program.
    pub(crate) program: Program,
    /// The per-device program and what it communicates.
    pub(crate) localised: Localised,
    /// What the results are.
    pub(crate) results: Vec<Arc<Placed>>,
}

/// A program that is ready to run.
pub(crate) struct Ready {
    pub(crate) exe: Arc<dyn Executable>,
    pub(crate) results: Vec<Arc<Placed>>,
}

/// Places every value and makes the per-device program, where a byte costs so much.
pub(crate) fn lower(program: &Program, per_byte: PerByte) -> Result<Staged> {
    in_span!("lower");
    let placed = place(program, &[])?;
    let results = placed.outputs.iter().map(|out| Arc::new(result(&placed, out))).collect();
    let localised = partition::localise_for(&placed, per_byte)?;
    Ok(Staged { program: placed, localised, results })
}

/// Places every value, results over whole axes. `wanted` asks for placements of results (missing ones: as propagated).
pub(crate) fn place(program: &Program, wanted: &[Option<Placement>]) -> Result<Program> {
    sound::check(program)?;
    let mut wanted = wanted.to_vec();
    wanted.resize(program.outputs.len(), None);
    let program = &dce(program);
    let mut placed = propagate::propagate(program, &wanted)?;
    // results are split over whole axes: what was propagated over pieces of axes is widened
    let mut again = false;
    for (ty, (out, want)) in placed.output_types().iter().zip(placed.outputs.iter().zip(&mut wanted)) {
        let crate::program::Input::Var(v) = out else { continue };
        let (Some(mesh), Some(at)) = (&ty.mesh, &placed.vars[v.index()].placement) else { continue };
        if spec_of(mesh, at).is_none() {
            *want = Some(whole_axes(mesh, at));
            again = true;
        }
    }
    if again {
        placed = propagate::propagate(program, &wanted)?;
    }
    Ok(placed)
}

/// The whole pipeline.
fn compile(program: &Program, donated: &[bool], engine: EngineKind, per_byte: PerByte) -> Result<Ready> {
    let staged = lower(program, per_byte)?;
    Ok(Ready { exe: engine::compile(engine, staged.job(donated))?, results: staged.results })
}

/// The same of operations outside of `jit`: what XLA does not run runs in lock-step.
pub(crate) fn compile_at_once(program: &Program, engine: EngineKind) -> Result<Ready> {
    let compiled = |engine| compile(program, &[], engine, PerByte::default());
    match compiled(engine) {
        Err(e) if engine == EngineKind::Xla && e.kind() == ErrorKind::Unsupported => {
            compiled(EngineKind::Lockstep)
        }
        done => done,
    }
}

impl Staged {
    /// What an engine compiles. Inputs that are `donated` (missing ones are not) may be written over.
    pub(crate) fn job<'a>(&'a self, donated: &'a [bool]) -> engine::Job<'a> {
        let Localised { program: spmd, collectives } = &self.localised;
        engine::Job { placed: &self.program, spmd, collectives, donated, depth: 0 }
    }
}

/// What the programs that are kept weigh at most, in equations.
pub(crate) const KEPT: usize = 1 << 15;
/// What a program weighs besides its equations.
pub(crate) const WEIGHT: usize = 8;

/// The program, compiled; or what was compiled for an equal one. Closures are traced at every call, since what they capture may
/// differ in kind; but numbers from outside are inputs of a program, so the steps of a loop make equal ones.
pub(crate) fn ready(
    program: Arc<Program>,
    donated: &[bool],
    engine: EngineKind,
    per_byte: PerByte,
) -> Result<Arc<Ready>> {
    kept(program, donated, (engine, per_byte), false)
}

/// The same for operations outside of `jit`.
pub(crate) fn ready_at_once(program: Program, engine: EngineKind) -> Result<Arc<Ready>> {
    kept(Arc::new(program), &[], (engine, PerByte::default()), engine == EngineKind::Xla)
}

/// What was compiled for an engine, and for a machine on which a byte costs so much, serves these alone.
fn kept(
    program: Arc<Program>,
    donated: &[bool],
    (engine, per_byte): (EngineKind, PerByte),
    at_once: bool,
) -> Result<Arc<Ready>> {
    type Key = (EngineKind, PerByte, bool, Box<[bool]>, Arc<Program>);
    static PROGRAMS: LazyLock<Cache<Key, Arc<Ready>>> = LazyLock::new(|| Cache::new(KEPT));
    // up to the last one that is donated
    let given = donated.iter().rposition(|d| *d).map_or(0, |k| k + 1);
    let key = (engine, per_byte, at_once, donated[..given].into(), program);
    if let Some(known) = PROGRAMS.get(&key) {
        return Ok(known);
    }
    let program = &key.4;
    let made = match at_once {
        true => compile_at_once(program, engine),
        false => compile(program, donated, engine, per_byte),
    };
    let (ready, weight) = (Arc::new(made?), WEIGHT + program.size());
    Ok(PROGRAMS.put(key, ready, weight))
}

impl Ready {
    /// Runs it outside of devices' threads; the first result as an array.
    pub(crate) fn one(&self, args: &mut [Slab]) -> Result<Array, Failure> {
        Ok(Array::placed_as(self.exe.call_one(args)?, self.results[0].clone()))
    }
    /// Runs it; the results as arrays.
    pub(crate) fn call(&self, args: &mut [Slab]) -> Result<Vec<Array>, Failure> {
        super::eager::off_devices()?;
        Ok(self.arrays(self.exe.call(args)?))
    }
    /// The same, with what was done when.
    pub(crate) fn call_timed(&self, args: &mut [Slab]) -> Result<(Vec<Array>, Timeline), Failure> {
        super::eager::off_devices()?;
        let (slabs, timeline) = self.exe.call_timed(args)?;
        #[cfg(feature = "tracing")]
        timeline.tell();
        Ok((self.arrays(slabs), timeline))
    }
    fn arrays(&self, slabs: Vec<Slab>) -> Vec<Array> {
        let results = slabs.into_iter().zip(&self.results);
        results.map(|(slab, placed)| Array::placed_as(slab, placed.clone())).collect()
    }
}

fn result(program: &Program, out: &crate::program::Input) -> Placed {
    let ty = program.input_type(out);
    let at = match out {
        crate::program::Input::Var(v) => program.vars[v.index()].placement.as_ref(),
        crate::program::Input::Lit(_) => None,
    };
    let sharding = ty.mesh.clone().map(|mesh| {
        let spec = at.and_then(|at| spec_of(&mesh, at)).map_or(ty.spec, |spec| named(&mesh, spec, ty.spec));
        // the reduced set is no placement: the type has it
        let spec = spec.reduced(ty.spec.reduced_axes());
        Sharding { mesh, spec }
    });
    Placed { ty, sharding }
}

/// The spec that a placement is, if it is over whole axes of the mesh.
pub(crate) fn spec_of(mesh: &Mesh, at: &Placement) -> Option<Spec> {
    let dims = at.dims.iter().map(|d| atoms::whole_axes(mesh, d)).collect::<Option<Vec<_>>>()?;
    let partial = atoms::whole_axes(mesh, &at.partial)?;
    Some(Spec::of(dims).unreduced(partial).in_order(mesh))
}

/// The spec with the axes of size 1 that the type names, of which digits do not tell.
fn named(mesh: &Mesh, spec: Spec, ty: Spec) -> Spec {
    let dims = spec.dims().iter().zip(ty.padded(spec.dims().len()).dims()).map(|(axes, typed)| {
        let held: Vec<Axis> = typed.iter().filter(|a| mesh.extent(*a) > 1).collect();
        match axes.as_slice().strip_prefix(&held[..]) {
            Some(more) => typed.iter().chain(more.iter().copied()).collect(),
            None => axes.clone(),
        }
    });
    Spec::of(dims.collect()).unreduced(ty.unreduced_axes()).in_order(mesh)
}

/// The placement without what is not over whole axes.
fn whole_axes(mesh: &Mesh, at: &Placement) -> Placement {
    let dims = at.dims.iter().map(|d| {
        // the longest run of leading digits that are whole axes
        let axes = (0..=d.len()).rev().find_map(|n| atoms::whole_axes(mesh, &d[..n]));
        atoms::of_axes(mesh, axes.unwrap_or_default().iter())
    });
    Placement { dims: dims.collect(), partial: at.partial.clone() }
}
