//! Eager execution: compiles, caches and runs the operations outside of any trace.
//!
//! A single operation is a program of one equation, compiled once for each combination of operation
//! and operand types. Several operations that run together are one program, compiled once for all
//! equal programs.

use super::cache::Cache;
use super::op_cache::{self, EagerOperand, OpKey, OperandKey, eager_operand};
use super::pipeline::{self, CompiledProgram};
use super::record::{ArrayOrLiteral, tracing};
use crate::api::trace::{Array, PlacedType, Repr};
use crate::core::diagnostic::{ErrorKind, Fault, Result};
use crate::core::sharding::{Sharding, sub_axes};
use crate::core::types::ArrayType;
use crate::exec::engine;
use crate::exec::engine::{EngineConfig, EngineKind};
use crate::exec::runtime::{ArrayData, on_device_thread};
use crate::ir::program::{Builder, CallSite, Literal, Placement, Prim, Primitive, Priority, Program, Value};
use crate::kernels::row_kernel::in_row_kernel;
use crate::partition::TransferPrices;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};

/// Returns the placement of an argument of this type and sharding.
pub(crate) fn placement(ty: &ArrayType, sharding: Option<&Sharding>) -> Placement {
    match sharding {
        None => {
            Placement { dims: vec![sub_axes::SubAxes::new(); ty.rank()], partial: sub_axes::SubAxes::new() }
        }
        Some(s) => Placement {
            dims: sub_axes::from_spec(&s.mesh, s.spec.padded(ty.rank())),
            partial: sub_axes::from_axes(&s.mesh, s.spec.unreduced_axes().iter()),
        },
    }
}

/// The maximum number of literals of one operation that are compiled into separate programs.
///
/// Later literals are inputs of a shared program, so that a scalar operand that varies between
/// calls does not compile a new program each time.
const MAX_LITERAL_VARIANTS: usize = 8;

/// The programs of one operation on given array types, called with varying literals.
#[derive(Default)]
struct LiteralVariants {
    /// The number of programs compiled with a literal built in.
    num_compiled: AtomicUsize,
    /// The program that takes the literals as inputs. `None` if its results would have other types.
    generic_program: OnceLock<Option<Arc<CompiledProgram>>>,
}

/// Returns true if the calling thread runs code of one device: device code or a row kernel.
pub(crate) fn runs_device_code() -> bool {
    on_device_thread() || in_row_kernel()
}

/// Returns an error in device code and in row kernels, which have no global arrays.
pub(crate) fn reject_in_device_code() -> Result<(), Fault> {
    if in_row_kernel() {
        return Err(Fault::new(ErrorKind::Trace, "an operation on arrays in a kernel")
            .help("compute with the views that the kernel is given: `ins[0].view::<f32>()`")
            .help("or apply operations on arrays to the operands or the results, outside of the kernel"));
    }
    if !on_device_thread() {
        return Ok(());
    }
    Err(Fault::new(ErrorKind::Trace, "an operation on global arrays in code that runs on one device")
        .help("compute with the ndarray views that the code is given, and with `Device`'s collectives")
        .help("or write the code as a `shard_map`: there arrays are the device's blocks"))
}

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
        EngineKind::Xla if !inputs.iter().any(there) => EngineKind::Lockstep,
        kind => kind,
    })
}

/// Runs a primitive with one result, if this thread ran it recently on operands of the same types.
///
/// Returns `None` in every other case, including inside a trace; [`run`] handles those.
pub(super) fn run_recent(
    prim: &dyn Primitive,
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
) -> Option<Array> {
    if tracing() || runs_device_code() {
        return None;
    }
    let engine = EngineConfig::eager(EngineKind::default());
    // if XLA is the default, the engine depends on the memory that holds the operands
    let (ready, numbers) = op_cache::find(prim, engine, inputs).filter(|_| engine.kind != EngineKind::Xla)?;
    let mut slabs = operand_data(inputs, numbers, call).ok()?;
    let made = ready.call_one(&mut slabs);
    Some(made.unwrap_or_else(|e| Array::poisoned(call.locate(e.into()))))
}

/// Runs a primitive eagerly.
pub(crate) fn run(prim: Prim, inputs: &[ArrayOrLiteral], call: CallSite<'_>) -> Result<Vec<Array>> {
    reject_in_device_code()?;
    let engine = engine_for(inputs, call);
    if let Some((ready, numbers)) = op_cache::find(&*prim, engine, inputs) {
        return run_compiled(&ready, inputs, numbers, call);
    }
    static OPERATIONS: LazyLock<Cache<OpKey, Arc<CompiledProgram>>> =
        LazyLock::new(|| Cache::new(pipeline::MAX_CACHED_EQUATIONS));
    let key = OpKey::new(&prim, engine, inputs)?;
    let (key, ready, numbers) = match OPERATIONS.get(&key) {
        Some(ready) => (key, ready, false),
        None => match with_literal_inputs(&prim, &key, inputs, call) {
            Some((any, ready)) => (any, ready, true),
            None => {
                let program = program(inputs, call, |b, values| b.emit_for(prim.clone(), values, call))?;
                let ready = Arc::new(pipeline::compile_eager(&program, engine)?);
                let ready = OPERATIONS.put(key.clone(), ready, pipeline::PROGRAM_OVERHEAD_EQUATIONS + 1);
                (key, ready, false)
            }
        },
    };
    op_cache::insert(&*prim, key, inputs, &ready, numbers);
    run_compiled(&ready, inputs, numbers, call)
}

