//! The pipeline from a program to an executable: propagate, partition, compile.

use super::{cache::Cache, device_code::reject_in_device_code};
use crate::api::trace::{Array, PlacedType};
use crate::core::{Axis, ErrorKind, Mesh, Result, Sharding, Spec, sharding::sub_axes};
use crate::exec::engine::{self, EngineConfig, EngineKind, Executable, Failure};
use crate::exec::runtime::{ArrayData, process_devices};
use crate::ir::program::{Placement, Program, dce::dce, verify, without_rules};
use crate::partition::{self, Partitioned, TransferPrices, plan::Timeline, propagate};
use std::sync::{Arc, LazyLock};

/// A program in which every value is placed, with the per-device program derived from it.
pub(crate) struct LoweredProgram {
    /// The placed program.
    pub(crate) program: Program,
    /// The per-device program and its collectives.
    pub(crate) partitioned: Partitioned,
    /// The types and shardings of the results.
    pub(crate) results: Vec<Arc<PlacedType>>,
}

/// A program that is ready to run.
pub(crate) struct CompiledProgram {
    /// The executable of its engine.
    pub(crate) exe: Arc<dyn Executable>,
    pub(crate) results: Vec<Arc<PlacedType>>,
}

/// Places every value and derives the per-device program; `per_byte` is the cost of moving a byte.
pub(crate) fn lower(program: &Program, per_byte: TransferPrices) -> Result<LoweredProgram> {
    in_span!("lower");
    let placed = place(program, &[])?;
    let results = placed_result_types(&placed);
    let localised = partition::partition_for(&placed, per_byte)?;
    Ok(LoweredProgram { program: placed, partitioned: localised, results })
}

/// Returns the types and shardings of the results of a placed program.
pub(crate) fn placed_result_types(placed: &Program) -> Vec<Arc<PlacedType>> {
    placed.outputs.iter().map(|out| Arc::new(placed_result_type(placed, out))).collect()
}

/// Lowers the program, or returns what was derived from an equal one recently.
///
/// A program that is compiled for several engines, or once more with donated arguments, is
/// partitioned once.
fn lower_cached(program: &Arc<Program>, per_byte: TransferPrices) -> Result<Arc<LoweredProgram>> {
    type LoweredKey = (TransferPrices, Arc<Program>);
    static LOWERED: LazyLock<Cache<LoweredKey, Arc<LoweredProgram>>> =
        LazyLock::new(|| Cache::new(MAX_LOWERED_EQUATIONS));
    let key = (per_byte.clone(), program.clone());
    if let Some(known) = LOWERED.get(&key) {
        return Ok(known);
    }
    let (made, weight) = (lower(program, per_byte)?, PROGRAM_OVERHEAD_EQUATIONS + program.num_equations());
    Ok(LOWERED.put(key, Arc::new(made), weight))
}

/// Places every value, with results sharded over full mesh axes only.
///
/// `wanted` requests placements of results. Missing or `None` entries are placed as propagated.
pub(crate) fn place(program: &Program, requested: &[Option<Placement>]) -> Result<Program> {
    verify::check(program)?;
    if cfg!(debug_assertions) {
        verify::typing_rules(program)?;
    }
    let mut requested = requested.to_vec();
    requested.resize(program.outputs.len(), None);
    let program = &dce(&without_rules(program));
    let mut placed = propagate::propagate(program, &requested)?;
    // results are sharded over full axes: a sharding propagated over sub-axes is truncated, and
    // propagation runs again
    let mut again = false;
    for (ty, (out, expected)) in placed.output_types().iter().zip(placed.outputs.iter().zip(&mut requested)) {
        let crate::ir::program::Input::Var(v) = out else { continue };
        let (Some(mesh), Some(at)) = (&ty.mesh, &placed.vars[v.index()].placement) else { continue };
        if spec_of(mesh, at).is_none() {
            *expected = Some(truncate_to_axes(mesh, at));
            again = true;
        }
    }
    if again {
        placed = propagate::propagate(program, &requested)?;
    }
    Ok(placed)
}

