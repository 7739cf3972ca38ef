//! Short names for primitives on a program under construction, for derivative rules and for operations made of several.
//!
//! Families add their own methods to [`Builder`] in blocks of their own.

use crate::program::Builder;
use crate::types::ArrayType;

/// The type of a value's cotangent: its own with the unreduced and the reduced set traded.
pub fn cotangent_type(ty: &ArrayType) -> ArrayType {
    let spec = ty.spec;
    let traded = spec.unreduced(spec.reduced_axes()).reduced(spec.unreduced_axes());
    ArrayType { spec: traded, ..ty.clone() }
}

impl Builder {}
