//! Eager execution: compiles, caches and runs the operations outside of any trace.
//!
//! A single operation is a program of one equation. [`op_cache`] finds the programs that the thread
//! ran recently, by primitive and operand types; others come from the cache of all compiled
//! programs in [`pipeline`]. Several operations that run together are one program of that cache.

use super::device_code::{reject_in_device_code, runs_device_code};
use super::op_cache::{self, OpKey, OpProgram};
use super::pipeline::{self, CompiledProgram};
use super::{handle::input_placement, operand::ArrayOrLiteral};
use crate::api::trace::{Array, PlacedType, Repr};
use crate::core::{ArrayType, DType, Result};
use crate::exec::engine::{self, EngineConfig, EngineKind};
use crate::exec::runtime::{ArrayData, process_devices};
use crate::ir::program::{Builder, CallSite, Prim, Primitive, Priority, Program, Value};
use smallvec::SmallVec;
use std::sync::Arc;

/// Returns the engine that runs an operation on these operands, normally the process's default.
///
/// XLA takes longer to compile than most operations take to run, so it runs only operations whose
/// operands are in its memory and would otherwise be copied to the host.
fn engine_for(inputs: &[ArrayOrLiteral], call: CallSite<'_>) -> EngineConfig {
    let there = |i: &ArrayOrLiteral| match i {
        ArrayOrLiteral::Array(a) => match a.repr() {
            Repr::Concrete(c) => {
                c.array_data(call.op, call.location).is_ok_and(|slab| engine::on_plugin(&slab))
            }
            Repr::Traced(_) | Repr::Poisoned(_) => false,
        },
        ArrayOrLiteral::Lit(_) => false,
    };
    EngineConfig::eager(match EngineKind::default() {
        // if there are several processes, the mesh decides: see `engine::compile`
        EngineKind::Xla if process_devices().is_none() && !inputs.iter().any(there) => EngineKind::Lockstep,
        kind => kind,
    })
}

/// Runs a primitive with one result, if this thread ran it recently on operands of the same types.
///
/// Returns `None` in every other case; [`run`] handles those.
pub(super) fn run_recent(
    prim: &dyn Primitive,
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
) -> Option<Array> {
    let engine = EngineConfig::eager(EngineKind::default());
    // if XLA is the default, the engine depends on the memory that holds the operands
    if runs_device_code() || engine.kind == EngineKind::Xla {
        return None;
    }
    let known = op_cache::find(&OpKey { prim, engine, inputs })?;
    let mut data = operand_data(inputs, known.literals_are_inputs, call).ok()?;
    let made = known.program.call_one(&mut data);
    Some(made.unwrap_or_else(|e| Array::poisoned(call.locate(e.into()))))
}

/// Runs a primitive eagerly.
pub(crate) fn run(prim: Prim, inputs: &[ArrayOrLiteral], call: CallSite<'_>) -> Result<Vec<Array>> {
    reject_in_device_code()?;
    inputs.iter().try_for_each(ArrayOrLiteral::check_concrete)?;
    let engine = engine_for(inputs, call);
    let known = match op_cache::find(&OpKey { prim: &*prim, engine, inputs }) {
        Some(known) => known,
        None => compile_op(&prim, engine, inputs, call)?,
    };
    Ok(known.program.call(&mut operand_data(inputs, known.literals_are_inputs, call)?)?)
}

/// Compiles an operation, and keeps its program in the thread's cache.
///
/// The values of literals are built into the program, for the first few values. Further values are
/// inputs of one program, if the operation allows it.
fn compile_op(
    prim: &Prim,
    engine: EngineConfig,
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
) -> Result<OpProgram> {
    let key = OpKey { prim: &**prim, engine, inputs };
    let recorded = program(inputs, call, |b, values| b.apply_for(prim, values, call))?;
    if op_cache::has_many_variants(&key)
        && let Some(program) = with_literal_inputs(prim, &recorded, engine, inputs, call)
    {
        return Ok(op_cache::insert(&key, prim, OpProgram { program, literals_are_inputs: true }));
    }
    let program = pipeline::compile_eager_cached(recorded, engine)?;
    Ok(op_cache::insert(&key, prim, OpProgram { program, literals_are_inputs: false }))
}

