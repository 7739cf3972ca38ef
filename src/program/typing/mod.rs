//! Explicit typing: result types from factors, or a refusal.
//!
//! Shapes first, then the sharding asked for, then the shardings by the loops: each operand's dimension hands its axes out to its
//! loops, each loop joins what its operands say, each result dimension strings its loops' axes together. Last come the sets:
//! which axes the results are unreduced and reduced over.

pub(crate) mod advice;
mod entries;
mod sets;

use super::factors::{Factors, Linearity, Priority};
use super::{Operand, Primitive, sound};
use crate::diagnostic::{ErrorKind, Fault, Spot};
use crate::mesh::{Axes, Axis, AxisType, Mesh};
use crate::sharding::{Spec, check_divides, check_parts, check_spec, of_result};
use crate::types::{ArrayType, DType, Shape};
use entries::Rule;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The results' types: shapes first, then `out`, then the shardings by the loops, then the sets.
pub fn by_factors(prim: &(impl Primitive + ?Sized), operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
    by_factors_on(prim, operands, None)
}

/// The same for an operation that names the mesh of its results, where no operand is on one.
pub fn by_factors_on(
    prim: &(impl Primitive + ?Sized),
    operands: &[Operand],
    mesh: Option<&Mesh>,
) -> Result<Vec<ArrayType>, Fault> {
    let answers = Answers {
        shapes: prim.shapes(operands)?,
        name: prim.name(),
        out: prim.out(),
        linearity: prim.linearity(),
        priority: prim.priority(),
        factors: &|types, shapes| prim.factors(types, shapes),
        contradiction: &|wrong| sound::contradiction(prim, wrong),
    };
    typed(answers, operands, mesh)
}

/// Its loops, by operands and results.
type Loops<'a> = &'a dyn Fn(&[ArrayType], &[(DType, Shape)]) -> Factors;

/// What typing asks of a primitive, whichever it is: so that it is compiled once.
struct Answers<'a> {
    shapes: Vec<(DType, Shape)>,
    name: &'static str,
    out: Option<Spec>,
    linearity: Linearity,
    priority: Priority,
    factors: Loops<'a>,
    contradiction: &'a dyn Fn(String) -> Fault,
}

fn typed(prim: Answers<'_>, operands: &[Operand], mesh: Option<&Mesh>) -> Result<Vec<ArrayType>, Fault> {
    let shapes = &prim.shapes;
    if shapes.is_empty() {
        return Err((prim.contradiction)("it has no results".into()));
    }
    let mesh = common_mesh(operands, mesh)?;
    let out = match (prim.out, &mesh, shapes.first()) {
        (Some(spec), Some(mesh), Some((_, shape))) => Some(check_out(mesh, spec, shape)?),
        (Some(spec), None, _) if !spec.is_whole() => return Err(no_mesh(spec)),
        _ => None,
    };
    let (operands, varying) = alike(operands, mesh.as_ref())?;
    let operands = &*operands;
    let Some(mesh) = mesh else {
        return Ok(prim.shapes.into_iter().map(|(dtype, shape)| dtype.of(shape)).collect());
    };
    let elementwise = prim.priority == Priority::Elementwise;
    let alike = if elementwise { one_spec(operands, shapes) } else { None };
    if let (None, Some(spec), [(dtype, shape)]) = (out, alike, &shapes[..]) {
        return Ok(vec![ArrayType { dtype: *dtype, shape: shape.clone(), mesh: Some(mesh), spec, varying }]);
    }
    let types: SmallVec<[ArrayType; 3]> = operands.iter().map(|o| o.ty.clone()).collect();
    let factors = (prim.factors)(&types, shapes);
    sound::factors(&factors, &types, shapes).map_err(prim.contradiction)?;
    let rule = Rule { prim: prim.name, mesh: &mesh, factors: &factors, operands, shapes, elementwise };
    let entries = rule.join(out.is_some())?;
    let (u, r) = rule.sets(prim.linearity, out)?;
    let mut results = Vec::with_capacity(shapes.len());
    for (i, (dtype, shape)) in shapes.iter().enumerate() {
        let dims = match out {
            Some(out) if i == 0 => out.dims().to_vec(),
            _ => rule.result(i, &entries)?,
        };
        let mut spec = Spec::of(dims);
        if !(u.is_empty() && r.is_empty()) {
            spec = spec.unreduced(&u).reduced(&r).in_order(&mesh);
            check_parts(spec, *dtype)?;
        }
        rule.once(spec)?;
        rule.divides(spec, shape)?;
        results.push(ArrayType {
            dtype: *dtype,
            shape: shape.clone(),
            mesh: Some(mesh.clone()),
            spec,
            varying: varying.clone(),
        });
    }
    Ok(results)
}

