//! Elementwise functions and reducers: the instructions that kernels implement.
//!
//! They are defined outside the IR because the IR and the kernels both use them. `table.rs` has
//! one row for each function. The verifier, the prices, the engines, StableHLO, the primitives and
//! their methods, and the tests read it.

mod info;
mod table;

pub use info::{ResultDType, ScalarOpInfo, StableHloForm, SubnormalResults};
pub use table::ScalarOp;

use crate::core::dtype::{DType, Scalar};

/// An operation that reduces values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each name says it")]
pub enum Reducer {
    Add,
    Mul,
    /// The maximum; NaN if any operand is NaN.
    Max,
    /// The minimum; NaN if any operand is NaN.
    Min,
    And,
    Or,
    /// The first value, under the assumption that all values are equal.
    /// Programs do not contain it. It turns the equal results of unchecked per-device code into one
    /// value.
    AssumeEqual,
}

impl Reducer {
    /// Returns the neutral element: combining it with x gives x.
    pub fn neutral(self, dtype: DType) -> Scalar {
        let dtype = dtype.storage();
        let bits = dtype.real().size() as u32 * 8;
        let least = if dtype.is_signed() { -(1i128 << (bits - 1)) } else { 0 };
        let most = if dtype.is_signed() { (1i128 << (bits - 1)) - 1 } else { (1i128 << bits) - 1 };
        match (self, dtype) {
            (Reducer::Add | Reducer::AssumeEqual, _) => Scalar::zero(dtype),
            (Reducer::Mul, _) => Scalar::one(dtype),
            (Reducer::And | Reducer::Min, DType::Bool) => Scalar::Bool(true),
            (Reducer::Or | Reducer::Max, DType::Bool) => Scalar::Bool(false),
            (Reducer::And, _) => Scalar::Int(if dtype.is_signed() { -1 } else { most }),
            (Reducer::Or, _) => Scalar::Int(0),
            (Reducer::Max, d) if d.is_float() => Scalar::Float(f64::NEG_INFINITY),
            (Reducer::Min, d) if d.is_float() => Scalar::Float(f64::INFINITY),
            (Reducer::Max, d) if d.is_complex() => Scalar::Complex(f64::NEG_INFINITY, f64::NEG_INFINITY),
            (Reducer::Min, d) if d.is_complex() => Scalar::Complex(f64::INFINITY, f64::INFINITY),
            (Reducer::Max, _) => Scalar::Int(least),
            (Reducer::Min, _) => Scalar::Int(most),
        }
    }
    /// Returns true if elements of this type can be combined by this operation.
    pub fn supports(self, dtype: DType) -> bool {
        match self {
            Reducer::Add | Reducer::Mul => true,
            Reducer::Max | Reducer::Min => !dtype.is_complex(),
            Reducer::And | Reducer::Or => !dtype.is_inexact(),
            Reducer::AssumeEqual => false,
        }
    }
    /// Returns the binary function that combines two elements.
    pub fn scalar_op(self) -> ScalarOp {
        match self {
            Reducer::Add => ScalarOp::Add,
            Reducer::Mul => ScalarOp::Mul,
            Reducer::Max => ScalarOp::Max,
            Reducer::Min => ScalarOp::Min,
            Reducer::And => ScalarOp::And,
            Reducer::Or => ScalarOp::Or,
            // devices hold equal values, so any function that returns one of its operands is
            // correct
            Reducer::AssumeEqual => ScalarOp::Max,
        }
    }
}
