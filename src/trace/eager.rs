//! Operations at once: a program of one equation, compiled once for each operation and types of its operands; and programs of
//! several, compiled once for each program.

use super::cache::Cache;
use super::core::Arg;
use super::stages::{self, Ready};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::engine::EngineKind;
use crate::program::{Builder, Call, Input, Literal, Op, Placement, Prim, Program, Value};
use crate::runtime::on_device_thread;
use crate::sharding::{Sharding, atoms};
use crate::trace::{Array, Repr, Traced};
use crate::types::ArrayType;
use std::sync::{Arc, LazyLock};

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

/// Runs a primitive on numbers.
pub(crate) fn run(prim: Prim, inputs: &[Arg], call: Call<'_>) -> Result<Vec<Array>> {
    off_devices()?;
    static OPERATIONS: LazyLock<Cache<Key, Arc<Ready>>> = LazyLock::new(|| Cache::new(stages::KEPT));
    let engine = EngineKind::default();
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
            let program = program(inputs, call, |b, values| b.emit_for(prim, values, call))?;
            OPERATIONS.put(key, Arc::new(stages::compile(&program, &[], engine)?), stages::WEIGHT + 1)
        }
    };
    run_ready(&ready, inputs, call)
}

/// Runs operations on numbers, as one program.
pub(crate) fn run_all(
    inputs: &[Arg],
    call: Call<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Array>> {
    off_devices()?;
    let ready = stages::ready(program(inputs, call, add)?, &[], EngineKind::default())?;
    run_ready(&ready, inputs, call)
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

fn run_ready(ready: &Ready, inputs: &[Arg], call: Call<'_>) -> Result<Vec<Array>> {
    let mut slabs = Vec::with_capacity(inputs.len());
    for i in inputs {
        if let Arg::Array(a) = i
            && let Repr::Concrete(c) = a.repr()
        {
            slabs.push(c.slab(call.op, call.place)?);
        }
    }
    Ok(ready.call(&mut slabs)?)
}
