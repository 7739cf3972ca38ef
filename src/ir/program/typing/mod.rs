//! Explicit typing: infers result types from factors, or returns an error.
//!
//! Shapes are inferred first. A requested output sharding comes next, then the shardings along the
//! loops: each dimension of an operand assigns its axes to its loops, each loop joins the entries
//! of the operands, and each dimension of a result concatenates the axes of its loops. The sets
//! come last: the axes over which the results are unreduced and reduced.

pub(crate) mod agree;
mod context;
mod cotangent;
mod dims;
pub(crate) mod suggest;
mod varying;

pub use cotangent::{cotangent_type, not_linear_error};

use super::factors::{Factors, Linearity, Priority};
use super::{Primitive, TypedOperand, verify};
use crate::core::sharding::{check_divides, check_spec, check_unreduced_dtype, for_result};
use crate::core::{ArrayType, Axes, Axis, AxisType, DType, Fault, Mesh, Shape, Spec, TypePart};
use context::TypingContext;
use smallvec::SmallVec;
use std::borrow::Cow;

/// Infers the types of the results from the primitive's shapes, factors and linearity.
pub fn by_factors(
    prim: &(impl Primitive + ?Sized),
    operands: &[TypedOperand],
) -> Result<Vec<ArrayType>, Fault> {
    by_factors_on(prim, operands, None)
}

/// Infers the types of the results, as [`by_factors`] does.
/// The result is on `mesh` if no operand is on a mesh.
pub fn by_factors_on(
    prim: &(impl Primitive + ?Sized),
    operands: &[TypedOperand],
    mesh: Option<&Mesh>,
) -> Result<Vec<ArrayType>, Fault> {
    let answers = TypingRules {
        shapes: prim.shapes(operands)?,
        primitive_name: prim.name(),
        out_sharding: prim.out_sharding(),
        linearity: prim.linearity(),
        priority: prim.priority(),
        factors: &|types, shapes| prim.factors(types, shapes),
        contradiction: &|wrong| verify::inconsistent_rules(prim, wrong),
    };
    infer_types(answers, operands, mesh)
}

/// The factors of a primitive, as a function of its operand types and result shapes.
type FactorsFn<'a> = &'a dyn Fn(&[ArrayType], &[(DType, Shape)]) -> Factors;

/// The rules of a primitive that typing needs.
/// With these as values, the code of typing is compiled once and not for every primitive.
struct TypingRules<'a> {
    /// The element types and shapes of the results.
    shapes: Vec<(DType, Shape)>,
    /// The name of the primitive.
    primitive_name: &'static str,
    /// The requested sharding of the first result, if any.
    out_sharding: Option<Spec>,
    /// The linearity of the primitive.
    linearity: Linearity,
    /// The priority of the primitive in auto propagation.
    priority: Priority,
    /// Returns the factors of the primitive.
    factors: FactorsFn<'a>,
    /// Returns the fault for rules of the primitive that contradict each other.
    contradiction: &'a dyn Fn(String) -> Fault,
}

