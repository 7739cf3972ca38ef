//! Batching: a program on one example to a program on many.
//!
//! Every value that depends on a mapped one has one more dimension in front, which runs over the examples; the others stay as they
//! are. A primitive says with which parameters it does the same to all examples
//! ([`Primitive::batched`](crate::program::Primitive::batched)): in its factors that is a new loop in every mapped operand and every result. What
//! is around the operation (operands made to have the loop, the loop moved to the front) is the same for all of them and
//! in this module. The examples are sharded over the axes over which the mapped dimensions are; every batched value is, and no other
//! value may name these axes.

mod control;
#[cfg(test)]
mod tests;

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Axes;
use crate::ops::shape::BroadcastInDim;
use crate::ops::slicing::Concatenate;
use crate::program::{
    Align, Batch, Batched, Builder, Env, Equation, Examples, Input, Known, Literal, Op, Prim, Program, Value,
    inserted, sound,
};
use crate::sharding::Spec;
use crate::types::ArrayType;
use std::sync::Arc;

/// A value of the batched program.
#[derive(Clone, Debug)]
pub struct Item {
    /// The value: of all examples, or the same for all.
    pub value: Value,
    /// Whether it has a dimension of examples, in front.
    pub mapped: bool,
}

/// Repeats the program here for all examples: its results for inputs of which some are mapped.
pub fn push(b: &mut Builder, program: &Program, inputs: &[Item], examples: &Examples) -> Result<Vec<Item>> {
    let mut env = Env::new(program, inputs.iter().cloned());
    let (outer, phase) = (b.place(), b.phase());
    for e in &program.equations {
        b.at(e.place.or(outer)).during(e.phase.within(phase));
        let results = equation(b, program, e, &env.all(&e.inputs), examples)?;
        env.bind(&e.outputs, results);
    }
    b.at(outer).during(phase);
    Ok(env.all(&program.outputs))
}

/// The value with a dimension of examples: itself, or repeated.
pub fn spread(b: &mut Builder, item: &Item, examples: &Examples) -> Result<Value> {
    if item.mapped {
        return Ok(item.value.clone());
    }
    repeated(b, &item.value, examples)
}

impl Known for Item {
    fn number(l: Literal) -> Item {
        Item { value: Value::number(l), mapped: false }
    }
}

fn equation(
    b: &mut Builder,
    program: &Program,
    e: &Equation,
    items: &[Item],
    examples: &Examples,
) -> Result<Vec<Item>> {
    let types: Vec<ArrayType> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
    let values: Vec<Value> = items.iter().map(|i| i.value.clone()).collect();
    let names: &str = match &e.op {
        Op::Prim(prim) => prim.name(),
        Op::Control(c) => c.name(),
    };
    // what is the same for all examples
    let same = items.iter().filter(|i| !i.mapped).map(|i| &i.value.ty);
    let alike = items.iter().all(|i| !i.mapped);
    for ty in same.chain(types.iter().filter(|_| alike)) {
        unmapped(ty, examples).map_err(|fault| b.refuse(fault, names, &values))?;
    }
    if alike {
        let results = b.push(e.op.clone(), &values, types);
        b.name(e.name.clone());
        return Ok(results.into_iter().map(|value| Item { value, mapped: false }).collect());
    }
    match &e.op {
        Op::Prim(prim) => primitive(b, prim, program, e, items, &types, examples),
        Op::Control(c) => control::batched(b, c, items, &types, examples),
    }
}

/// Refuses a value that is the same for all examples and split over the axes over which these are.
pub fn unmapped(ty: &ArrayType, examples: &Examples) -> Result<(), Fault> {
    let Some(axis) = ty.spec.all_axes().find(|a| examples.axes.contains(*a)) else { return Ok(()) };
    let rest = ty.spec.only(|a| !examples.axes.contains(a));
    Err(Fault::new(
        ErrorKind::Sharding,
        format!("{ty} is the same for all examples and names {axis}, over which the examples are split"),
    )
    .help(format!("move it first: `.reshard({rest})`"))
    .help("or split the examples over another axis"))
}

fn primitive(
    b: &mut Builder,
    prim: &Prim,
    program: &Program,
    e: &Equation,
    items: &[Item],
    types: &[ArrayType],
    examples: &Examples,
) -> Result<Vec<Item>> {
    let operands: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
    let mapped: Vec<bool> = items.iter().map(|i| i.mapped).collect();
    let batch = Batch { examples, mapped: &mapped, operands: &operands, results: types };
    let Batched { prim: all, align, at } = prim.batched(&batch);
    let inputs = aligned(b, align, items, &batch)?;
    let values = b.emit(all, &inputs)?;
    sound::batched(b, prim.as_ref(), &values, at, &batch)?;
    let mut results = Vec::with_capacity(types.len());
    for (value, ty) in values.into_iter().zip(types) {
        let order: Vec<usize> = std::iter::once(at).chain((0..=ty.rank()).filter(|d| *d != at)).collect();
        let value = b.transpose(&value, &order)?;
        let value = b.reshard_to(&value, &examples.ty(ty))?;
        results.push(Item { value, mapped: true });
    }
    Ok(results)
}