/// Returns the program that takes this operation's literals as inputs, once enough literals have
/// been compiled in.
///
/// An instruction computes the same bits for a constant and for a value in memory, so elementwise
/// operations may receive literals either way.
fn with_literal_inputs(
    prim: &Prim,
    key: &OpKey,
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
) -> Option<(OpKey, Arc<CompiledProgram>)> {
    static LITERAL_VARIANTS: LazyLock<Cache<OpKey, Arc<LiteralVariants>>> =
        LazyLock::new(|| Cache::new(pipeline::MAX_CACHED_EQUATIONS));
    if prim.priority() != Priority::Elementwise {
        return None;
    }
    let model = key.operands.iter().find_map(|o| match o {
        OperandKey::Array(placed) if placed.ty.rank() > 0 => Some(&placed.ty),
        _ => None,
    })?;
    let operands: Vec<_> = (key.operands.iter())
        .map(|o| match o {
            OperandKey::Lit(l) => OperandKey::AnyLiteral(l.dtype),
            other => other.clone(),
        })
        .collect();
    if operands == key.operands || !model.spec.unreduced_axes().is_empty() {
        return None;
    }
    let any = OpKey { op: key.op.clone(), engine: key.engine, operands };
    let known = LITERAL_VARIANTS.get(&any);
    let known = known.unwrap_or_else(|| {
        LITERAL_VARIANTS.put(any.clone(), Arc::default(), pipeline::PROGRAM_OVERHEAD_EQUATIONS + 1)
    });
    if known.num_compiled.fetch_add(1, Relaxed) < MAX_LITERAL_VARIANTS {
        return None;
    }
    let compile = || -> Result<Option<Arc<CompiledProgram>>> {
        let mut b = Builder::new();
        let values: Vec<(Value, bool)> = (any.operands.iter())
            .map(|o| match o {
                OperandKey::Array(placed) => (input(&mut b, placed), false),
                OperandKey::AnyLiteral(dtype) | OperandKey::Lit(Literal { dtype, .. }) => {
                    let ty = ArrayType { mesh: model.mesh.clone(), ..dtype.array_type([]) };
                    (b.input(ty.clone(), Some(placement(&ty, None))), true)
                }
            })
            .collect();
        let b_at = b.set_location(Some(call.location));
        let spread = |(value, number): &(Value, bool), b: &mut Builder| match number {
            true => b.broadcast_like(value, model),
            false => Ok(value.clone()),
        };
        let values: Vec<Value> = values.iter().map(|v| spread(v, b_at)).collect::<Result<_>>()?;
        let out = b_at.emit_for(prim.clone(), &values, call)?;
        let ready = pipeline::compile_eager(&b.finish(&out), key.engine)?;
        let recorded = program(inputs, call, |b, values| b.emit_for(prim.clone(), values, call))?;
        let same = ready.results == pipeline::lower(&recorded, TransferPrices::default())?.results;
        Ok(same.then(|| Arc::new(ready)))
    };
    let ready = known.generic_program.get_or_init(|| compile().unwrap_or_default()).clone()?;
    Some((any, ready))
}

/// Runs the operations that `add` builds, as one program.
pub(crate) fn run_as_program(
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Array>> {
    reject_in_device_code()?;
    let ready = pipeline::compile_eager_cached(program(inputs, call, add)?, engine_for(inputs, call))?;
    run_compiled(&ready, inputs, false, call)
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
        .map(|i| {
            Ok(match eager_operand(i)? {
                EagerOperand::Lit(l) => Value::literal(l.dtype, l.value),
                EagerOperand::Array(placed) => input(&mut b, placed),
            })
        })
        .collect::<Result<_>>()?;
    let out = add(b.set_location(Some(call.location)), &values)?;
    Ok(b.finish(&out))
}

/// Adds a program input of this type and placement.
fn input(b: &mut Builder, placed: &PlacedType) -> Value {
    b.input(placed.ty.clone(), Some(placement(&placed.ty, placed.sharding.as_ref())))
}

/// Runs a compiled program on the array operands, and on the literals if these are inputs too.
fn run_compiled(
    ready: &CompiledProgram,
    inputs: &[ArrayOrLiteral],
    numbers: bool,
    call: CallSite<'_>,
) -> Result<Vec<Array>> {
    Ok(ready.call(&mut operand_data(inputs, numbers, call)?)?)
}

/// Returns the data of the array operands, and of the literals if `numbers` is true.
fn operand_data(
    inputs: &[ArrayOrLiteral],
    numbers: bool,
    call: CallSite<'_>,
) -> Result<SmallVec<[ArrayData; 4]>> {
    let mut slabs = SmallVec::new();
    for i in inputs {
        match (i, eager_operand(i)?) {
            (_, EagerOperand::Lit(l)) if numbers => slabs.push(ArrayData::from_scalar(l.dtype, l.value)?),
            (ArrayOrLiteral::Array(a), EagerOperand::Array(..)) => {
                slabs.push(a.array_data(call.op, call.location)?)
            }
            _ => {}
        }
    }
    Ok(slabs)
}