/// Returns the program that takes this operation's literals as inputs.
/// `None` if its results would have other types than those of the recorded program.
///
/// An instruction computes the same bits for a constant and for a value in memory, so elementwise
/// operations may receive literals either way.
fn with_literal_inputs(
    prim: &Prim,
    recorded: &Program,
    engine: EngineConfig,
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
) -> Option<Arc<CompiledProgram>> {
    let arrays = || inputs.iter().filter_map(ArrayOrLiteral::concrete_type);
    let model = &arrays().find(|placed| placed.ty.rank() > 0)?.ty;
    if prim.priority() != Priority::Elementwise || !model.spec.unreduced_axes().is_empty() {
        return None;
    }
    let mut b = Builder::new();
    let operand = |i: &ArrayOrLiteral| match (i.literal(), i.concrete_type()) {
        (None, Some(placed)) => Some((input(&mut b, placed), false)),
        (Some(l), _) => Some((literal_input(&mut b, l.dtype, model), true)),
        (None, None) => None,
    };
    let values: Vec<(Value, bool)> = inputs.iter().map(operand).collect::<Option<_>>()?;
    let mut emit = || -> Result<Vec<Value>> {
        let b = b.set_location(Some(call.location));
        let spread = |(value, is_literal): &(Value, bool)| {
            if *is_literal { b.broadcast_like(value, model) } else { Ok(value.clone()) }
        };
        let values: Vec<Value> = values.iter().map(spread).collect::<Result<_>>()?;
        b.apply_for(prim, &values, call)
    };
    let out = emit().ok()?;
    let program = pipeline::compile_eager_cached(b.finish(&out), engine).ok()?;
    let expected = pipeline::placed_result_types(&pipeline::place(recorded, &[]).ok()?);
    (program.results == expected).then_some(program)
}

/// Adds a scalar input, on the mesh of `model`, for a literal of this element type.
fn literal_input(b: &mut Builder, dtype: DType, model: &ArrayType) -> Value {
    let ty = ArrayType { mesh: model.mesh.clone(), ..dtype.array_type([]) };
    b.input(ty, Some(input_placement(0, None)))
}

/// Runs the operations that `add` builds, as one program.
pub(crate) fn run_as_program(
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Array>> {
    reject_in_device_code()?;
    inputs.iter().try_for_each(ArrayOrLiteral::check_concrete)?;
    run_program(program(inputs, call, add)?, inputs, call)
}

/// Runs a program, whose inputs are the array operands.
pub(super) fn run_program(
    program: Program,
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
) -> Result<Vec<Array>> {
    let ready = pipeline::compile_eager_cached(program, engine_for(inputs, call))?;
    Ok(ready.call(&mut operand_data(inputs, false, call)?)?)
}

/// Builds the program of these operations, with one input for each array operand.
fn program(
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Program> {
    let mut b = Builder::new();
    let values: Vec<Value> = inputs
        .iter()
        .filter_map(|i| match i.literal() {
            Some(l) => Some(Value::literal(l.dtype, l.value)),
            None => i.concrete_type().map(|placed| input(&mut b, placed)),
        })
        .collect();
    let out = add(b.set_location(Some(call.location)), &values)?;
    Ok(b.finish(&out))
}

/// Adds a program input of this type and placement.
fn input(b: &mut Builder, placed: &PlacedType) -> Value {
    b.input(placed.ty.clone(), Some(input_placement(placed.ty.rank(), placed.sharding.as_ref())))
}

/// Returns the data of the array operands, and of the literals if these are inputs too.
fn operand_data(
    inputs: &[ArrayOrLiteral],
    literals_are_inputs: bool,
    call: CallSite<'_>,
) -> Result<SmallVec<[ArrayData; 4]>> {
    let mut data = SmallVec::new();
    for i in inputs {
        match (i.literal(), i) {
            (Some(l), _) if literals_are_inputs => data.push(ArrayData::from_scalar(l.dtype, l.value)?),
            (None, ArrayOrLiteral::Array(a)) => data.push(a.array_data(call.op, call.location)?),
            _ => {}
        }
    }
    Ok(data)
}
