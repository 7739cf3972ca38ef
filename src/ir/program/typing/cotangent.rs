//! The types of cotangents, and the error of a transpose that does not exist.

use crate::core::{ArrayType, Error};

/// Returns the type of a value's cotangent: `ty` with its unreduced and reduced sets swapped.
pub fn cotangent_type(ty: &ArrayType) -> ArrayType {
    let spec = ty.spec;
    let traded = spec.unreduced(spec.reduced_axes()).reduced(spec.unreduced_axes());
    ArrayType { spec: traded, ..ty.clone() }
}

/// Returns the error for transposing an operation in an operand in which it is not linear.
pub fn not_linear_error(name: &str) -> Error {
    Error::internal(format!("{name} is not linear in an operand whose cotangent is requested"))
}