/// The operands as the batched operation takes them.
fn aligned(b: &mut Builder, align: Align, items: &[Item], batch: &Batch<'_>) -> Result<Vec<Value>> {
    let result = batch.results.first().map_or(0, ArrayType::rank);
    if let Align::Vectors(first) = align {
        let mut columns = Vec::with_capacity(items.len());
        for item in &items[first..] {
            let each =
                if item.mapped { item.value.clone() } else { repeated(b, &item.value, batch.examples)? };
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
            Align::Placed(n) => {
                let needs = k < n || ty.rank() > 0 && batch.mapped[n..].contains(&true);
                if needs && !item.mapped { repeated(b, value, batch.examples)? } else { value.clone() }
            }
            Align::Kept | Align::Vectors(_) => value.clone(),
            Align::Broadcast if item.mapped => {
                let new: Vec<usize> = (1..=result.saturating_sub(ty.rank())).collect();
                b.expand_dims(value, &new)?
            }
            Align::Broadcast => value.clone(),
            Align::All { .. } if item.mapped && ty.rank() < result => {
                along(b, value, &batch.examples.ty(&batch.results[0]))?
            }
            Align::All { numbers } => {
                let stays = item.mapped || ty.rank() < result || numbers && value.is_literal();
                if stays { value.clone() } else { repeated(b, value, batch.examples)? }
            }
        });
    }
    Ok(values)
}

/// A number for each example, repeated to the shape of a value of type `like` and sharded as it is.
fn along(b: &mut Builder, each: &Value, like: &ArrayType) -> Result<Value> {
    let spec = Spec::of(like.spec.padded(like.rank()).dims().to_vec());
    b.broadcast_in_dim_as(each, &like.shape, &[0], spec)
}

/// The same for each example: the value, once for each.
fn repeated(b: &mut Builder, value: &Value, examples: &Examples) -> Result<Value> {
    let ty = examples.ty(&value.ty);
    if let Input::Lit(l) = value.input {
        return b.full(&ty, l.value);
    }
    // on the mesh of the others before it is split over its axes
    let whole = ArrayType { spec: value.ty.spec, shape: value.ty.shape.clone(), ..ty.clone() };
    let value = if value.ty.mesh.is_none() && !examples.axes.is_empty() {
        match &whole.mesh {
            Some(mesh) => b.reshard(value, mesh, whole.spec)?,
            None => value.clone(),
        }
    } else {
        value.clone()
    };
    let broadcast_dimensions: Vec<usize> = (1..ty.rank()).collect();
    let make = |out| {
        let (shape, broadcast_dimensions) = (ty.shape.clone(), broadcast_dimensions.clone());
        Arc::new(BroadcastInDim { shape, broadcast_dimensions, out }) as Prim
    };
    b.emit_as(make, std::slice::from_ref(&value), ty.spec)
}

/// A nested program on all examples: `mapped` says which inputs have them, `wanted` which results must; with it, which have.
fn nested(
    program: &Program,
    mapped: &[bool],
    wanted: &[bool],
    examples: &Examples,
) -> Result<(Program, Vec<bool>), Error> {
    let mut b = Builder::new();
    if let Some(mesh) = program.mesh.as_ref().or(examples.mesh.as_ref()) {
        b.on(mesh);
    }
    let items: Vec<Item> = (program.inputs.iter().zip(mapped))
        .map(|(v, mapped)| {
            let ty = program.ty(*v);
            let ty = if *mapped { examples.ty(ty) } else { ty.clone() };
            Item { value: b.input(ty, None), mapped: *mapped }
        })
        .collect();
    let results = push(&mut b, program, &items, examples)?;
    let has: Vec<bool> = results.iter().zip(wanted).map(|(r, w)| r.mapped || *w).collect();
    let mut outputs = Vec::with_capacity(results.len());
    for (r, has) in results.iter().zip(&has) {
        outputs.push(if *has { spread(&mut b, r, examples)? } else { r.value.clone() });
    }
    Ok((b.finish(&outputs), has))
}

/// Results of a control operation, of which some have a dimension of examples.
fn items(values: Vec<Value>, mapped: &[bool]) -> Vec<Item> {
    values.into_iter().zip(mapped).map(|(value, mapped)| Item { value, mapped: *mapped }).collect()
}

/// The types of results of which some have a dimension of examples.
fn types(one: &[ArrayType], mapped: &[bool], examples: &Examples) -> Vec<ArrayType> {
    one.iter().zip(mapped).map(|(ty, m)| if *m { examples.ty(ty) } else { ty.clone() }).collect()
}

/// The spec of what enters or leaves a nested program, unsharded in the dimension of examples where it has one.
fn behind_examples(spec: Spec, rank: usize, mapped: bool) -> Spec {
    if !mapped {
        return spec;
    }
    spec.with_dims(inserted(spec.padded(rank).dims(), 0, Axes::none()))
}
