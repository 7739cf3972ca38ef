//! What a primitive answers beside its sentences: types, loops, what it is among devices, derivatives, itself on many examples.

use super::{contradiction, equation};
use crate::diagnostic::{Error, Fault};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::program::factors::{At, Dim, Factors, Role};
use crate::program::sentence::Combine;
use crate::program::{Batch, Builder, Collective, Input, Op, Operand, Primitive, Program, Value};
use crate::types::{ArrayType, DType, Shape};

/// Results are of types that exist: split over axes of their mesh, each once, where these divide.
pub(crate) fn types<P: Primitive + ?Sized>(
    prim: &P,
    operands: &[Operand],
    results: &[ArrayType],
) -> Result<(), Fault> {
    if results.is_empty() {
        return Err(contradiction(prim, "it has no results"));
    }
    for (k, ty) in results.iter().enumerate() {
        // most results are sharded as an operand is, which was looked at when it was made
        if operands.iter().any(|o| lies_as(&o.ty, ty)) {
            continue;
        }
        let fits = match &ty.mesh {
            _ if ty.spec.dims().len() > ty.rank() => {
                Err(format!("{} has entries for more dimensions", ty.spec))
            }
            None if !ty.spec.is_whole() || !ty.varying.is_empty() => Err("names axes of no mesh".into()),
            None => Ok(()),
            Some(_) if ty.spec.is_whole() && ty.varying.is_empty() => Ok(()),
            Some(mesh) => placed(mesh, ty),
        };
        fits.map_err(|wrong| contradiction(prim, format!("result {k}, {}{}, {wrong}", ty.dtype, ty.shape)))?;
    }
    Ok(())
}

/// Whether what is sound of `a` is sound of `b`.
fn lies_as(a: &ArrayType, b: &ArrayType) -> bool {
    a.spec == b.spec
        && a.shape == b.shape
        && a.varying == b.varying
        && a.mesh == b.mesh
        && (a.dtype == b.dtype || b.dtype.is_number())
}

fn placed(mesh: &Mesh, ty: &ArrayType) -> Result<(), String> {
    let named = |k: usize| ty.spec.all_axes().take(k);
    for (k, axis) in ty.spec.all_axes().enumerate() {
        if mesh.axis_type(axis).is_none() || named(k).any(|a| a == axis) {
            return Err(format!("names {axis} twice, or {mesh} has none: {}", ty.spec));
        }
    }
    for (d, (axes, n)) in ty.spec.dims().iter().zip(&ty.shape[..]).enumerate() {
        if let Some(axis) = axes.iter().find(|a| mesh.axis_type(*a) == Some(AxisType::Manual)) {
            return Err(format!("splits dimension {d} over {axis}, which is manual"));
        }
        let ways: usize = axes.iter().map(|a| mesh.extent(a)).product();
        if !n.is_multiple_of(ways) && axes.iter().any(|a| mesh.axis_type(a) != Some(AxisType::Auto)) {
            return Err(format!("{axes} does not divide dimension {d}"));
        }
    }
    if !ty.spec.unreduced_axes().is_empty() && !ty.dtype.is_number() {
        return Err(format!("is unreduced over {}, and is not added up", ty.spec.unreduced_axes()));
    }
    match ty.varying.iter().find(|a| mesh.axis_type(*a) != Some(AxisType::Manual)) {
        Some(axis) => Err(format!("varies over {axis}, which is no manual axis of {mesh}")),
        None => match ty.varying.iter().find(|a| named(usize::MAX).any(|b| b == *a)) {
            Some(axis) => Err(format!("varies over {axis}, which {} names", ty.spec)),
            None => Ok(()),
        },
    }
}

/// Each dimension of each operand and result runs over loops that there are, and that are as long as it is.
pub(crate) fn factors(f: &Factors, operands: &[ArrayType], results: &[(DType, Shape)]) -> Result<(), String> {
    side(f, "operand", &f.operands, operands.iter().map(|o| &o.shape))?;
    side(f, "result", &f.results, results.iter().map(|r| &r.1))
}

fn side<'a>(
    f: &Factors,
    side: &str,
    says: &[Vec<Dim>],
    is: impl ExactSizeIterator<Item = &'a Shape>,
) -> Result<(), String> {
    if says.len() != is.len() {
        return Err(format!("its factors have {} {side}s, and it has {}", says.len(), is.len()));
    }
    for (k, (dims, shape)) in says.iter().zip(is).enumerate() {
        let told = |wrong: String| format!("its factors of {side} {k}, {shape}: {wrong}");
        if dims.len() != shape.len() {
            return Err(told(format!("they have {} dimensions", dims.len())));
        }
        for (d, (dim, n)) in dims.iter().zip(&shape[..]).enumerate() {
            // what nearly every dimension is: a loop of its own, as long as it is
            if let (At::Same, [l]) = (dim.at, &dim.loops[..])
                && f.loops.get(*l).is_some_and(|l| l.size == *n)
            {
                continue;
            }
            runs(f, dim, *n).map_err(|wrong| told(format!("dimension {d} {wrong}")))?;
        }
    }
    Ok(())
}

