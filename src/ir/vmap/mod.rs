//! Turns a program for one example into a program for a batch of examples (vectorization).
//!
//! Every value that depends on a mapped input gets a batch dimension in front; all other values
//! stay as they are. Each primitive has a rule that applies it to the whole batch
//! ([`Primitive::vmap`](crate::ir::program::Primitive::vmap)): the batch becomes one more loop
//! in its `Factors`, which all mapped operands and all results share. This module does the work
//! that all primitives share: it adds the batch dimension to operands that need it, and moves the
//! batch dimension of results to the front.
//!
//! The batch dimension is sharded over the mesh axes that shard the mapped dimensions. Every
//! batched value is sharded over these axes, and no unbatched value may use them.

mod control;
mod custom;
#[cfg(test)]
mod tests;

use crate::core::{ArrayType, Axes, Error, Fault, Result, Spec};
use crate::ir::program::{
    BatchDim, BatchedOp, Builder, Env, Equation, FromLiteral, Input, Literal, Op, OperandBatching, Prim,
    Program, Value, VmapArgs, verify, with_inserted,
};
use crate::ir::{ops::shape::BroadcastInDim, ops::slicing::Concatenate};
use control::vmap_control;
use std::sync::Arc;

/// A value of the batched program.
#[derive(Clone, Debug)]
pub struct BatchedValue {
    /// The value; its first dimension is the batch dimension if `mapped` is true.
    pub value: Value,
    /// If true, the value is batched; if false, all examples share it.
    pub mapped: bool,
}

/// Records `program` in `b` for all examples and returns its results.
///
/// Only some of the inputs need to be batched.
pub fn inline_vmap(
    b: &mut Builder,
    program: &Program,
    inputs: &[BatchedValue],
    batch_dim: &BatchDim,
) -> Result<Vec<BatchedValue>> {
    let mut env = Env::new(program, inputs.iter().cloned());
    let outer = b.context().clone();
    for e in &program.equations {
        b.set_context(outer.of(e));
        let results = vmap_equation(b, program, e, &env.get_all(&e.inputs), batch_dim)?;
        env.bind(&e.outputs, results);
    }
    b.set_context(outer);
    Ok(env.get_all(&program.outputs))
}

/// Returns the value with a batch dimension; a value without one is repeated.
pub fn spread_over_batch(b: &mut Builder, item: &BatchedValue, batch_dim: &BatchDim) -> Result<Value> {
    if item.mapped { Ok(item.value.clone()) } else { repeat_for_batch(b, &item.value, batch_dim) }
}

impl FromLiteral for BatchedValue {
    fn from_literal(l: Literal) -> BatchedValue {
        BatchedValue { value: Value::from_literal(l), mapped: false }
    }
}

fn vmap_equation(
    b: &mut Builder,
    program: &Program,
    e: &Equation,
    items: &[BatchedValue],
    examples: &BatchDim,
) -> Result<Vec<BatchedValue>> {
    let types: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
    let values: Vec<Value> = items.iter().map(|i| i.value.clone()).collect();
    let names: &str = match &e.op {
        Op::Prim(prim) => prim.name(),
        Op::Control(c) => c.name(),
    };
    // check the values that all examples share
    let same = items.iter().filter(|i| !i.mapped).map(|i| &i.value.ty);
    let alike = items.iter().all(|i| !i.mapped);
    for ty in same.chain(types.iter().filter(|_| alike)) {
        check_unmapped(ty, examples).map_err(|fault| b.error(fault, names, &values))?;
    }
    if alike {
        let results = b.push(e.op.clone(), &values, types);
        b.name_last(e.name.clone());
        return Ok(results.into_iter().map(|value| BatchedValue { value, mapped: false }).collect());
    }
    match &e.op {
        Op::Prim(prim) => vmap_primitive(b, prim, program, e, items, &types, examples),
        Op::Control(c) => {
            let op = VmappedControl { operands: items, result_types: &types, batch_dim: examples };
            vmap_control(b, c, op)
        }
    }
}

