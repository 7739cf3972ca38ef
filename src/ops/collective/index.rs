//! The index of a device: axis_index.

use super::{Along, State, collective_common};
use crate::diagnostic::{Fault, Result};
use crate::ops::view::arity;
use crate::program::sentence::Sentence;
use crate::program::{Back, Forward};
use crate::program::{Batch, Batched};
use crate::program::{Collective, Factors, Linearity, Operand, Primitive, Priority, Tangents};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// The device's position along the axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AxisIndex {
    /// Along which.
    pub along: Along,
}

impl Primitive for AxisIndex {
    collective_common!("axis_index");
    fn params(&self) -> String {
        self.along.print()
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        arity(self.name(), operands, 0)?;
        self.along.check()?;
        Ok(vec![self.along.same(&DType::I32.of([]), State::Varying)?])
    }
    fn factors(&self, _operands: &[ArrayType], _results: &[(DType, Shape)]) -> Factors {
        Factors { results: vec![Vec::new()], ..Factors::default() }
    }
    fn jvp(&self, _: Forward<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, _: Back<'_>) -> Result<Tangents> {
        Ok(Vec::new())
    }
    fn collective(&self) -> Option<Collective> {
        Some(Collective::AxisIndex { axes: self.along.axes.clone() })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::along;
    use crate::ops::check::check_prim;

    check_prim! {
        axis_index_varies: AxisIndex { along: along() }, [] of Manual => "
            () {
              a: int32[]{V:X} = axis_index[axes=X]
              return a
            }
        ";
    }
}
