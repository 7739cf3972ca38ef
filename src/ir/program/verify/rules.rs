//! Verification of a primitive's other rules: factors, collectives, derivatives and `vmap`.

use super::{check_equation, inconsistent_rules};
use crate::core::{ArrayType, Axes, Axis, DType, Error, Mesh, Shape};
use crate::ir::program::factors::{Dim, DimMap, FactorKind, Factors};
use crate::ir::program::loop_nest::Reducer;
use crate::ir::program::{
    Builder, DeviceGroups, Input, ManualCollective, Op, Primitive, Program, Value, VmapArgs,
};

/// Verifies factors: every dimension runs over existing loops of matching sizes.
pub(crate) fn factors(f: &Factors, operands: &[ArrayType], results: &[(DType, Shape)]) -> Result<(), String> {
    check_side(f, "operand", &f.operands, operands.iter().map(|o| &o.shape))?;
    check_side(f, "result", &f.results, results.iter().map(|r| &r.1))
}

fn check_side<'a>(
    f: &Factors,
    side: &str,
    dims: &[Vec<Dim>],
    shapes: impl ExactSizeIterator<Item = &'a Shape>,
) -> Result<(), String> {
    if dims.len() != shapes.len() {
        return Err(format!("its factors have {} {side}s, and it has {}", dims.len(), shapes.len()));
    }
    for (k, (dims, shape)) in dims.iter().zip(shapes).enumerate() {
        let described = |wrong: String| format!("its factors of {side} {k}, {shape}: {wrong}");
        if dims.len() != shape.len() {
            return Err(described(format!("they have {} dimensions", dims.len())));
        }
        for (d, (dim, n)) in dims.iter().zip(&shape[..]).enumerate() {
            // fast path: nearly every dimension runs over one loop of the same size
            if let (DimMap::Identity, [l]) = (dim.map, &dim.loops[..])
                && f.loops.get(*l).is_some_and(|l| l.size == *n)
            {
                continue;
            }
            check_dim(f, dim, *n).map_err(|wrong| described(format!("dimension {d} {wrong}")))?;
        }
    }
    Ok(())
}

fn check_dim(f: &Factors, dim: &Dim, n: usize) -> Result<(), String> {
    if let Some(l) = dim.loops.iter().find(|l| **l >= f.loops.len()) {
        return Err(format!("runs over loop {l}, and there are {}", f.loops.len()));
    }
    if let Some((k, l)) = dim.loops.iter().enumerate().find(|(k, l)| dim.loops[..*k].contains(l)) {
        return Err(format!("runs over loop {l} twice, again at index {k}"));
    }
    let steps = dim.loops.iter().map(|l| f.loops[*l].size).try_fold(1usize, usize::checked_mul);
    // the shorter side of a slice or a pad covers only some steps of its loop
    let partial = |steps| matches!(dim.loops[..], [l] if f.kind(l) == FactorKind::Permutation && n <= steps);
    match dim.map {
        DimMap::Identity if steps != Some(n) && !steps.is_some_and(partial) => {
            let sizes: Vec<usize> = dim.loops.iter().map(|l| f.loops[*l].size).collect();
            Err(format!("runs over loops of {sizes:?} steps, position by position"))
        }
        DimMap::Broadcast if n != 1 => Err("is broadcast, and its size is not 1".into()),
        DimMap::Affine { .. } | DimMap::Dynamic | DimMap::Broadcast if dim.loops.len() != 1 => {
            Err(format!("runs over {} loops, but its map needs exactly one", dim.loops.len()))
        }
        DimMap::Identity | DimMap::Broadcast | DimMap::Affine { .. } | DimMap::Dynamic => Ok(()),
    }
}

