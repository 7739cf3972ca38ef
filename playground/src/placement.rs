//! Placements over auto axes, which types do not show.
//!
//! An operand's type may be followed by `over [X,_]`, as in printed listings.

use crate::error::ErrorResponse;
use crate::fixit;
use crate::syntax;
use atmesh::{Array, ArrayType, Axes, Axis, AxisType, Mesh, Sharding, Spec};

/// Splits a text at `over`: returns the type, and the spec if there is one.
pub(crate) fn split(text: &str) -> Result<(&str, Option<Spec>), ErrorResponse> {
    match text.split_once(" over ") {
        None => Ok((text, None)),
        Some((ty, spec)) => Ok((ty, Some(syntax::spec(spec).map_err(ErrorResponse::syntax)?))),
    }
}

/// Combines the type's spec with a placement over auto axes.
pub(crate) fn joined(ty: &ArrayType, over: Option<Spec>, mesh: &Mesh) -> Result<Spec, ErrorResponse> {
    let Some(over) = over else { return Ok(ty.spec) };
    let rank = ty.shape.len();
    if over.dims().len() > rank {
        let entries = over.dims().len();
        return Err(syntax_error!("{ty} has {rank} dimensions, and {over} has entries for {entries}"));
    }
    let (own, over) = (ty.spec.padded(rank), over.padded(rank));
    // listings repeat the explicit axes of the type
    let further = |d: usize| over.dim(d).iter().filter(move |a| !own.dim(d).contains(a)).copied();
    let auto = mesh.axes_of(AxisType::Auto);
    if let Some(a) = (0..rank).flat_map(further).find(|a| !auto.contains(a)) {
        let help = match mesh.axis_size(a) {
            Ok(_) => format!("write it in the type, like 8@{a}"),
            Err(_) => format!("add it to the mesh, like {a}=4 auto"),
        };
        return Err(syntax_error!("{a} is no auto axis of {mesh}: {help}"));
    }
    let both = |d: usize| own.dim(d).iter().copied().chain(further(d)).collect();
    Ok(ty.spec.with_dims((0..rank).map(both).collect()))
}

/// Returns the sharding of a value; `None` if the spec does not fit the type.
pub(crate) fn sharding(ty: &ArrayType, spec: Spec, mesh: &Mesh) -> Option<Sharding> {
    Sharding::new(mesh, spec, &ty.shape).ok()
}

/// Returns the placement over auto axes of the result of a listing.
pub(crate) fn of_result(listing: &str) -> Option<Spec> {
    let name = listing.lines().rev().find_map(|l| l.trim().strip_prefix("return "))?.trim();
    let is = |l: &&str| l.trim_start().trim_start_matches('(').starts_with(&format!("{name}: "));
    let line = listing.lines().find(is)?;
    let (_, rest) = line.split_once(" over [")?;
    let (dims, _) = rest.split_once(']')?;
    syntax::spec(dims).ok()
}

/// Moves the result to the target: resharded over explicit axes, constrained over auto axes.
pub(crate) fn at(x: Array, target: Spec, mesh: &Mesh) -> Result<Array, ErrorResponse> {
    let auto = mesh.axes_of(AxisType::Auto);
    let of = |kind: bool| -> Vec<Axes> {
        let keep = |a: &Axis| auto.contains(a) == kind;
        target.dims().iter().map(|axes| axes.iter().filter(keep).collect()).collect()
    };
    let explicit = target.with_dims(of(false));
    let mut out = x;
    if auto.is_empty() || explicit.all_axes().next().is_some() {
        out = out.reshard(explicit);
    }
    if !auto.is_empty() {
        out = out.constrain(Spec::from_dims(of(true)));
    }
    match out.ty() {
        Ok(_) => Ok(out),
        Err(e) => Err(fixit::without_source(&e).within("target")),
    }
}
