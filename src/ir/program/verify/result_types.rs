//! Verification of result types.

use super::inconsistent_rules;
use crate::core::{ArrayType, AxisType, Fault, Mesh};
use crate::ir::program::{Primitive, TypedOperand};

/// Verifies result types.
/// Specs must name axes of the mesh, each at most once, and the axes must divide the dimensions.
pub(crate) fn types<P: Primitive + ?Sized>(
    prim: &P,
    operands: &[TypedOperand],
    results: &[ArrayType],
) -> Result<(), Fault> {
    if results.is_empty() {
        return Err(inconsistent_rules(prim, "it has no results"));
    }
    for (k, ty) in results.iter().enumerate() {
        // most results are sharded like an operand, which was verified when it was made
        if operands.iter().any(|o| same_placement(&o.ty, ty)) {
            continue;
        }
        let fits = match &ty.mesh {
            _ if ty.spec.dims().len() > ty.rank() => {
                Err(format!("{} has entries for more dimensions", ty.spec))
            }
            None if !ty.spec.is_replicated() || !ty.varying.is_empty() => Err("names axes of no mesh".into()),
            None => Ok(()),
            Some(_) if ty.spec.is_replicated() && ty.varying.is_empty() => Ok(()),
            Some(mesh) => check_placement(mesh, ty),
        };
        fits.map_err(|wrong| {
            inconsistent_rules(prim, format!("result {k}, {}{}, {wrong}", ty.dtype, ty.shape))
        })?;
    }
    Ok(())
}

/// Returns true if the validity of `a`'s sharding implies that of `b`'s.
fn same_placement(a: &ArrayType, b: &ArrayType) -> bool {
    a.spec == b.spec
        && a.shape == b.shape
        && a.varying == b.varying
        && a.mesh == b.mesh
        && (a.dtype == b.dtype || b.dtype.is_number())
}

fn check_placement(mesh: &Mesh, ty: &ArrayType) -> Result<(), String> {
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
        let num_shards: usize = axes.iter().map(|a| mesh.extent(a)).product();
        if !n.is_multiple_of(num_shards) && axes.iter().any(|a| mesh.axis_type(a) != Some(AxisType::Auto)) {
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