/// Verifies a collective: its axes are manual, its dimensions exist, and its result types match.
pub(crate) fn collective(
    c: &ManualCollective,
    within: Option<(&Mesh, &Axes)>,
    operands: &[ArrayType],
    results: &[ArrayType],
) -> Result<(), String> {
    let Some((mesh, manual)) = within else { return Err("it is a collective outside of manual mode".into()) };
    let axes: &[Axis] = c.axes();
    for (k, axis) in axes.iter().enumerate() {
        if !manual.contains(*axis) {
            return Err(format!("it is a collective along {axis}, and the manual axes are {manual}"));
        }
        if axes[..k].contains(axis) {
            return Err(format!("it is a collective along {axis} twice"));
        }
    }
    let num_shards: usize = axes.iter().map(|a| mesh.extent(*a)).product();
    if let Some(groups) = c.groups() {
        let named: Axes = axes.iter().copied().collect();
        groups.check(num_shards, &named).map_err(|f| f.message)?;
        if !groups.have_one_size() && !matches!(c, ManualCollective::AllReduce { .. }) {
            return Err(format!("its groups {groups} have different sizes"));
        }
    }
    for (k, to) in results.iter().enumerate() {
        let Some(from) = operands.get(k).or(match c {
            ManualCollective::AxisIndex { .. } => Some(to),
            _ => None,
        }) else {
            return Err(format!(
                "it is a collective of {} operands and {} results",
                operands.len(),
                results.len()
            ));
        };
        let members = c.groups().map_or(num_shards, DeviceGroups::max_size);
        let block = result_block(c, members, &from.shape[..])
            .map_err(|wrong| format!("operand {k}, {from}: {wrong}"))?;
        if from.dtype != to.dtype || block != to.shape[..] {
            return Err(format!(
                "as a collective it makes {}{block:?} of operand {k}, and its type is {to}",
                from.dtype
            ));
        }
        check_reducer(c, to)?;
    }
    Ok(())
}

/// Returns the shape of the block after a collective, given the shape before it.
fn result_block(c: &ManualCollective, num_devices: usize, shape: &[usize]) -> Result<Vec<usize>, String> {
    let mut shape = shape.to_vec();
    match c {
        ManualCollective::AllReduce { .. } | ManualCollective::Pcast { .. } => {}
        ManualCollective::Broadcast { source, .. } if *source < num_devices => {}
        ManualCollective::Broadcast { source, .. } => {
            return Err(format!("it copies the block of device {source} of {num_devices}"));
        }
        ManualCollective::AxisIndex { .. } => shape.clear(),
        ManualCollective::Permute { pairs, .. } => {
            let mut reached = vec![false; num_devices];
            for (source, target) in pairs {
                if *source >= num_devices
                    || *target >= num_devices
                    || std::mem::replace(&mut reached[*target], true)
                {
                    return Err(format!(
                        "({source}, {target}) goes to no device of {num_devices}, or to one that is sent something already"
                    ));
                }
            }
        }
        ManualCollective::AllGather { dim, tiled, .. } => join_dim(&mut shape, *dim, *tiled, num_devices)?,
        ManualCollective::ReduceScatter { dim, tiled, .. }
        | ManualCollective::KeepShard { dim, tiled, .. } => {
            split_dim(&mut shape, *dim, *tiled, num_devices)?;
        }
        ManualCollective::AllToAll { split, concat, tiled, .. } => {
            split_dim(&mut shape, *split, *tiled, num_devices)?;
            join_dim(&mut shape, *concat, *tiled, num_devices)?;
        }
    }
    Ok(shape)
}
fn split_dim(shape: &mut Vec<usize>, dim: usize, tiled: bool, num_devices: usize) -> Result<(), String> {
    match shape.get(dim).copied() {
        Some(n) if tiled && n.is_multiple_of(num_devices) => shape[dim] = n / num_devices,
        Some(n) if !tiled && n == num_devices => drop(shape.remove(dim)),
        Some(n) => {
            return Err(format!("dimension {dim}, of size {n}, cannot be split over {num_devices} devices"));
        }
        None => return Err(format!("there is no dimension {dim} to split")),
    }
    Ok(())
}
fn join_dim(shape: &mut Vec<usize>, dim: usize, tiled: bool, num_devices: usize) -> Result<(), String> {
    match shape.get(dim).copied() {
        Some(n) if tiled => shape[dim] = n.saturating_mul(num_devices),
        _ if !tiled && dim <= shape.len() => shape.insert(dim, num_devices),
        _ => return Err(format!("there is no dimension {dim} to join along")),
    }
    Ok(())
}
/// Returns an error if the type does not support the reducer, or partial values are not added.
fn check_reducer(c: &ManualCollective, to: &ArrayType) -> Result<(), String> {
    let (dtype, parts) = (to.dtype, to.spec.unreduced_axes());
    let makes_partials = matches!(c, ManualCollective::Pcast { .. });
    if let Some(axis) = c.axes().iter().find(|a| parts.contains(**a) && !makes_partials) {
        return Err(format!("after its collective along {axis} its result is still unreduced over {axis}"));
    }
    if let ManualCollective::AllReduce { reducer: combine, .. } = c
        && *combine != Reducer::Add
        && !parts.is_empty()
    {
        return Err(format!("its result is unreduced over {parts}, and is combined by {combine:?}"));
    }
    let adds = matches!(c, ManualCollective::ReduceScatter { .. });
    match c {
        ManualCollective::AllReduce { reducer: how, .. } if !how.supports(dtype) => {
            Err(format!("elements of type {dtype} are not combined by {how:?}"))
        }
        _ if adds && !dtype.is_number() => Err(format!("elements of type {dtype} are not added")),
        _ => Ok(()),
    }
}