fn runs(f: &Factors, dim: &Dim, n: usize) -> Result<(), String> {
    if let Some(l) = dim.loops.iter().find(|l| **l >= f.loops.len()) {
        return Err(format!("runs over loop {l}, and there are {}", f.loops.len()));
    }
    if let Some((k, l)) = dim.loops.iter().enumerate().find(|(k, l)| dim.loops[..*k].contains(l)) {
        return Err(format!("runs over loop {l} twice, also as its part {k}"));
    }
    let steps = dim.loops.iter().map(|l| f.loops[*l].size).try_fold(1usize, usize::checked_mul);
    // the shorter side of a slice or a pad is a part of its loop
    let part = |steps| matches!(dim.loops[..], [l] if f.role(l) == Role::Moved && n <= steps);
    match dim.at {
        At::Same if steps != Some(n) && !steps.is_some_and(part) => {
            let sizes: Vec<usize> = dim.loops.iter().map(|l| f.loops[*l].size).collect();
            Err(format!("runs over loops of {sizes:?} steps, position by position"))
        }
        At::Stretched if n != 1 => Err("is stretched, and its size is not 1".into()),
        At::Affine { .. } | At::Window | At::Stretched if dim.loops.len() != 1 => {
            Err(format!("runs over {} loops, of which each step is no position", dim.loops.len()))
        }
        At::Same | At::Stretched | At::Affine { .. } | At::Window => Ok(()),
    }
}

/// A collective is along manual axes, over dimensions that there are, and makes blocks as its types say.
pub(crate) fn collective(
    c: &Collective,
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
    let ways: usize = axes.iter().map(|a| mesh.extent(*a)).product();
    for (k, to) in results.iter().enumerate() {
        let Some(from) = operands.get(k).or(match c {
            Collective::AxisIndex { .. } => Some(to),
            _ => None,
        }) else {
            return Err(format!(
                "it is a collective of {} operands and {} results",
                operands.len(),
                results.len()
            ));
        };
        let block =
            block(c, ways, &from.shape[..]).map_err(|wrong| format!("operand {k}, {from}: {wrong}"))?;
        if from.dtype != to.dtype || block != to.shape[..] {
            return Err(format!(
                "as a collective it makes {}{block:?} of operand {k}, and its type is {to}",
                from.dtype
            ));
        }
        combines(c, to)?;
    }
    Ok(())
}

/// The block that each device has after the collective, of one that each had before.
fn block(c: &Collective, ways: usize, from: &[usize]) -> Result<Vec<usize>, String> {
    let mut shape = from.to_vec();
    match c {
        Collective::Reduce { .. } | Collective::Cast { .. } => {}
        Collective::AxisIndex { .. } => shape.clear(),
        Collective::Permute { pairs, .. } => {
            let mut reached = vec![false; ways];
            for (source, target) in pairs {
                if *source >= ways || *target >= ways || std::mem::replace(&mut reached[*target], true) {
                    return Err(format!(
                        "({source}, {target}) goes to no device of {ways}, or to one that is sent something already"
                    ));
                }
            }
        }
        Collective::AllGather { dim, tiled, .. } => join(&mut shape, *dim, *tiled, ways)?,
        Collective::ReduceScatter { dim, tiled, .. } | Collective::OwnPart { dim, tiled, .. } => {
            cut(&mut shape, *dim, *tiled, ways)?;
        }
        Collective::AllToAll { split, concat, tiled, .. } => {
            cut(&mut shape, *split, *tiled, ways)?;
            join(&mut shape, *concat, *tiled, ways)?;
        }
    }
    Ok(shape)
}
fn cut(shape: &mut Vec<usize>, dim: usize, tiled: bool, ways: usize) -> Result<(), String> {
    match shape.get(dim).copied() {
        Some(n) if tiled && n.is_multiple_of(ways) => shape[dim] = n / ways,
        Some(n) if !tiled && n == ways => drop(shape.remove(dim)),
        Some(n) => return Err(format!("dimension {dim}, of size {n}, is not cut among {ways} devices")),
        None => return Err(format!("there is no dimension {dim} to cut")),
    }
    Ok(())
}
fn join(shape: &mut Vec<usize>, dim: usize, tiled: bool, ways: usize) -> Result<(), String> {
    match shape.get(dim).copied() {
        Some(n) if tiled => shape[dim] = n.saturating_mul(ways),
        _ if !tiled && dim <= shape.len() => shape.insert(dim, ways),
        _ => return Err(format!("there is no dimension {dim} to join along")),
    }
    Ok(())
}
/// What is combined can be, and parts of sums are added.
fn combines(c: &Collective, to: &ArrayType) -> Result<(), String> {
    let (dtype, parts) = (to.dtype, to.spec.unreduced_axes());
    let makes_parts = matches!(c, Collective::Cast { .. });
    if let Some(axis) = c.axes().iter().find(|a| parts.contains(**a) && !makes_parts) {
        return Err(format!("after its collective along {axis} its result is still unreduced over {axis}"));
    }
    if let Collective::Reduce { combine, .. } = c
        && *combine != Combine::Add
        && !parts.is_empty()
    {
        return Err(format!("its result is unreduced over {parts}, and is combined by {combine:?}"));
    }
    let adds = matches!(c, Collective::ReduceScatter { .. });
    match c {
        Collective::Reduce { combine: how, .. } if !how.takes(dtype) => {
            Err(format!("elements of type {dtype} are not combined by {how:?}"))
        }
        _ if adds && !dtype.is_number() => Err(format!("elements of type {dtype} are not added")),
        _ => Ok(()),
    }
}

