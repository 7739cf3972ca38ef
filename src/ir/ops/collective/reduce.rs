//! Elementwise reductions over devices: `psum`, `pmax`, and `pmin`.
//!
//! `psum` is linear. In checked regions its transpose is a cast, because types say which values are
//! equal on all devices. `pmax` and `pmin` have no derivative.

use super::{
    CollectiveGroup, Pcast, PcastTo, VaryingState, collective_common, passthrough_factors, transpose_rule,
};
use crate::core::{ArrayType, DType, Fault, Result, Shape};
use crate::ir::ops::elementwise::DTypeClass;
use crate::ir::program::{
    BatchedOp, Factors, JvpArgs, Linearity, LoopNest, ManualCollective, Prim, Primitive, Reducer, Tangents,
    TypedOperand, VmapArgs,
};
use std::sync::Arc;

/// The collective that combines the blocks of all devices elementwise: `psum`, `pmax`, `pmin`.
///
/// Within groups the results differ from group to group, so that the result varies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Preduce {
    /// The participating devices.
    pub group: CollectiveGroup,
    /// The reduction: [`Reducer::Add`], [`Reducer::Max`] or [`Reducer::Min`].
    pub reducer: Reducer,
}

impl Preduce {
    /// Returns a cast over the same devices.
    fn pcast_to(&self, to: PcastTo) -> Option<Prim> {
        Some(Arc::new(Pcast { group: self.group.clone(), to }))
    }
}

impl Primitive for Preduce {
    fn name(&self) -> &'static str {
        match self.reducer {
            Reducer::Add => "psum",
            Reducer::Mul => "pprod",
            // the maximum of bools is their disjunction, and the minimum is their conjunction
            Reducer::Max | Reducer::Or | Reducer::AssumeEqual => "pmax",
            Reducer::Min | Reducer::And => "pmin",
        }
    }
    collective_common!();
    fn params(&self) -> String {
        self.group.format_axes()
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        if self.reducer == Reducer::Add {
            DTypeClass::Number.check(operands, 0)?;
            let state = self.group.common_state("psum", x)?;
            if state == VaryingState::Reduced || self.group.groups.is_some() {
                self.group.check_may_vary("psum", x)?;
            }
        } else {
            DTypeClass::Ordered.check(operands, 0)?;
            self.group.check_may_vary(self.name(), x)?;
        }
        let state = match self.group.groups {
            None => VaryingState::Invarying,
            Some(_) => VaryingState::Varying,
        };
        Ok(vec![self.group.same_shape_type(x, state)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passthrough_factors(&operands[0], &results[0].1, &Some)
    }
    fn jvp(&self, JvpArgs { builder: b, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        if self.reducer != Reducer::Add {
            let name = self.name();
            let fault = fault!(Unsupported, "it has no derivative")
                .help(format!("if it only scales, stop the derivative first: `x.stop_gradient().{name}(…)`"));
            return Err(b.error(fault, name, std::slice::from_ref(t)));
        }
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?)])
    }
    transpose_rule!(|self, types| match self.group.common_state("psum", &types[0])? {
        // In unchecked regions, and within groups, the transpose of a sum is a sum.
        _ if !self.group.checked || self.group.groups.is_some() => Some(Arc::new(self.clone())),
        VaryingState::Unreduced => self.pcast_to(PcastTo::Reduced),
        _ => self.pcast_to(PcastTo::Varying),
    });
    fn collective(&self) -> Option<ManualCollective> {
        let CollectiveGroup { axes, groups, .. } = self.group.clone();
        Some(ManualCollective::AllReduce { axes, groups, reducer: self.reducer })
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
        psum_no_longer_varies: Preduce { group: example_group(), reducer: Reducer::Add }, ["float32[4]{V:X}"] of Manual => "
            (a: float32[4]{V:X}) {
              b: float32[4] = psum[axes=X] a
              return b
            }
            tangents: (a: float32[4]{V:X}, b: float32[4]{V:X}) {
              c: float32[4] = psum[axes=X] a
              d: float32[4] = psum[axes=X] b
              return c, d
            }
            cotangents: (a: float32[4]) {
              b: float32[4]{V:X} = pvary[axes=X] a
              return b
            }
        ";
        pmax_has_no_derivative: Preduce { group: example_group(), reducer: Reducer::Max }, ["float32[4]{V:X}"] of Manual => "
            (a: float32[4]{V:X}) {
              b: float32[4] = pmax[axes=X] a
              return b
            }
            no derivative: it has no derivative
            if it only scales, stop the derivative first: `x.stop_gradient().pmax(…)`
        ";
    }
}