/// Verifies the equations that a rule added, from equation `from` on: inputs exist and types match.
pub(crate) fn added_equations(b: &Builder, from: usize, prim: &dyn Primitive) -> Result<(), Error> {
    let p = b.program();
    for e in p.equations.iter().skip(from) {
        let fits = match e.inputs.iter().find(|i| !is_defined(p, i)) {
            Some(i) => Err(format!("its rule reads {i:?}, which is no value of the program")),
            None => match &e.op {
                Op::Prim(_) => Ok(()),
                Op::Control(c) => check_equation(p, e)
                    .map_err(|wrong| format!("its rule adds an invalid {}: {wrong}", c.name())),
            },
        };
        fits.map_err(|wrong| b.error(inconsistent_rules(prim, wrong), prim.name(), &[]))?;
    }
    Ok(())
}

fn is_defined(p: &Program, i: &Input) -> bool {
    match i {
        Input::Var(v) => v.index() < p.vars.len(),
        Input::Lit(_) => true,
    }
}

/// Verifies that a rule returned one tangent of matching shape for each result.
pub(crate) fn tangents(
    b: &Builder,
    prim: &dyn Primitive,
    given: &[Option<Value>],
    results: &[Value],
) -> Result<(), Error> {
    let types: Vec<&ArrayType> = results.iter().map(|v| &v.ty).collect();
    check_each(b, given, &types, "tangents", "results")
        .map_err(|wrong| b.error(inconsistent_rules(prim, wrong), prim.name(), &[]))
}

/// Verifies that a rule returned one cotangent of matching shape for each operand.
pub(crate) fn cotangents(
    b: &Builder,
    prim: &dyn Primitive,
    given: &[Option<Value>],
    operands: &[ArrayType],
) -> Result<(), Error> {
    let types: Vec<&ArrayType> = operands.iter().collect();
    check_each(b, given, &types, "cotangents", "operands")
        .map_err(|wrong| b.error(inconsistent_rules(prim, wrong), prim.name(), &[]))
}

fn check_each(
    b: &Builder,
    given: &[Option<Value>],
    of: &[&ArrayType],
    what: &str,
    whose: &str,
) -> Result<(), String> {
    if given.len() != of.len() {
        return Err(format!("it gives {} {what} for {} {whose}", given.len(), of.len()));
    }
    let p = b.program();
    for (k, (value, of)) in given.iter().zip(of).enumerate() {
        let Some(value) = value else { continue };
        if !is_defined(p, &value.input) || p.input_type(&value.input) != value.ty {
            return Err(format!("item {k} of its {what} is no value of the program"));
        }
        if of.dtype.is_inexact() && (value.ty.shape != of.shape || !value.ty.dtype.is_inexact()) {
            return Err(format!("item {k} of its {what} is {}, and that of its {whose} {of}", value.ty));
        }
    }
    Ok(())
}

/// Verifies the results of an operation on all examples, including their batch dimension.
pub(crate) fn vmap(
    b: &Builder,
    prim: &dyn Primitive,
    results: &[Value],
    out_dim: usize,
    batch: &VmapArgs<'_>,
) -> Result<(), Error> {
    let fits = |(value, one): (&Value, &ArrayType)| {
        let mut shape = one.shape.to_vec();
        let inside = out_dim <= shape.len();
        shape.insert(out_dim.min(one.rank()), batch.batch_dim.size);
        inside && value.ty.dtype == one.dtype && value.ty.shape[..] == shape[..]
    };
    if results.len() == batch.results.len() && results.iter().zip(batch.results).all(fits) {
        return Ok(());
    }
    let list = |types: &mut dyn Iterator<Item = &ArrayType>| {
        types.map(|ty| format!("{}{}", ty.dtype, ty.shape)).collect::<Vec<_>>().join(", ")
    };
    let wrong = format!(
        "the result for {} examples is {}, and for one example {}: the batch dimension should be {out_dim}",
        batch.batch_dim.size,
        list(&mut results.iter().map(|v| &v.ty)),
        list(&mut batch.results.iter())
    );
    Err(b.error(inconsistent_rules(prim, wrong), prim.name(), results))
}