/// What a rule added to a program, from equation `from` on, reads what is there and fits what it is given.
pub(crate) fn added(b: &Builder, from: usize, prim: &dyn Primitive) -> Result<(), Error> {
    let p = b.program();
    for e in p.equations.iter().skip(from) {
        let fits = match e.inputs.iter().find(|i| !there(p, i)) {
            Some(i) => Err(format!("its rule reads {i:?}, which is no value of the program")),
            None => match &e.op {
                Op::Prim(_) => Ok(()),
                Op::Control(c) => {
                    equation(p, e).map_err(|wrong| format!("its rule builds a {}: {wrong}", c.name()))
                }
            },
        };
        fits.map_err(|wrong| b.refuse(contradiction(prim, wrong), prim.name(), &[]))?;
    }
    Ok(())
}

fn there(p: &Program, i: &Input) -> bool {
    match i {
        Input::Var(v) => v.index() < p.vars.len(),
        Input::Lit(_) => true,
    }
}

/// One tangent for each result, of its shape.
pub(crate) fn tangents(
    b: &Builder,
    prim: &dyn Primitive,
    given: &[Option<Value>],
    results: &[Value],
) -> Result<(), Error> {
    let types: Vec<&ArrayType> = results.iter().map(|v| &v.ty).collect();
    each(b, given, &types, "tangents", "results")
        .map_err(|wrong| b.refuse(contradiction(prim, wrong), prim.name(), &[]))
}

/// One cotangent for each operand, of its shape.
pub(crate) fn cotangents(
    b: &Builder,
    prim: &dyn Primitive,
    given: &[Option<Value>],
    operands: &[ArrayType],
) -> Result<(), Error> {
    let types: Vec<&ArrayType> = operands.iter().collect();
    each(b, given, &types, "cotangents", "operands")
        .map_err(|wrong| b.refuse(contradiction(prim, wrong), prim.name(), &[]))
}

fn each(
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
        if !there(p, &value.input) || p.input_type(&value.input) != value.ty {
            return Err(format!("number {k} of its {what} is no value of the program"));
        }
        if of.dtype.is_inexact() && (value.ty.shape != of.shape || !value.ty.dtype.is_inexact()) {
            return Err(format!("number {k} of its {what} is {}, and that of its {whose} {of}", value.ty));
        }
    }
    Ok(())
}

/// The results of the operation on all examples: each with their dimension at `at`.
pub(crate) fn batched(
    b: &Builder,
    prim: &dyn Primitive,
    results: &[Value],
    at: usize,
    batch: &Batch<'_>,
) -> Result<(), Error> {
    let fits = |(value, one): (&Value, &ArrayType)| {
        let mut shape = one.shape.to_vec();
        let inside = at <= shape.len();
        shape.insert(at.min(one.rank()), batch.examples.size);
        inside && value.ty.dtype == one.dtype && value.ty.shape[..] == shape[..]
    };
    if results.len() == batch.results.len() && results.iter().zip(batch.results).all(fits) {
        return Ok(());
    }
    let list = |types: &mut dyn Iterator<Item = &ArrayType>| {
        types.map(|ty| format!("{}{}", ty.dtype, ty.shape)).collect::<Vec<_>>().join(", ")
    };
    let wrong = format!(
        "of {} examples it makes {}, and of one {}: their dimension is said to be {at}",
        batch.examples.size,
        list(&mut results.iter().map(|v| &v.ty)),
        list(&mut batch.results.iter())
    );
    Err(b.refuse(contradiction(prim, wrong), prim.name(), results))
}