/// Runs the whole pipeline.
fn compile(
    program: &Arc<Program>,
    donated: &[bool],
    engine: EngineConfig,
    per_byte: TransferPrices,
) -> Result<CompiledProgram> {
    let staged = lower_cached(program, per_byte)?;
    #[cfg(feature = "xla")]
    crate::xla::engine::register();
    Ok(CompiledProgram {
        exe: engine::compile(engine.kind, staged.compile_request(donated, engine))?,
        results: staged.results.clone(),
    })
}

/// Compiles operations outside of `jit`. Operations that XLA does not support run on the lockstep
/// engine.
fn compile_eager(program: &Arc<Program>, engine: EngineConfig) -> Result<CompiledProgram> {
    let compiled = |engine| compile(program, &[], engine, TransferPrices::default());
    match compiled(engine) {
        Err(e)
            if engine.kind == EngineKind::Xla
                && e.kind() == ErrorKind::Unsupported
                && process_devices().is_none() =>
        {
            compiled(EngineConfig { kind: EngineKind::Lockstep, ..engine })
        }
        done => done,
    }
}

impl LoweredProgram {
    /// Returns the request for an engine to compile this program. `donated` marks the inputs that
    /// may be overwritten; missing entries are false.
    pub(crate) fn compile_request<'a>(
        &'a self,
        donated: &'a [bool],
        config: EngineConfig,
    ) -> engine::CompileRequest<'a> {
        let flush_subnormals = config.flush_subnormals;
        let Partitioned { program: spmd, collectives } = &self.partitioned;
        engine::CompileRequest {
            placed: &self.program,
            spmd,
            collectives,
            donated,
            flush_subnormals,
            depth: 0,
        }
    }
}

/// The maximum total weight of cached programs, in equations.
pub(crate) const MAX_CACHED_EQUATIONS: usize = 1 << 15;
/// The maximum total weight of programs that are kept to be compiled again, in equations.
const MAX_LOWERED_EQUATIONS: usize = 1 << 10;
/// The fixed weight of a cached program, in equations.
pub(crate) const PROGRAM_OVERHEAD_EQUATIONS: usize = 8;

/// Compiles the program, or returns the executable that was compiled for an equal program before.
///
/// Closures are traced at every call, since a captured array may be concrete in one call and traced
/// in the next. Concrete captured arrays are inputs of the program, so all iterations of a Rust
/// loop trace equal programs.
pub(crate) fn compile_cached(
    program: Arc<Program>,
    donated: &[bool],
    engine: EngineConfig,
    per_byte: TransferPrices,
) -> Result<Arc<CompiledProgram>> {
    get_or_compile(program, donated, (engine, per_byte), false)
}

/// Compiles operations outside of `jit`, with the cache of [`compile_cached`].
pub(crate) fn compile_eager_cached(program: Program, engine: EngineConfig) -> Result<Arc<CompiledProgram>> {
    get_or_compile(
        Arc::new(program),
        &[],
        (engine, TransferPrices::default()),
        engine.kind == EngineKind::Xla,
    )
}

/// Looks the program up in the cache, or compiles it.
/// The engine with its options, and the cost per byte, are part of the key.
///
/// Programs that several processes run together have a cache of their own. All of these processes
/// compile together, so they must evict the same programs, whatever each of them runs by itself.
fn get_or_compile(
    program: Arc<Program>,
    donated: &[bool],
    (engine, per_byte): (EngineConfig, TransferPrices),
    at_once: bool,
) -> Result<Arc<CompiledProgram>> {
    type ProgramKey = (EngineConfig, TransferPrices, bool, Box<[bool]>, Arc<Program>);
    type Programs = LazyLock<Cache<ProgramKey, Arc<CompiledProgram>>>;
    static PROGRAMS: Programs = LazyLock::new(|| Cache::new(MAX_CACHED_EQUATIONS));
    static SHARED_PROGRAMS: Programs = LazyLock::new(|| Cache::new(MAX_CACHED_EQUATIONS));
    let is_shared = engine::is_run_by_processes(program.mesh.as_ref());
    let programs = if is_shared { &SHARED_PROGRAMS } else { &PROGRAMS };
    // the key has the flags of the inputs up to the last donated one
    let given = donated.iter().rposition(|d| *d).map_or(0, |k| k + 1);
    let key = (engine, per_byte.clone(), at_once, donated[..given].into(), program);
    if let Some(known) = programs.get(&key) {
        return Ok(known);
    }
    let program = &key.4;
    let made =
        if at_once { compile_eager(program, engine) } else { compile(program, donated, engine, per_byte) };
    let (ready, weight) = (Arc::new(made?), PROGRAM_OVERHEAD_EQUATIONS + program.num_equations());
    Ok(programs.put(key, ready, weight))
}

