//! One value of all devices' blocks, element by element: psum, pmax, pmin.

use super::{Along, Cast, Pcast, State, collective_common, passing, transposed_by};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::elementwise::Takes;
use crate::program::Forward;
use crate::program::sentence::{Combine, Sentence};
use crate::program::{Batch, Batched};
use crate::program::{Collective, Factors, Linearity, Operand, Prim, Primitive, Priority, Tangents};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// Combines the blocks of all devices element by element: `psum`, `pmax`, `pmin`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Preduce {
    /// Among whom.
    pub along: Along,
    /// How: [`Combine::Add`], [`Combine::Max`] or [`Combine::Min`].
    pub combine: Combine,
}

impl Preduce {
    fn cast(&self, to: Cast) -> Option<Prim> {
        Some(Arc::new(Pcast { along: self.along.clone(), to }))
    }
}

impl Primitive for Preduce {
    fn name(&self) -> &'static str {
        match self.combine {
            Combine::Add => "psum",
            Combine::Mul => "pprod",
            // of bools the greatest is their disjunction, the least their conjunction
            Combine::Max | Combine::Or | Combine::Same => "pmax",
            Combine::Min | Combine::And => "pmin",
        }
    }
    collective_common!();
    fn params(&self) -> String {
        self.along.print()
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        if self.combine == Combine::Add {
            Takes::Number.check(operands, 0)?;
            if self.along.state("psum", x)? == State::Reduced {
                self.along.may_vary("psum", x)?;
            }
        } else {
            Takes::Ordered.check(operands, 0)?;
            self.along.may_vary(self.name(), x)?;
        }
        Ok(vec![self.along.same(x, State::Invarying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, Some)
    }
    fn jvp(&self, Forward { b, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        if self.combine != Combine::Add {
            let name = self.name();
            let fault = Fault::new(ErrorKind::Unsupported, "it has no derivative")
                .help(format!("if it only scales, stop the derivative first: `x.stop_gradient().{name}(…)`"));
            return Err(b.refuse(fault, name, std::slice::from_ref(t)));
        }
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?)])
    }
    transposed_by!(|self, types| match self.along.state("psum", &types[0])? {
        // without types of what varies a sum of sums is what the transpose is
        _ if !self.along.checked => Some(Arc::new(self.clone())),
        State::Unreduced => self.cast(Cast::Reduced),
        _ => self.cast(Cast::Varying),
    });
    fn collective(&self) -> Option<Collective> {
        Some(Collective::Reduce { axes: self.along.axes.clone(), combine: self.combine })
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
        psum_no_longer_varies: Preduce { along: along(), combine: Combine::Add }, ["float32[4]{V:X}"] of Manual => "
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
        pmax_has_no_derivative: Preduce { along: along(), combine: Combine::Max }, ["float32[4]{V:X}"] of Manual => "
            (a: float32[4]{V:X}) {
              b: float32[4] = pmax[axes=X] a
              return b
            }
            no derivative: it has no derivative
            if it only scales, stop the derivative first: `x.stop_gradient().pmax(…)`
        ";
    }
}
