//! The primitive `axis_index`, which returns the index of a device along mesh axes.

use super::{CollectiveGroup, VaryingState, collective_common};
use crate::core::{ArrayType, DType, Fault, Result, Shape};
use crate::ir::ops::dim_check::arity;
use crate::ir::program::{
    BatchedOp, Factors, JvpArgs, Linearity, LoopNest, ManualCollective, Primitive, Tangents, TransposeArgs,
    TypedOperand, VmapArgs,
};
use std::sync::Arc;

/// The index of the device within its group, as an int32 scalar: `axis_index`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AxisIndex {
    /// The group of devices in which the index is counted.
    pub group: CollectiveGroup,
}

impl Primitive for AxisIndex {
    collective_common!("axis_index");
    fn params(&self) -> String {
        self.group.format_axes()
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        arity(self.name(), operands, 0)?;
        self.group.check()?;
        Ok(vec![self.group.same_shape_type(&DType::I32.array_type([]), VaryingState::Varying)?])
    }
    fn factors(&self, _operands: &[ArrayType], _results: &[(DType, Shape)]) -> Factors {
        Factors { results: vec![Vec::new()], ..Factors::default() }
    }
    fn jvp(&self, _: JvpArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(Vec::new())
    }
    fn collective(&self) -> Option<ManualCollective> {
        Some(ManualCollective::AxisIndex { axes: self.group.axes.clone() })
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::example_group;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        axis_index_varies: AxisIndex { group: example_group() }, [] of Manual => "
            () {
              a: int32[]{V:X} = axis_index[axes=X]
              return a
            }
        ";
    }
}
