//! The operands of operations on arrays.

use crate::api::trace::{Array, PlacedType, Repr};
use crate::core::Result;
use crate::ir::program::{Input, Literal};
use std::sync::Arc;

/// An operand of an operation on arrays.
#[derive(Clone)]
pub(crate) enum ArrayOrLiteral {
    /// An array.
    Array(Array),
    /// A literal, which combines with operands of any sharding.
    Lit(Literal),
}
conversions! { ArrayOrLiteral:
    [] &Array => |a| ArrayOrLiteral::Array(a.clone());
    [] Array => |a| ArrayOrLiteral::Array(a);
    [] Literal => |l| ArrayOrLiteral::Lit(l);
}

impl ArrayOrLiteral {
    /// Returns the literal, also if it is a value of a trace: a literal belongs to no trace.
    pub(super) fn literal(&self) -> Option<Literal> {
        let traced = match self {
            ArrayOrLiteral::Lit(l) => return Some(*l),
            ArrayOrLiteral::Array(a) => match a.repr() {
                Repr::Traced(traced) => traced,
                Repr::Concrete(_) | Repr::Poisoned(_) => return None,
            },
        };
        match traced.value.input {
            Input::Lit(l) => Some(l),
            Input::Var(_) => None,
        }
    }
    /// Returns the type and sharding of a concrete array; `None` for other operands.
    pub(super) fn concrete_type(&self) -> Option<&Arc<PlacedType>> {
        match self {
            ArrayOrLiteral::Lit(_) => None,
            ArrayOrLiteral::Array(a) => match a.repr() {
                Repr::Concrete(c) => Some(c),
                Repr::Traced(_) | Repr::Poisoned(_) => None,
            },
        }
    }
    /// Returns an error unless the operand is a concrete array or a literal.
    pub(super) fn check_concrete(&self) -> Result<()> {
        match self {
            ArrayOrLiteral::Array(a) if self.literal().is_none() => match a.repr() {
                Repr::Concrete(_) => Ok(()),
                Repr::Traced(_) => Err(fault!(Trace, "this value belongs to a program").into()),
                Repr::Poisoned(e) => Err(e.clone()),
            },
            _ => Ok(()),
        }
    }
}
