//! Structural primitives: operations that move elements and compute nothing.
//!
//! They are linear: their tangent is the same primitive applied to the operand's tangent. To define
//! one, implement [`StructuralOp`], which implements [`Primitive`] with the rules that all of them
//! share. This module also has macros for derivative rules that other families use.

use super::dim_check::arity;
use crate::core::{ArrayType, DType, Fault, Result, Shape, Spec};
use crate::ir::program::{
    BatchedOp, Builder, Factors, Linearity, LoopNest, Prim, Primitive, Priority, Remat, ShardingConstraint,
    Tangents, TransposeArgs, TypedOperand, Value, VmapArgs, typing,
};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// A structural primitive.
///
/// In its methods, `x` is the operand and `y` is the result.
pub trait StructuralOp: Clone + Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// The name of the primitive, as programs print it.
    const NAME: &'static str;
    /// The propagation priority of the primitive.
    const PRIORITY: Priority;
    /// Formats the parameters.
    fn format_params(&self) -> String;
    /// Returns the shape of the result, or an error if the operand has a wrong rank or size.
    fn shape(&self, x: &ArrayType) -> Result<Shape, Fault>;
    /// Returns the factors.
    fn loops(&self, x: &ArrayType, y: &Shape) -> Factors;
    /// Returns the cotangent of the operand, from the cotangent of the result.
    fn operand_cotangent(&self, b: &mut Builder, ct: &Value, x: &ArrayType) -> Result<Value>;
    /// Returns the loop nest of the result, which only reads.
    fn view_nests(&self, x: &ArrayType, y: &ArrayType) -> Vec<LoopNest>;
    /// Returns the primitive for a batch of examples, with the batch dimension in front.
    fn with_batch_dim(&self, batch: &VmapArgs<'_>) -> Self;

    /// Returns the requested sharding of the result.
    ///
    /// `None` if it is inferred.
    fn requested_sharding(&self) -> Option<Spec> {
        None
    }
    /// Returns the primitive with a requested sharding; `None` if it does not take one.
    fn with_requested_sharding(&self, out: Spec) -> Option<Self> {
        let _ = out;
        None
    }
    /// Returns the type of the result, which is inferred from the factors by default.
    fn result_type(&self, x: &TypedOperand) -> Result<ArrayType, Fault> {
        Ok(typing::by_factors(self, std::slice::from_ref(x))?.swap_remove(0))
    }
    /// Returns the sharding constraint on the result; `None` if there is none.
    fn sharding_constraint(&self) -> Option<ShardingConstraint> {
        None
    }
    /// Returns when derivatives recompute the result instead of saving it.
    fn remat_policy(&self) -> Remat {
        Remat::for_priority(Self::PRIORITY)
    }
}

/// Defines the JVP of a linear primitive with one operand: the primitive applied to the tangent.
macro_rules! linear_jvp {
    () => {
        fn jvp(
            &self,
            crate::ir::program::JvpArgs { builder, tangents, .. }: crate::ir::program::JvpArgs<'_>,
        ) -> Result<Tangents> {
            let Some(t) = &tangents[0] else { return Ok(vec![None]) };
            Ok(vec![Some(builder.emit1(Arc::new(self.clone()), std::slice::from_ref(t))?)])
        }
    };
}
pub(super) use linear_jvp;

/// Defines the rules of a primitive that has no derivative.
///
/// This is for results that are locally constant or are not floats.
macro_rules! no_derivative {
    ($name:literal) => {
        fn jvp(&self, _: crate::ir::program::JvpArgs<'_>) -> Result<Tangents> {
            Ok(vec![None])
        }
        fn transpose(&self, _: crate::ir::program::TransposeArgs<'_>) -> Result<Tangents> {
            Err(crate::ir::program::typing::not_linear_error($name))
        }
    };
}
pub(super) use no_derivative;

/// Defines the rules of a primitive whose field `out_sharding` is the sharding that users request.
macro_rules! out_sharding_rules {
    () => {
        fn out_sharding(&self) -> Option<crate::core::sharding::Spec> {
            self.out_sharding
        }
        fn with_out_sharding(&self, out: crate::core::sharding::Spec) -> Option<crate::ir::program::Prim> {
            Some(Arc::new(Self { out_sharding: Some(out), ..self.clone() }))
        }
    };
}
pub(super) use out_sharding_rules;

impl<M: StructuralOp> Primitive for M {
    fn name(&self) -> &'static str {
        M::NAME
    }
    fn params(&self) -> String {
        self.format_params()
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(M::NAME, operands, 1)?[0];
        Ok(vec![(x.dtype, self.shape(x)?)])
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        arity(M::NAME, operands, 1)?;
        Ok(vec![self.result_type(&operands[0])?])
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
    fn out_sharding(&self) -> Option<Spec> {
        self.requested_sharding()
    }
    fn with_out_sharding(&self, out: Spec) -> Option<Prim> {
        self.with_requested_sharding(out).map(|p| Arc::new(p) as Prim)
    }
    linear_jvp!();
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, types, cotangents, .. } = args;
        Ok(vec![cotangents[0].as_ref().map(|ct| self.operand_cotangent(b, ct, &types[0])).transpose()?])
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        self.view_nests(&operands[0], &results[0])
    }
    fn constraint(&self) -> Option<ShardingConstraint> {
        self.sharding_constraint()
    }
    fn remat(&self) -> Remat {
        self.remat_policy()
    }
    fn vmap(&self, batch: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(self.with_batch_dim(batch)))
    }
}
