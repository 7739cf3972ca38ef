//! Ways to combine values: what changes nothing, and the function of two.

use super::sentence::{Combine, Fun};
use crate::types::{DType, Scalar};

impl Combine {
    /// The element that changes nothing when combined.
    pub fn neutral(self, dtype: DType) -> Scalar {
        let dtype = dtype.storage();
        let bits = dtype.real().size() as u32 * 8;
        let least = if dtype.is_signed() { -(1i128 << (bits - 1)) } else { 0 };
        let most = if dtype.is_signed() { (1i128 << (bits - 1)) - 1 } else { (1i128 << bits) - 1 };
        match (self, dtype) {
            (Combine::Add | Combine::Same, _) => Scalar::zero(dtype),
            (Combine::Mul, _) => Scalar::one(dtype),
            (Combine::And | Combine::Min, DType::Bool) => Scalar::Bool(true),
            (Combine::Or | Combine::Max, DType::Bool) => Scalar::Bool(false),
            (Combine::And, _) => Scalar::Int(if dtype.is_signed() { -1 } else { most }),
            (Combine::Or, _) => Scalar::Int(0),
            (Combine::Max, d) if d.is_float() => Scalar::Float(f64::NEG_INFINITY),
            (Combine::Min, d) if d.is_float() => Scalar::Float(f64::INFINITY),
            (Combine::Max, _) => Scalar::Int(least),
            (Combine::Min, _) => Scalar::Int(most),
        }
    }
    /// Whether elements of this type are combined so.
    pub fn takes(self, dtype: DType) -> bool {
        match self {
            Combine::Add | Combine::Mul => true,
            Combine::Max | Combine::Min => !dtype.is_complex(),
            Combine::And | Combine::Or => !dtype.is_inexact(),
            Combine::Same => false,
        }
    }
    /// The function that combines two.
    pub fn fun(self) -> Fun {
        match self {
            Combine::Add => Fun::Add,
            Combine::Mul => Fun::Mul,
            Combine::Max => Fun::Max,
            Combine::Min => Fun::Min,
            Combine::And => Fun::And,
            Combine::Or => Fun::Or,
            // folds of it have one step
            Combine::Same => Fun::Max,
        }
    }
}
