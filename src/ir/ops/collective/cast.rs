//! Casts between varying states: `pvary` and `pcast`.
//!
//! A cast changes the type of a value, but not the blocks on the devices.

use super::{CollectiveGroup, Preduce, VaryingState, collective_common, passthrough_factors, transpose_rule};
use crate::core::{ArrayType, DType, Fault, Result, Shape};
use crate::ir::ops::structural::linear_jvp;
use crate::ir::program::{
    BatchedOp, Factors, Linearity, LoopNest, ManualCollective, Prim, Primitive, Reducer, Tangents,
    TypedOperand, VmapArgs,
};
use std::sync::Arc;

/// The varying state that a cast produces.
///
/// ```
/// use atmesh::{PcastTo, prelude::*};
/// let mesh = Mesh::new([("X", 2)])?;
/// let f = shard_map(&mesh, p![], p!["X"], |x: &Array| {
///     let own = x.pcast("X", PcastTo::Varying);
///     assert_eq!(type_of(&own), "int32[1]{V:X}");
///     own
/// });
/// assert_eq!(f.call(Array::from([7]))?.to_vec::<i32>()?, [7, 7]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PcastTo {
    /// Casts an invarying or reduced value to varying.
    Varying,
    /// Casts an invarying value to reduced.
    Reduced,
    /// Casts a varying value to unreduced.
    Unreduced,
}

/// A cast of the varying state of a value, which does not change its blocks: `pvary`, `pcast`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pcast {
    /// The mesh axes over which the state changes.
    pub group: CollectiveGroup,
    /// The state of the result.
    pub to: PcastTo,
}

impl Primitive for Pcast {
    fn name(&self) -> &'static str {
        match self.to {
            PcastTo::Varying => "pvary",
            _ => "pcast",
        }
    }
    collective_common!();
    fn params(&self) -> String {
        let to = match self.to {
            PcastTo::Varying => "",
            PcastTo::Reduced => ", to=reduced",
            PcastTo::Unreduced => ", to=unreduced",
        };
        format!("{}{to}", self.group.format_axes())
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        if !self.group.checked || self.group.axes.is_empty() {
            return Ok(vec![x.clone()]);
        }
        let from = self.group.common_state(self.name(), x)?;
        let to = match (from, self.to) {
            (VaryingState::Invarying | VaryingState::Reduced, PcastTo::Varying) => VaryingState::Varying,
            (VaryingState::Invarying, PcastTo::Reduced) => VaryingState::Reduced,
            (VaryingState::Varying, PcastTo::Unreduced) => VaryingState::Unreduced,
            (from, to) => {
                let to = match to {
                    PcastTo::Varying => "varying",
                    PcastTo::Reduced => "reduced",
                    PcastTo::Unreduced => "unreduced",
                };
                let axes = &self.group.axes;
                return Err(fault!(Varying, "there is no cast from {} to {to} over {axes}", from.name())
                    .help("casts go from invarying to varying or reduced, from reduced to varying, from varying to unreduced"));
            }
        };
        Ok(vec![self.group.same_shape_type(x, to)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passthrough_factors(&operands[0], &results[0].1, &Some)
    }
    linear_jvp!();
    transpose_rule!(|self, types| {
        let along = self.group.clone();
        let cast = |to| Some(Arc::new(Pcast { group: along.clone(), to }) as Prim);
        match (self.group.common_state(self.name(), &types[0])?, self.to) {
            _ if !self.group.checked => None,
            (VaryingState::Reduced, PcastTo::Varying) => cast(PcastTo::Unreduced),
            (_, PcastTo::Unreduced) => cast(PcastTo::Varying),
            _ => Some(Arc::new(Preduce { group: along, reducer: Reducer::Add })),
        }
    });
    fn collective(&self) -> Option<ManualCollective> {
        Some(ManualCollective::Pcast { axes: self.group.axes.as_slice().to_vec() })
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
        pvary_is_summed_back: Pcast { group: example_group(), to: PcastTo::Varying }, ["float32[4]"] of Manual => "
            (a: float32[4]) {
              b: float32[4]{V:X} = pvary[axes=X] a
              return b
            }
            tangents: (a: float32[4], b: float32[4]) {
              c: float32[4]{V:X} = pvary[axes=X] a
              d: float32[4]{V:X} = pvary[axes=X] b
              return c, d
            }
            cotangents: (a: float32[4]{V:X}) {
              b: float32[4] = psum[axes=X] a
              return b
            }
        ";
    }
}