/// Returns an error if an unbatched value is sharded over the mesh axes of the batch.
pub fn check_unmapped(ty: &ArrayType, batch_dim: &BatchDim) -> Result<(), Fault> {
    let Some(axis) = ty.spec.all_axes().find(|a| batch_dim.axes.contains(*a)) else { return Ok(()) };
    let rest = ty.spec.filter_axes(|a| !batch_dim.axes.contains(a));
    Err(fault!(
        Sharding,
        "{ty} is the same for all examples and names {axis}, over which the examples are split"
    )
    .help(format!("move it first: `.reshard({rest})`"))
    .help("or split the examples over another axis"))
}

fn vmap_primitive(
    b: &mut Builder,
    prim: &Prim,
    program: &Program,
    e: &Equation,
    items: &[BatchedValue],
    types: &[ArrayType],
    examples: &BatchDim,
) -> Result<Vec<BatchedValue>> {
    let operands: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
    let mapped: Vec<bool> = items.iter().map(|i| i.mapped).collect();
    let batch = VmapArgs { batch_dim: examples, mapped: &mapped, operands: &operands, results: types };
    let BatchedOp { prim: all, operand_batching: align, out_dim: at } = prim.vmap(&batch);
    let inputs = align_operands(b, align, items, &batch)?;
    let values = b.emit(all, &inputs)?;
    verify::vmap(b, prim.as_ref(), &values, at, &batch)?;
    let mut results = Vec::with_capacity(types.len());
    for (value, ty) in values.into_iter().zip(types) {
        let order: Vec<usize> = std::iter::once(at).chain((0..=ty.rank()).filter(|d| *d != at)).collect();
        let value = b.transpose(&value, &order)?;
        let value = b.reshard_to(&value, &examples.ty(ty))?;
        results.push(BatchedValue { value, mapped: true });
    }
    Ok(results)
}

/// Adapts the operands to the batched operation, according to its `operand_batching`.
fn align_operands(
    b: &mut Builder,
    align: OperandBatching,
    items: &[BatchedValue],
    batch: &VmapArgs<'_>,
) -> Result<Vec<Value>> {
    let result = batch.results.first().map_or(0, ArrayType::rank);
    if let OperandBatching::IndexVectors(first) = align {
        let mut columns = Vec::with_capacity(items.len());
        for item in &items[first..] {
            let each = if item.mapped {
                item.value.clone()
            } else {
                repeat_for_batch(b, &item.value, batch.batch_dim)?
            };
            columns.push(b.expand_dims(&each, &[1])?);
        }
        let vectors = match &columns[..] {
            [one] => one.clone(),
            _ => b.emit1(Arc::new(Concatenate { dimension: 1 }), &columns)?,
        };
        return Ok(items[..first].iter().map(|item| item.value.clone()).chain([vectors]).collect());
    }
    let mut values = Vec::with_capacity(items.len());
    for (k, (item, ty)) in items.iter().zip(batch.operands).enumerate() {
        let value = &item.value;
        values.push(match align {
            OperandBatching::WithIndices(n) => {
                let needs = k < n || ty.rank() > 0 && batch.mapped[n..].contains(&true);
                if needs && !item.mapped {
                    repeat_for_batch(b, value, batch.batch_dim)?
                } else {
                    value.clone()
                }
            }
            OperandBatching::Unchanged | OperandBatching::IndexVectors(_) => value.clone(),
            OperandBatching::Broadcast if item.mapped => {
                let new: Vec<usize> = (1..=result.saturating_sub(ty.rank())).collect();
                b.expand_dims(value, &new)?
            }
            OperandBatching::Broadcast => value.clone(),
            OperandBatching::AllBatched { .. } if item.mapped && ty.rank() < result => {
                broadcast_along_batch(b, value, &batch.batch_dim.ty(&batch.results[0]))?
            }
            OperandBatching::AllBatched { keep_literals: numbers } => {
                let stays = item.mapped || ty.rank() < result || numbers && value.is_literal();
                if stays { value.clone() } else { repeat_for_batch(b, value, batch.batch_dim)? }
            }
        });
    }
    Ok(values)
}

/// Broadcasts one scalar per example to the shape and sharding of a value of type `like`.
fn broadcast_along_batch(b: &mut Builder, each: &Value, like: &ArrayType) -> Result<Value> {
    let spec = Spec::from_dims(like.spec.padded(like.rank()).dims().to_vec());
    b.broadcast_in_dim_to(each, &like.shape, &[0], spec)
}