fn infer_types(
    prim: TypingRules<'_>,
    operands: &[TypedOperand],
    mesh: Option<&Mesh>,
) -> Result<Vec<ArrayType>, Fault> {
    let shapes = &prim.shapes;
    if shapes.is_empty() {
        return Err((prim.contradiction)("it has no results".into()));
    }
    let mesh = common_mesh(operands, mesh)?;
    let out = match (prim.out_sharding, &mesh, shapes.first()) {
        (Some(spec), Some(mesh), Some((_, shape))) => Some(check_out_sharding(mesh, spec, shape)?),
        (Some(spec), None, _) if !spec.is_replicated() => return Err(no_mesh(spec)),
        _ => None,
    };
    let (operands, varying) = unify_varying(operands, mesh.as_ref())?;
    let operands = &*operands;
    let Some(mesh) = mesh else {
        return Ok(prim.shapes.into_iter().map(|(dtype, shape)| dtype.array_type(shape)).collect());
    };
    let elementwise = prim.priority == Priority::Elementwise;
    let alike = if elementwise { common_spec(operands, shapes) } else { None };
    if let (None, Some(spec), [(dtype, shape)]) = (out, alike, &shapes[..]) {
        return Ok(vec![ArrayType { dtype: *dtype, shape: shape.clone(), mesh: Some(mesh), spec, varying }]);
    }
    let types: SmallVec<[ArrayType; 3]> = operands.iter().map(|o| o.ty.clone()).collect();
    let factors = (prim.factors)(&types, shapes);
    verify::factors(&factors, &types, shapes).map_err(prim.contradiction)?;
    let rule = TypingContext {
        primitive_name: prim.primitive_name,
        mesh: &mesh,
        factors: &factors,
        operands,
        shapes,
        elementwise,
    };
    let entries = rule.join_loops(out.is_some())?;
    let (u, r) = rule.sets(prim.linearity, out)?;
    let mut results = Vec::with_capacity(shapes.len());
    for (i, (dtype, shape)) in shapes.iter().enumerate() {
        let dims = match out {
            Some(out) if i == 0 => out.dims().to_vec(),
            _ => rule.result_entries(i, &entries)?,
        };
        let mut spec = Spec::from_dims(dims);
        if !(u.is_empty() && r.is_empty()) {
            spec = spec.unreduced(&u).reduced(&r).in_order(&mesh);
            check_unreduced_dtype(spec, *dtype)?;
        }
        rule.check_axes_unique(spec)?;
        rule.check_divides(spec, shape)?;
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

/// Returns the operands' common spec in the most common case of an elementwise operation.
/// In this case, all operands (except literals) have the result's shape, the same sharding, and
/// empty sets. The general rules would return the same spec, but are slower.
fn common_spec(operands: &[TypedOperand], shapes: &[(DType, Shape)]) -> Option<Spec> {
    let [(_, shape)] = shapes else { return None };
    let mut common: Option<Spec> = None;
    for o in operands.iter().filter(|o| !(o.is_literal && o.ty.shape.is_empty())) {
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

/// Checks a requested output sharding.
/// Its axes must be explicit, in the mesh, and used once, and must divide the dimensions.
pub fn check_out_sharding(mesh: &Mesh, spec: Spec, shape: &[usize]) -> Result<Spec, Fault> {
    // the fault is about the result's dimensions, so no operand is highlighted
    check_spec(mesh, spec, shape.len(), &[AxisType::Explicit])
        .and_then(|checked| check_divides(mesh, checked, shape).map(|()| checked))
        .map_err(|fault| Fault { highlights: Vec::new(), ..for_result(fault, spec, shape.len()) })
}

fn no_mesh(spec: Spec) -> Fault {
    fault!(
        Mesh,
        "the result is asked to be sharded as {spec}, but no operand is on a mesh that has these axes"
    )
    .help("put an operand on the mesh first: `x.put(&mesh, p![…])`")
}

/// Returns the common mesh of the operands.
/// A value that is not on a mesh can be used on any mesh, as replicated.
pub fn common_mesh(operands: &[TypedOperand], requested: Option<&Mesh>) -> Result<Option<Mesh>, Fault> {
    let mut found: Option<(&Mesh, usize)> = None;
    for (k, o) in operands.iter().enumerate() {
        match (&o.ty.mesh, found) {
            (Some(mesh), Some((first, j))) if mesh != first => {
                return Err(mesh_mismatch((j, first), (k, mesh))
                    .help(format!("put one of them on the other's mesh: `x.put(&mesh, {})`", o.ty.spec)));
            }
            (Some(mesh), None) => found = Some((mesh, k)),
            _ => {}
        }
    }
    match (found, requested) {
        (Some((mesh, k)), Some(asked)) if mesh != asked => {
            Err(fault!(Mesh, "operand {k} is on {mesh}, but the result is asked to be on {asked}")
                .help("name the operands' mesh, or move the result: `.put(&mesh, p![…])`"))
        }
        (found, asked) => Ok(found.map(|f| f.0).or(asked).cloned()),
    }
}

fn mesh_mismatch((j, first): (usize, &Mesh), (k, other): (usize, &Mesh)) -> Fault {
    let (one, two) = (first.to_string(), other.to_string());
    let differ = if one == two { ", over other devices or in another order" } else { "" };
    fault!(
        Mesh,
        "operand {j} is on {one}, operand {k} on {two}{differ}: the operands of an operation must be on one mesh"
    )
}

/// Makes all operands of an operation inside `shard_map` vary over the same axes.
///
/// These are the union of the axes over which the operands vary. An operand that is reduced over
/// exactly the axes that it lacks becomes varying. An operand that is unreduced over an axis that
/// it lacks, or reduced over only some of them, is an error.
pub fn unify_varying<'a>(
    operands: &'a [TypedOperand],
    mesh: Option<&Mesh>,
) -> Result<(Cow<'a, [TypedOperand]>, Axes), Fault> {
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
            let (state, help) = if u.contains(*axis) {
                ("unreduced", format!("sum it first: `x.psum({:?})`", axis.name()))
            } else {
                ("reduced", format!("cast it first: `x.pcast({:?}, PcastTo::Varying)`", axis.name()))
            };
            return Err(fault!(
                Sharding,
                "operand {}, {}, is {state} over {axis}, over which another operand varies",
                o.user_index(k),
                o.user_type()
            )
            .help(help)
            .highlight(k, TypePart::Sets));
        }
        o.ty.varying = Axes::from(&union[..]);
    }
    Ok((Cow::Owned(operands), Axes::from(union)))
}
