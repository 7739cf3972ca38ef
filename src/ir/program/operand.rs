//! The operands of the typing rules: a type, and the user's view of it for error messages.

use super::UserOperand;
use crate::core::ArrayType;
use std::sync::Arc;

/// An operand of the typing rules: its type, and the user's view of it for error messages.
#[derive(Clone, Debug)]
pub struct TypedOperand {
    /// The type of the user's operand.
    pub ty: ArrayType,
    /// True for a literal written by the user.
    /// It adapts to any sharding and any unreduced or reduced set.
    pub is_literal: bool,
    /// The user's view of the operand; `None` if the user's operand is the operand itself.
    user_view: Option<Arc<UserView>>,
}

/// The operand of the user's call that an operand was made from.
#[derive(Clone, Debug)]
struct UserView {
    index: usize,
    ty: ArrayType,
    dims: Option<Vec<usize>>,
}

conversions! { TypedOperand: [] ArrayType => |ty| TypedOperand::new(ty, false); }

impl TypedOperand {
    /// Returns an operand of this type; `is_literal` is true for a literal written by the user.
    pub fn new(ty: ArrayType, is_literal: bool) -> TypedOperand {
        TypedOperand { ty, is_literal, user_view: None }
    }
    /// Returns this operand with the user's view of it, which error messages use.
    pub(super) fn with_user_operand(&self, source: Option<&UserOperand<'_>>) -> TypedOperand {
        let known = |s: &UserOperand<'_>| UserView {
            index: s.index,
            ty: s.ty.unwrap_or(&self.ty).clone(),
            dims: s.dims.map(Into::into),
        };
        TypedOperand { user_view: source.map(known).map(Arc::new), ..self.clone() }
    }
    /// Returns the index that messages use for this operand, the k-th one of its operation.
    pub(crate) fn user_index(&self, k: usize) -> usize {
        self.user_view.as_ref().map_or(k, |known| known.index)
    }
    /// Returns the user's dimension that corresponds to dimension `d`.
    /// Returns `None` if the call added dimension `d` to the user's operand.
    pub(crate) fn user_dim(&self, d: usize) -> Option<usize> {
        let dim = match self.user_view.as_ref().and_then(|known| known.dims.as_ref()) {
            Some(dims) => *dims.get(d)?,
            None => d,
        };
        (dim < self.user_type().rank()).then_some(dim)
    }
    /// Returns the type of the user's operand.
    pub(crate) fn user_type(&self) -> &ArrayType {
        self.user_view.as_ref().map_or(&self.ty, |known| &known.ty)
    }
    /// Returns text such as `dimension 1 of operand 0`, for this operand, the k-th one.
    pub(crate) fn describe_dim(&self, k: usize, d: usize) -> String {
        format!("dimension {} of operand {}", self.user_dim(d).unwrap_or(d), self.user_index(k))
    }
}
