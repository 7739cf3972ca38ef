//! Operations at once: a program of one equation, compiled once for each operation and types of its operands; and programs of
//! several, compiled once for each program.

use super::cache::Cache;
use super::core::Arg;
use super::stages::{self, Ready};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::engine::{self, EngineKind};
use crate::program::{Builder, Call, Input, Literal, Op, Placement, Prim, Priority, Program, Value};
use crate::runtime::{Slab, on_device_thread};
use crate::sharding::{Sharding, atoms};
use crate::trace::{Array, Repr, Traced};
use crate::types::{ArrayType, DType};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};

/// How an argument is placed, as programs say it.
pub(crate) fn placement(ty: &ArrayType, sharding: Option<&Sharding>) -> Placement {
    match sharding {
        None => Placement { dims: vec![atoms::Atoms::new(); ty.rank()], partial: atoms::Atoms::new() },
        Some(s) => Placement {
            dims: atoms::of_spec(&s.mesh, s.spec.padded(ty.rank())),
            partial: atoms::of_axes(&s.mesh, s.spec.unreduced_axes().iter()),
        },
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    op: Op,
    engine: EngineKind,
    operands: Vec<OperandKey>,
}
#[derive(Clone, PartialEq, Eq, Hash)]
enum OperandKey {
    Array(ArrayType, Option<Sharding>),
    Lit(Literal),
    /// Any number of the type.
    Number(DType),
}

/// So many numbers of one operation on arrays of these types are compiled into it. Those that come later are inputs, so that a number that
/// changes compiles nothing.
const NUMBERS: usize = 8;

/// An operation whose numbers change.
#[derive(Default)]
struct Changing {
    /// How many were compiled in.
    seen: AtomicUsize,
    /// The operation on arrays and numbers; `None` where its results would be of other types.
    ready: OnceLock<Option<Arc<Ready>>>,
}

/// Refuses operations on global arrays in code that runs on one device of many.
pub(crate) fn off_devices() -> Result<(), Fault> {
    if !on_device_thread() {
        return Ok(());
    }
    Err(Fault::new(ErrorKind::Trace, "an operation on global arrays in code that runs on one device")
        .help("compute with the ndarray views that the code is given, and with `Device`'s collectives")
        .help("or write the code as a `shard_map`: there arrays are the device's blocks"))
}

/// The number that a value of a trace is, if it is one: that belongs to no trace. Operations on others are recorded.
fn number_of(traced: &Traced) -> Result<Literal> {
    match traced.value.input {
        Input::Lit(l) => Ok(l),
        Input::Var(_) => Err(Fault::new(ErrorKind::Trace, "this value belongs to a program").into()),
    }
}

/// The engine that runs an operation on these: the process's default. XLA compiles for longer than most operations take, so that it runs
/// those only whose operands would be copied to the host else.
fn engine_for(inputs: &[Arg], call: Call<'_>) -> EngineKind {
    let there = |i: &Arg| match i {
        Arg::Array(a) => match a.repr() {
            Repr::Concrete(c) => c.slab(call.op, call.place).is_ok_and(|slab| engine::on_plugin(&slab)),
            Repr::Traced(_) | Repr::Poisoned(_) => false,
        },
        Arg::Lit(_) => false,
    };
    match EngineKind::default() {
        EngineKind::Xla if !inputs.iter().any(there) => EngineKind::Lockstep,
        kind => kind,
    }
}

/// Runs a primitive on numbers.
pub(crate) fn run(prim: Prim, inputs: &[Arg], call: Call<'_>) -> Result<Vec<Array>> {
    off_devices()?;
    static OPERATIONS: LazyLock<Cache<Key, Arc<Ready>>> = LazyLock::new(|| Cache::new(stages::KEPT));
    let engine = engine_for(inputs, call);
    let operands = inputs.iter().map(|i| match i {
        Arg::Lit(l) => Ok(OperandKey::Lit(*l)),
        Arg::Array(a) => match a.repr() {
            Repr::Concrete(c) => Ok(OperandKey::Array(c.ty.clone(), c.sharding.clone())),
            Repr::Traced(t) => number_of(t).map(OperandKey::Lit),
            Repr::Poisoned(e) => Err(e.clone()),
        },
    });
    let operands: Vec<_> = operands.collect::<Result<_>>()?;
    let key = Key { op: Op::Prim(prim.clone()), engine, operands };
    let ready = match OPERATIONS.get(&key) {
        Some(ready) => ready,
        None => {
            if let Some(ready) = changing(&prim, &key, inputs, call) {
                return run_ready(&ready, inputs, true, call);
            }
            let program = program(inputs, call, |b, values| b.emit_for(prim, values, call))?;
            let ready = stages::compile_at_once(&program, engine)?;
            OPERATIONS.put(key, Arc::new(ready), stages::WEIGHT + 1)
        }
    };
    run_ready(&ready, inputs, false, call)
}

/// The operation with its numbers as inputs, once many of them have been compiled in. An instruction computes the same bits of a constant and
/// of a value in memory, so that elementwise operations may be told numbers either way.
fn changing(prim: &Prim, key: &Key, inputs: &[Arg], call: Call<'_>) -> Option<Arc<Ready>> {
    static CHANGING: LazyLock<Cache<Key, Arc<Changing>>> = LazyLock::new(|| Cache::new(stages::KEPT));
    if prim.priority() != Priority::Elementwise {
        return None;
    }
    let model = key.operands.iter().find_map(|o| match o {
        OperandKey::Array(ty, _) if ty.rank() > 0 => Some(ty),
        _ => None,
    })?;
    let operands: Vec<_> = (key.operands.iter())
        .map(|o| match o {
            OperandKey::Lit(l) => OperandKey::Number(l.dtype),
            other => other.clone(),
        })
        .collect();
    if operands == key.operands || !model.spec.unreduced_axes().is_empty() {
        return None;
    }
    let any = Key { op: key.op.clone(), engine: key.engine, operands };
    let known = CHANGING.get(&any);
    let known = known.unwrap_or_else(|| CHANGING.put(any.clone(), Arc::default(), stages::WEIGHT + 1));
    if known.seen.fetch_add(1, Relaxed) < NUMBERS {
        return None;
    }
    let compile = || -> Result<Option<Arc<Ready>>> {
        let mut b = Builder::new();
        let values: Vec<(Value, bool)> = (any.operands.iter())
            .map(|o| match o {
                OperandKey::Array(ty, at) => (b.input(ty.clone(), Some(placement(ty, at.as_ref()))), false),
                OperandKey::Number(dtype) | OperandKey::Lit(Literal { dtype, .. }) => {
                    let ty = ArrayType { mesh: model.mesh.clone(), ..dtype.of([]) };
                    (b.input(ty.clone(), Some(placement(&ty, None))), true)
                }
            })
            .collect();
        let b_at = b.at(Some(call.place));
        let spread = |(value, number): &(Value, bool), b: &mut Builder| match number {
            true => b.broadcast_like(value, model),
            false => Ok(value.clone()),
        };
        let values: Vec<Value> = values.iter().map(|v| spread(v, b_at)).collect::<Result<_>>()?;
        let out = b_at.emit_for(prim.clone(), &values, call)?;
        let ready = stages::compile_at_once(&b.finish(&out), key.engine)?;
        let told = program(inputs, call, |b, values| b.emit_for(prim.clone(), values, call))?;
        let same = ready.results == stages::lower(&told, &[])?.results;
        Ok(same.then(|| Arc::new(ready)))
    };
    known.ready.get_or_init(|| compile().unwrap_or_default()).clone()
}

/// Runs operations on numbers, as one program.
pub(crate) fn run_all(
    inputs: &[Arg],
    call: Call<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Array>> {
    off_devices()?;
    let ready = stages::ready_at_once(program(inputs, call, add)?, engine_for(inputs, call))?;
    run_ready(&ready, inputs, false, call)
}

/// The program of these operations, which has an input for each array.
fn program(
    inputs: &[Arg],
    call: Call<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Program> {
    let mut b = Builder::new();
    let values: Vec<Value> = inputs
        .iter()
        .map(|i| match i {
            Arg::Lit(l) => Ok(Value::literal(l.dtype, l.value)),
            Arg::Array(a) => match a.repr() {
                Repr::Concrete(c) => Ok(b.input(c.ty.clone(), Some(placement(&c.ty, c.sharding.as_ref())))),
                Repr::Traced(t) => number_of(t).map(|l| Value::literal(l.dtype, l.value)),
                Repr::Poisoned(e) => Err(e.clone()),
            },
        })
        .collect::<Result<_>>()?;
    let out = add(b.at(Some(call.place)), &values)?;
    Ok(b.finish(&out))
}

/// Runs what was compiled, on the arrays among these, and on the numbers where these are inputs too.
fn run_ready(ready: &Ready, inputs: &[Arg], numbers: bool, call: Call<'_>) -> Result<Vec<Array>> {
    let mut slabs = Vec::with_capacity(inputs.len());
    for i in inputs {
        match i {
            Arg::Lit(l) if numbers => slabs.push(Slab::number(l.dtype, l.value)?),
            Arg::Lit(_) => {}
            Arg::Array(a) => match a.repr() {
                Repr::Concrete(c) => slabs.push(c.slab(call.op, call.place)?),
                Repr::Traced(t) if numbers => {
                    let l = number_of(t)?;
                    slabs.push(Slab::number(l.dtype, l.value)?);
                }
                Repr::Traced(_) | Repr::Poisoned(_) => {}
            },
        }
    }
    Ok(ready.call(&mut slabs)?)
}
