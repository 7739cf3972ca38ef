//! The state of typing one equation, which the rules and the help texts read.

use crate::core::{Axes, DType, ErrorKind, Fault, Mesh, Shape};
use crate::ir::{program::TypedOperand, program::factors::Factors};

/// A dimension of an operand that runs over a loop.
pub(super) struct LoopDim {
    pub(super) operand: usize,
    pub(super) dim: usize,
    pub(super) entry: Axes,
    pub(super) broadcast: bool,
}

/// The context of typing one equation.
pub(super) struct TypingContext<'a> {
    pub(super) primitive_name: &'a str,
    pub(super) mesh: &'a Mesh,
    pub(super) factors: &'a Factors,
    pub(super) operands: &'a [TypedOperand],
    pub(super) shapes: &'a [(DType, Shape)],
    /// True if each element depends on the operands' elements at the same index, with broadcasting.
    pub(super) elementwise: bool,
}

impl TypingContext<'_> {
    /// Returns text about a dimension of an operand, for messages.
    pub(super) fn describe_dim(&self, operand: usize, dim: usize) -> String {
        let o = &self.operands[operand];
        let (ty, d) = o.user_dim(dim).map_or((&o.ty, dim), |d| (o.user_type(), d));
        let axes = Axes::from(ty.spec.dim(d));
        let at = if axes.is_empty() { String::new() } else { format!("@{axes}") };
        let of = match self.operands.len() {
            1 => "the operand".into(),
            _ => format!("operand {}", o.user_index(operand)),
        };
        format!("dimension {d} of {of}, {}{at},", ty.shape[d])
    }
    pub(super) fn sharding_fault(&self, message: String) -> Fault {
        Fault::new(ErrorKind::Sharding, message)
    }
    /// Returns the number of shards that these axes make.
    pub(super) fn num_shards(&self, axes: &Axes) -> usize {
        axes.iter().map(|a| self.mesh.extent(a)).product()
    }
}