/// Repeats an unbatched value along a new batch dimension.
fn repeat_for_batch(b: &mut Builder, value: &Value, batch_dim: &BatchDim) -> Result<Value> {
    let ty = batch_dim.ty(&value.ty);
    if let Input::Lit(l) = value.input {
        return b.full(&ty, l.value);
    }
    // place the value on the mesh of the batch, before it is split over the axes of that mesh
    let unsharded = ArrayType { spec: value.ty.spec, shape: value.ty.shape.clone(), ..ty.clone() };
    let value = if value.ty.mesh.is_none() && !batch_dim.axes.is_empty() {
        match &unsharded.mesh {
            Some(mesh) => b.reshard(value, mesh, unsharded.spec)?,
            None => value.clone(),
        }
    } else {
        value.clone()
    };
    let broadcast_dimensions: Vec<usize> = (1..ty.rank()).collect();
    let make = |out| {
        let (shape, broadcast_dimensions) = (ty.shape.clone(), broadcast_dimensions.clone());
        Arc::new(BroadcastInDim { shape, broadcast_dimensions, out_sharding: out }) as Prim
    };
    b.emit_with_sharding(&make, std::slice::from_ref(&value), ty.spec)
}

/// Returns the batched program of a control body, and which of its results are batched.
///
/// `mapped` marks the batched inputs. `wanted` marks results that must be batched.
fn vmap_program(
    program: &Program,
    mapped: &[bool],
    wanted: &[bool],
    examples: &BatchDim,
) -> Result<(Program, Vec<bool>), Error> {
    let mut b = Builder::new();
    if let Some(mesh) = program.mesh.as_ref().or(examples.mesh.as_ref()) {
        b.set_default_mesh(mesh);
    }
    let items: Vec<BatchedValue> = (program.inputs.iter().zip(mapped))
        .map(|(v, mapped)| {
            let ty = program.ty(*v);
            let ty = if *mapped { examples.ty(ty) } else { ty.clone() };
            BatchedValue { value: b.input(ty, None), mapped: *mapped }
        })
        .collect();
    let results = inline_vmap(&mut b, program, &items, examples)?;
    let has: Vec<bool> = results.iter().zip(wanted).map(|(r, w)| r.mapped || *w).collect();
    let mut outputs = Vec::with_capacity(results.len());
    for (r, has) in results.iter().zip(&has) {
        outputs.push(if *has { spread_over_batch(&mut b, r, examples)? } else { r.value.clone() });
    }
    Ok((b.finish(&outputs), has))
}

/// Pairs the results of a control operation with their batched flags.
fn batched_values(values: Vec<Value>, mapped: &[bool]) -> Vec<BatchedValue> {
    values.into_iter().zip(mapped).map(|(value, mapped)| BatchedValue { value, mapped: *mapped }).collect()
}

/// Returns the types of results, with a batch dimension where `mapped` is set.
fn batched_types(types: &[ArrayType], mapped: &[bool], batch_dim: &BatchDim) -> Vec<ArrayType> {
    types.iter().zip(mapped).map(|(ty, m)| if *m { batch_dim.ty(ty) } else { ty.clone() }).collect()
}

/// Returns the spec with an unsharded batch dimension in front if the value is mapped.
fn batched_spec(spec: Spec, rank: usize, mapped: bool) -> Spec {
    if !mapped { spec } else { spec.with_dims(with_inserted(spec.padded(rank).dims(), 0, Axes::none())) }
}

/// Returns a flag for each value that is true if it is batched.
fn mapped(items: &[BatchedValue]) -> Vec<bool> {
    items.iter().map(|i| i.mapped).collect()
}
/// Returns the values without their batched flags.
fn values(items: &[BatchedValue]) -> Vec<Value> {
    items.iter().map(|i| i.value.clone()).collect()
}
/// Returns a list of flags that are true if the flag is true in either list.
fn union_flags(a: &[bool], b: &[bool]) -> Vec<bool> {
    a.iter().zip(b).map(|(a, b)| *a || *b).collect()
}

/// A control operation that is batched.
#[derive(Clone, Copy)]
struct VmappedControl<'a> {
    /// The operands.
    operands: &'a [BatchedValue],
    /// The types of the results for one example.
    result_types: &'a [ArrayType],
    /// The dimension of the examples.
    batch_dim: &'a BatchDim,
}
