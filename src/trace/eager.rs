//! Operations at once: a program of one equation, compiled once for each operation and types of its operands; and programs of
//! several, compiled once for each program.

use super::cache::Cache;
use super::core::{Arg, tracing};
use super::recent::{self, Asked, Key, OperandKey, asked};
use super::stages::{self, Ready};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::engine::{self, EngineKind};
use crate::partition::PerByte;
use crate::program::{Builder, Call, Literal, Placement, Prim, Primitive, Priority, Program, Value};
use crate::runtime::{Slab, on_device_thread};
use crate::sharding::{Sharding, atoms};
use crate::trace::{Array, Placed, Repr};
use crate::types::ArrayType;
use smallvec::SmallVec;
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

/// Runs a primitive of one result on numbers, if this thread ran it lately on operands like these, outside of any trace. Whatever is not as
/// usual is left to [`run`].
pub(super) fn again(prim: &dyn Primitive, inputs: &[Arg], call: Call<'_>) -> Option<Array> {
    if tracing() || on_device_thread() {
        return None;
    }
    let engine = EngineKind::default();
    // XLA's depends on where the operands are
    let (ready, numbers) = recent::find(prim, engine, inputs).filter(|_| engine != EngineKind::Xla)?;
    let mut slabs = slabs(inputs, numbers, call).ok()?;
    let made = ready.one(&mut slabs);
    Some(made.unwrap_or_else(|e| Array::poisoned(call.locate(e.into()))))
}

/// Runs a primitive on numbers.
pub(crate) fn run(prim: Prim, inputs: &[Arg], call: Call<'_>) -> Result<Vec<Array>> {
    off_devices()?;
    let engine = engine_for(inputs, call);
    if let Some((ready, numbers)) = recent::find(&*prim, engine, inputs) {
        return run_ready(&ready, inputs, numbers, call);
    }
    static OPERATIONS: LazyLock<Cache<Key, Arc<Ready>>> = LazyLock::new(|| Cache::new(stages::KEPT));
    let key = Key::of(&prim, engine, inputs)?;
    let (key, ready, numbers) = match OPERATIONS.get(&key) {
        Some(ready) => (key, ready, false),
        None => match changing(&prim, &key, inputs, call) {
            Some((any, ready)) => (any, ready, true),
            None => {
                let program = program(inputs, call, |b, values| b.emit_for(prim.clone(), values, call))?;
                let ready = Arc::new(stages::compile_at_once(&program, engine)?);
                let ready = OPERATIONS.put(key.clone(), ready, stages::WEIGHT + 1);
                (key, ready, false)
            }
        },
    };
    recent::note(&*prim, key, inputs, &ready, numbers);
    run_ready(&ready, inputs, numbers, call)
}

/// The operation with its numbers as inputs, once many of them have been compiled in. An instruction computes the same bits of a constant and
/// of a value in memory, so that elementwise operations may be told numbers either way.
fn changing(prim: &Prim, key: &Key, inputs: &[Arg], call: Call<'_>) -> Option<(Key, Arc<Ready>)> {
    static CHANGING: LazyLock<Cache<Key, Arc<Changing>>> = LazyLock::new(|| Cache::new(stages::KEPT));
    if prim.priority() != Priority::Elementwise {
        return None;
    }
    let model = key.operands.iter().find_map(|o| match o {
        OperandKey::Array(placed) if placed.ty.rank() > 0 => Some(&placed.ty),
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
                OperandKey::Array(placed) => (input(&mut b, placed), false),
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
        let same = ready.results == stages::lower(&told, PerByte::default())?.results;
        Ok(same.then(|| Arc::new(ready)))
    };
    let ready = known.ready.get_or_init(|| compile().unwrap_or_default()).clone()?;
    Some((any, ready))
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
        .map(|i| {
            Ok(match asked(i)? {
                Asked::Lit(l) => Value::literal(l.dtype, l.value),
                Asked::Array(placed) => input(&mut b, placed),
            })
        })
        .collect::<Result<_>>()?;
    let out = add(b.at(Some(call.place)), &values)?;
    Ok(b.finish(&out))
}

/// An input of a program that is such an array.
fn input(b: &mut Builder, placed: &Placed) -> Value {
    b.input(placed.ty.clone(), Some(placement(&placed.ty, placed.sharding.as_ref())))
}

/// Runs what was compiled, on the arrays among these, and on the numbers where these are inputs too.
fn run_ready(ready: &Ready, inputs: &[Arg], numbers: bool, call: Call<'_>) -> Result<Vec<Array>> {
    Ok(ready.call(&mut slabs(inputs, numbers, call)?)?)
}

/// The values of the arrays among these, and of the numbers where these are inputs too.
fn slabs(inputs: &[Arg], numbers: bool, call: Call<'_>) -> Result<SmallVec<[Slab; 4]>> {
    let mut slabs = SmallVec::new();
    for i in inputs {
        match (i, asked(i)?) {
            (_, Asked::Lit(l)) if numbers => slabs.push(Slab::number(l.dtype, l.value)?),
            (Arg::Array(a), Asked::Array(..)) => slabs.push(a.slab(call.op, call.place)?),
            _ => {}
        }
    }
    Ok(slabs)
}
