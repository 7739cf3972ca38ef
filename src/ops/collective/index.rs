//! Where a device stands: axis_index.

use super::{Along, State, collective_common};
use crate::diagnostic::{Fault, Result};
use crate::ops::view::arity;
use crate::program::sentence::Sentence;
use crate::program::{Batch, Batched};
use crate::program::{Builder, Collective, Factors, Linearity, Operand, Primitive, Rank, Tangents, Value};
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
    fn jvp(
        &self,
        _b: &mut Builder,
        _operands: &[Value],
        _tangents: &[Option<Value>],
        _outputs: &[Value],
    ) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(
        &self,
        _b: &mut Builder,
        _operands: &[Option<Value>],
        _types: &[ArrayType],
        _cotangents: &[Option<Value>],
    ) -> Result<Tangents> {
        Ok(Vec::new())
    }
    fn collective(&self) -> Option<Collective> {
        Some(Collective::AxisIndex { axes: self.along.axes.clone() })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}
