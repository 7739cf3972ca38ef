//! Agreement of two types: their common type, how they differ, and how to convert one to the other.

use crate::core::{ArrayType, ErrorKind, Fault, SourceLocation, TypePart};
use crate::ir::program::{Input, Program};

/// Returns the common type of two values, or `None`.
/// An unplaced value agrees with a replicated one on any mesh.
pub(crate) fn unify(a: &ArrayType, b: &ArrayType) -> Option<ArrayType> {
    if a == b {
        return Some(a.clone());
    }
    let replicated = |t: &ArrayType| t.spec.is_replicated() && t.varying.is_empty();
    let alike = a.dtype == b.dtype && a.shape == b.shape && replicated(a) && replicated(b);
    match (&a.mesh, &b.mesh) {
        (None, Some(_)) if alike => Some(b.clone()),
        (Some(_), None) if alike => Some(a.clone()),
        _ => None,
    }
}

/// Returns the first difference of two types: shape, element type, varying axes or sharding.
pub(crate) fn first_difference(a: &ArrayType, b: &ArrayType) -> ErrorKind {
    if a.shape != b.shape {
        ErrorKind::Shape
    } else if a.dtype != b.dtype {
        ErrorKind::Dtype
    } else if a.varying != b.varying {
        ErrorKind::Varying
    } else {
        ErrorKind::Sharding
    }
}

/// Highlights, in operand `k` of type `ty`, the part of the type that differs from `other`.
pub(crate) fn mark_difference(fault: Fault, k: usize, ty: &ArrayType, other: &ArrayType) -> Fault {
    match first_difference(ty, other) {
        ErrorKind::Dtype => fault.highlight(k, TypePart::Dtype),
        ErrorKind::Varying => fault.highlight(k, TypePart::Sets),
        ErrorKind::Shape if ty.rank() != other.rank() => fault,
        kind => {
            let differs = |d: &usize| match kind {
                ErrorKind::Shape => ty.shape[*d] != other.shape[*d],
                _ => ty.spec.dim(*d) != other.spec.dim(*d),
            };
            let dims: Vec<usize> = (0..ty.rank()).filter(differs).collect();
            match dims.is_empty() {
                true => fault.highlight(k, TypePart::Sets),
                false => dims.into_iter().fold(fault, |f, d| f.highlight_dim(k, d)),
            }
        }
    }
}

/// Returns the source location that gave a result the aspect of its type that `kind` names.
///
/// It is the last operation after which that aspect of the type did not change.
pub(crate) fn changed_at(body: &Program, result: usize, kind: ErrorKind) -> Option<SourceLocation> {
    let alike = |a: &ArrayType, b: &ArrayType| match kind {
        ErrorKind::Shape => a.shape == b.shape,
        ErrorKind::Dtype => a.dtype == b.dtype,
        ErrorKind::Varying => a.varying == b.varying,
        _ => a.shape == b.shape && a.spec == b.spec && a.mesh == b.mesh,
    };
    let maker = |input: &Input| match input {
        Input::Var(v) => body.equations.iter().find(|e| e.outputs.contains(v)),
        Input::Lit(_) => None,
    };
    let ty = body.input_type(&body.outputs[result]);
    let mut at = maker(&body.outputs[result])?;
    while let Some(before) = at.inputs.iter().filter(|i| alike(&body.input_type(i), &ty)).find_map(maker) {
        at = before;
    }
    at.location
}

/// Returns the method calls that convert a value to the type and sharding of another. An unplaced
/// value is placed on the mesh.
pub(crate) fn conversion(from: &ArrayType, to: &ArrayType) -> String {
    let convert = if from.dtype == to.dtype { String::new() } else { format!(".astype({:?})", to.dtype) };
    let converted = ArrayType { dtype: to.dtype, ..from.clone() };
    let moved = match (&from.mesh, &to.mesh) {
        _ if unify(&converted, to).is_some() => String::new(),
        (None, Some(_)) => format!(".put(&mesh, {})", to.spec),
        _ => format!(".reshard({})", to.spec.padded(to.rank())),
    };
    // an unreduced sum is resharded before the conversion, so that it is rounded once
    if from.spec.unreduced_axes().is_empty() { convert + &moved } else { moved + &convert }
}

/// Adds a help that converts a value to the required type.
pub(crate) fn suggest_conversion(fault: Fault, is: &ArrayType, expected: &ArrayType) -> Fault {
    match fault.kind {
        ErrorKind::Sharding => fault.help(format!("move it: `{}`", conversion(is, expected))),
        ErrorKind::Dtype => fault.help(format!("convert it: `{}`", conversion(is, expected))),
        ErrorKind::Varying => {
            let more = expected.varying.without(&is.varying);
            fault.help(format!("make it vary: `.pvary({})`", more.quoted()))
        }
        _ => fault.help(format!(
            "bring it to the shape {}: `reshape`, `slice`, `broadcast_to`, a reduction",
            expected.shape
        )),
    }
}
