//! The same blocks to another type of what varies: pvary, pcast.

use super::{Along, Preduce, State, collective_common, passing, transposed_by, vma};
use crate::diagnostic::{Fault, Result};
use crate::ops::moves::linear_jvp;
use crate::program::sentence::{Combine, Sentence};
use crate::program::{Batch, Batched};
use crate::program::{Collective, Factors, Linearity, Operand, Prim, Primitive, Priority, Tangents};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// What a cast makes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cast {
    /// To varying, from invarying or reduced.
    Varying,
    /// To reduced, from invarying.
    Reduced,
    /// To unreduced, from varying.
    Unreduced,
}

/// The same blocks with another type: `pvary`, `pcast`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pcast {
    /// Over which axes.
    pub along: Along,
    /// To what.
    pub to: Cast,
}

impl Primitive for Pcast {
    fn name(&self) -> &'static str {
        match self.to {
            Cast::Varying => "pvary",
            _ => "pcast",
        }
    }
    collective_common!();
    fn params(&self) -> String {
        let to = match self.to {
            Cast::Varying => "",
            Cast::Reduced => ", to=reduced",
            Cast::Unreduced => ", to=unreduced",
        };
        format!("{}{to}", self.along.print())
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        if !self.along.checked || self.along.axes.is_empty() {
            return Ok(vec![x.clone()]);
        }
        let from = self.along.state(self.name(), x)?;
        let to = match (from, self.to) {
            (State::Invarying | State::Reduced, Cast::Varying) => State::Varying,
            (State::Invarying, Cast::Reduced) => State::Reduced,
            (State::Varying, Cast::Unreduced) => State::Unreduced,
            (from, to) => {
                let to = match to {
                    Cast::Varying => "varying",
                    Cast::Reduced => "reduced",
                    Cast::Unreduced => "unreduced",
                };
                let axes = &self.along.axes;
                return Err(vma(format!("there is no cast from {} to {to} over {axes}", from.name()))
                    .help("casts go from invarying to varying or reduced, from reduced to varying, from varying to unreduced"));
            }
        };
        Ok(vec![self.along.same(x, to)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, Some)
    }
    linear_jvp!();
    transposed_by!(|self, types| {
        let along = self.along.clone();
        let cast = |to| Some(Arc::new(Pcast { along: along.clone(), to }) as Prim);
        match (self.along.state(self.name(), &types[0])?, self.to) {
            _ if !self.along.checked => None,
            (State::Reduced, Cast::Varying) => cast(Cast::Unreduced),
            (_, Cast::Unreduced) => cast(Cast::Varying),
            _ => Some(Arc::new(Preduce { along, combine: Combine::Add })),
        }
    });
    fn collective(&self) -> Option<Collective> {
        Some(Collective::Cast { axes: self.along.axes.as_slice().to_vec() })
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
        pvary_is_summed_back: Pcast { along: along(), to: Cast::Varying }, ["float32[4]"] of Manual => "
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