impl CompiledProgram {
    /// Runs the program outside of device threads, and returns its first result.
    pub(crate) fn call_one(&self, args: &mut [ArrayData]) -> Result<Array, Failure> {
        Ok(Array::with_placed_type(self.exe.call_one(args)?, self.results[0].clone()))
    }
    /// Runs the program and returns its results.
    pub(crate) fn call(&self, args: &mut [ArrayData]) -> Result<Vec<Array>, Failure> {
        reject_in_device_code()?;
        Ok(self.arrays(self.exe.call(args)?))
    }
    /// Runs the program and returns its results with a timeline of the run.
    pub(crate) fn profile(&self, args: &mut [ArrayData]) -> Result<(Vec<Array>, Timeline), Failure> {
        reject_in_device_code()?;
        let (slabs, timeline) = self.exe.profile(args)?;
        #[cfg(feature = "tracing")]
        timeline.emit_events();
        Ok((self.arrays(slabs), timeline))
    }
    fn arrays(&self, slabs: Vec<ArrayData>) -> Vec<Array> {
        let results = slabs.into_iter().zip(&self.results);
        results.map(|(slab, placed)| Array::with_placed_type(slab, placed.clone())).collect()
    }
}

fn placed_result_type(program: &Program, out: &crate::ir::program::Input) -> PlacedType {
    let ty = program.input_type(out);
    let at = match out {
        crate::ir::program::Input::Var(v) => program.vars[v.index()].placement.as_ref(),
        crate::ir::program::Input::Lit(_) => None,
    };
    let sharding = ty.mesh.clone().map(|mesh| {
        let spec =
            at.and_then(|at| spec_of(&mesh, at)).map_or(ty.spec, |spec| with_unit_axes(&mesh, spec, ty.spec));
        // a placement does not have the reduced axes: take them from the type
        let spec = spec.reduced(ty.spec.reduced_axes());
        Sharding { mesh, spec }
    });
    PlacedType { ty, sharding }
}

/// Returns the spec that equals this placement; `None` if it splits over sub-axes.
pub(crate) fn spec_of(mesh: &Mesh, at: &Placement) -> Option<Spec> {
    let dims = at.dims.iter().map(|d| sub_axes::full_axes(mesh, d)).collect::<Option<Vec<_>>>()?;
    let partial = sub_axes::full_axes(mesh, &at.partial)?;
    Some(Spec::from_dims(dims).unreduced(partial).in_order(mesh))
}

/// Returns the spec with the size-1 axes that the type names, which sub-axes do not represent.
fn with_unit_axes(mesh: &Mesh, spec: Spec, ty: Spec) -> Spec {
    let dims = spec.dims().iter().zip(ty.padded(spec.dims().len()).dims()).map(|(axes, typed)| {
        let held: Vec<Axis> = typed.iter().filter(|a| mesh.extent(*a) > 1).collect();
        let Some(more) = axes.as_slice().strip_prefix(&held[..]) else { return axes.clone() };
        typed.iter().chain(more.iter().copied()).collect()
    });
    Spec::from_dims(dims.collect()).unreduced(ty.unreduced_axes()).in_order(mesh)
}

/// Returns the placement with each dimension truncated to full axes.
fn truncate_to_axes(mesh: &Mesh, at: &Placement) -> Placement {
    let dims = at.dims.iter().map(|d| {
        // the longest prefix of sub-axes that forms full axes
        let axes = (0..=d.len()).rev().find_map(|n| sub_axes::full_axes(mesh, &d[..n]));
        sub_axes::from_axes(mesh, axes.unwrap_or_default().iter())
    });
    Placement { dims: dims.collect(), partial: at.partial.clone() }
}