/// What the rules below come to where an elementwise operation finds all its operands (numbers aside) of the result's shape,
/// sharded the same way and in no set: the operands' spec. It is the commonest case by far.
fn one_spec(operands: &[Operand], shapes: &[(DType, Shape)]) -> Option<Spec> {
    let [(_, shape)] = shapes else { return None };
    let mut common: Option<Spec> = None;
    for o in operands.iter().filter(|o| !(o.literal && o.ty.shape.is_empty())) {
        let spec = o.ty.spec;
        let fits = o.ty.mesh.is_some()
            && o.ty.shape == *shape
            && spec.dims().len() == shape.rank()
            && spec.unreduced_axes().is_empty()
            && spec.reduced_axes().is_empty();
        if !fits || common.is_some_and(|c| c != spec) {
            return None;
        }
        common = Some(spec);
    }
    common
}

/// Checks the sharding asked for a result: explicit axes of the mesh, none twice, sizes that divide.
pub fn check_out(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<Spec, Fault> {
    // what is at fault are the result's dimensions, no operand's
    check_spec(mesh, spec, shape.len(), &[AxisType::Explicit])
        .and_then(|checked| check_divides(mesh, checked, shape).map(|()| checked))
        .map_err(|fault| Fault { marks: Vec::new(), ..of_result(fault, spec, shape.len()) })
}

fn no_mesh(spec: Spec) -> Fault {
    Fault::new(
        ErrorKind::Mesh,
        format!(
            "the result is asked to be sharded as {spec}, but no operand is on a mesh that has these axes"
        ),
    )
    .help("put an operand on the mesh first: `x.put(&mesh, p![…])`")
}

/// The mesh that the operands are on. Values on none join any as replicated.
pub fn common_mesh(operands: &[Operand], asked: Option<&Mesh>) -> Result<Option<Mesh>, Fault> {
    let mut found: Option<(&Mesh, usize)> = None;
    for (k, o) in operands.iter().enumerate() {
        match (&o.ty.mesh, found) {
            (Some(mesh), Some((first, j))) if mesh != first => {
                return Err(two_meshes((j, first), (k, mesh))
                    .help(format!("put one of them on the other's mesh: `x.put(&mesh, {})`", o.ty.spec)));
            }
            (Some(mesh), None) => found = Some((mesh, k)),
            _ => {}
        }
    }
    match (found, asked) {
        (Some((mesh, k)), Some(asked)) if mesh != asked => Err(Fault::new(
            ErrorKind::Mesh,
            format!("operand {k} is on {mesh}, but the result is asked to be on {asked}"),
        )
        .help("name the operands' mesh, or move the result: `.put(&mesh, p![…])`")),
        (found, asked) => Ok(found.map(|f| f.0).or(asked).cloned()),
    }
}

fn two_meshes((j, first): (usize, &Mesh), (k, other): (usize, &Mesh)) -> Fault {
    let (one, two) = (first.to_string(), other.to_string());
    let differ = if one == two { ", over other devices or in another order" } else { "" };
    Fault::new(
        ErrorKind::Mesh,
        format!(
            "operand {j} is on {one}, operand {k} on {two}{differ}: the operands of an operation must be on one mesh"
        ),
    )
}

/// The operands as they are inside `shard_map`: all vary over the union of what varies. One that is reduced over just what it
/// lacks becomes varying; one that is unreduced there, or reduced over some of it, is refused.
pub fn alike<'a>(operands: &'a [Operand], mesh: Option<&Mesh>) -> Result<(Cow<'a, [Operand]>, Axes), Fault> {
    let Some(mesh) = mesh.filter(|_| operands.iter().any(|o| !o.ty.varying.is_empty())) else {
        return Ok((Cow::Borrowed(operands), Axes::none()));
    };
    let mut operands = operands.to_vec();
    let union: Vec<Axis> = mesh
        .axis_names()
        .iter()
        .copied()
        .filter(|a| operands.iter().any(|o| o.ty.varying.contains(*a)))
        .collect();
    for (k, o) in operands.iter_mut().enumerate() {
        let lacks: Vec<Axis> = union.iter().copied().filter(|a| !o.ty.varying.contains(*a)).collect();
        let spec = o.ty.spec;
        let (u, r) = (spec.unreduced_axes(), spec.reduced_axes());
        if !lacks.is_empty() && r.same_set(&Axes::from(&lacks[..])) {
            o.ty.spec = spec.reduced(Axes::none());
        } else if let Some(axis) = lacks.iter().find(|a| u.contains(**a) || r.contains(**a)) {
            let (state, mend) = if u.contains(*axis) {
                ("unreduced", format!("sum it first: `x.psum({:?})`", axis.name()))
            } else {
                ("reduced", format!("cast it first: `x.pcast({:?}, Cast::Varying)`", axis.name()))
            };
            return Err(Fault::new(
                ErrorKind::Sharding,
                format!(
                    "operand {}, {}, is {state} over {axis}, over which another operand varies",
                    o.number(k),
                    o.told()
                ),
            )
            .help(mend)
            .mark(k, Spot::Sets));
        }
        o.ty.varying = Axes::from(&union[..]);
    }
    Ok((Cow::Owned(operands), Axes::from(union)))
}
