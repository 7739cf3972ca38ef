//! Primitives of one operand that move elements and compute nothing: what is true of all of them, once.
//!
//! They are linear; their tangent is themselves of the operand's tangent. A primitive of this kind is one `impl Move`.
//! Rules of derivatives that other families share are macros beside it.

use super::view::arity;
use crate::diagnostic::{Fault, Result};
use crate::program::Back;
use crate::program::sentence::Sentence;
use crate::program::typing;
use crate::program::{
    Again, Batch, Batched, Builder, Factors, Linearity, Operand, Pin, Prim, Primitive, Priority, Tangents,
    Value,
};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// A primitive of one operand that moves elements. `x` is the operand, `y` the result.
pub trait Move: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// Its name, as programs print it.
    const NAME: &'static str;
    /// When auto propagation lets it speak.
    const PRIORITY: Priority;
    /// Its parameters as text.
    fn text(&self) -> String;
    /// The shape of the result; refuses operands of wrong rank or size.
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault>;
    /// Its loops.
    fn loops(&self, x: &ArrayType, y: &Shape) -> Factors;
    /// The cotangent of the operand, from that of the result.
    fn back(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value>;
    /// What the result is, element by element.
    fn reads(&self, x: &ArrayType, y: &ArrayType) -> Vec<Sentence>;
    /// The same on all examples of `vmap` at once, which run along a new first dimension.
    fn for_examples(&self, batch: &Batch<'_>) -> Self;

    /// The sharding asked for the result.
    fn asked(&self) -> Option<Spec> {
        None
    }
    /// The same with this one asked for, where its user may ask.
    fn asking(&self, out: Spec) -> Option<Self> {
        let _ = out;
        None
    }
    /// The result's type: from the loops, but for those that say how it is sharded.
    fn typed(&self, x: &Operand) -> Result<ArrayType, Fault> {
        Ok(typing::by_factors(self, std::slice::from_ref(x))?.swap_remove(0))
    }
    /// Whether the result is asked to be sharded as given.
    fn pin(&self) -> Option<Pin> {
        None
    }
    /// When derivatives compute the result again rather than keep it.
    fn recomputed(&self) -> Again {
        Again::by_priority(Self::PRIORITY)
    }
}

/// The tangents of a linear primitive of one operand: itself of the operand's.
macro_rules! linear_jvp {
    () => {
        fn jvp(
            &self,
            crate::program::Forward { b, tangents, .. }: crate::program::Forward<'_>,
        ) -> Result<Tangents> {
            match &tangents[0] {
                Some(t) => Ok(vec![Some(b.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?)]),
                None => Ok(vec![None]),
            }
        }
    };
}
pub(super) use linear_jvp;

/// No tangents and no cotangents: of results that do not change with the operands, or are not numbers that vary smoothly.
macro_rules! no_derivative {
    ($name:literal) => {
        fn jvp(&self, _: crate::program::Forward<'_>) -> Result<Tangents> {
            Ok(vec![None])
        }
        fn transpose(&self, _: crate::program::Back<'_>) -> Result<Tangents> {
            Err(crate::ops::build::not_linear($name))
        }
    };
}
pub(super) use no_derivative;

impl<M: Move> Primitive for M {
    fn name(&self) -> &'static str {
        M::NAME
    }
    fn params(&self) -> String {
        self.text()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(M::NAME, operands, 1)?[0];
        Ok(vec![(x.dtype, self.shape(x)?)])
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        arity(M::NAME, operands, 1)?;
        Ok(vec![self.typed(&operands[0])?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        self.loops(&operands[0], &results[0].1)
    }
    fn linearity(&self) -> Linearity {
        Linearity::Joint
    }
    fn priority(&self) -> Priority {
        M::PRIORITY
    }
    fn out(&self) -> Option<Spec> {
        self.asked()
    }
    fn with_out(&self, out: Spec) -> Option<Prim> {
        self.asking(out).map(|p| Arc::new(p) as Prim)
    }
    linear_jvp!();
    fn transpose(&self, Back { b, types, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        Ok(vec![cotangents[0].as_ref().map(|ct| self.back(b, ct, &types[0])).transpose()?])
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        self.reads(&operands[0], &results[0])
    }
    fn pins(&self) -> Option<Pin> {
        self.pin()
    }
    fn again(&self) -> Again {
        self.recomputed()
    }
    fn batched(&self, batch: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.for_examples(batch)))
    }
}
