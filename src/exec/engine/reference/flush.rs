//! Scalar functions of programs that flush subnormal numbers, straight from the definition.
//!
//! The processor's own mode is not used, so this is an oracle for it.

use super::scalar;
use crate::core::{DType, Scalar};
use crate::ir::program::ScalarOp;

/// Applies a function to operands that are not subnormal; a subnormal result is a zero of its sign.
///
/// A product, quotient or conversion can be subnormal before it is rounded to the smallest normal
/// number, or to one of bfloat16, which is computed as float32. Processors flush such results, too.
pub(super) fn apply(fun: ScalarOp, from: DType, dtype: DType, args: &[Scalar]) -> Scalar {
    let made = scalar::flush_subnormals(scalar::apply(fun, from, dtype, args), dtype.storage());
    match (made, args) {
        (Scalar::Float(y), [Scalar::Float(a), rest @ ..]) if rounds_up(y, dtype) => {
            let b = rest.first().map_or(1.0, |b| b.to_f64());
            let is_tiny = match (fun, dtype) {
                (ScalarOp::Mul, DType::F64) => is_tiny_f64(*a, b, 1),
                (ScalarOp::Div, DType::F64) => is_tiny_f64(*a, b, -1),
                (ScalarOp::Mul, _) => is_tiny_f32(a * b),
                (ScalarOp::Div, _) => is_tiny_f32(a / b),
                (ScalarOp::Convert, DType::F32 | DType::BF16) => is_tiny_f32(*a),
                _ => false,
            };
            Scalar::Float(if is_tiny { 0f64.copysign(y) } else { y })
        }
        _ => made,
    }
}

/// Returns true if a result is the smallest normal number of its type, for types that are flushed.
fn rounds_up(y: f64, dtype: DType) -> bool {
    match dtype {
        DType::F64 => y.abs() == f64::MIN_POSITIVE,
        DType::F32 | DType::BF16 => y.abs() == f64::from(f32::MIN_POSITIVE),
        _ => false,
    }
}

/// True if a result is flushed when it is subnormal before rounding, as on AArch64. Otherwise
/// it is flushed when it is subnormal after rounding to the precision of normal numbers.
const FLUSHES_BEFORE_ROUNDING: bool = cfg!(target_arch = "aarch64");

/// Returns true if a result is flushed that was computed exactly, or to more than the 24 bits of
/// float32.
fn is_tiny_f32(exact: f64) -> bool {
    let least = f64::from(f32::MIN_POSITIVE);
    // half of the distance from the smallest normal number to the number of 24 bits below it
    let half = if FLUSHES_BEFORE_ROUNDING { 0.0 } else { f64::from_bits((1023 - 151) << 52) };
    exact.abs() < least - half
}

/// Returns true if `a · b^power` is flushed, where the power is 1 or -1 and the rounded result is
/// the smallest normal number of float64 or its negative.
fn is_tiny_f64(a: f64, b: f64, power: i32) -> bool {
    let exponent = |x: f64| (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    // the absolute value with an exponent of 0
    let mantissa = |x: f64| f64::from_bits(x.to_bits() << 12 >> 12 | 1023 << 52);
    let (x, y) = (mantissa(a), mantissa(b));
    let (value, below) = match power {
        1 => (x * y, x.mul_add(y, -(x * y)) < 0.0),
        // the remainder of the quotient
        _ => (x / y, (x / y).mul_add(-y, x) < 0.0),
    };
    let least = 2f64.powi(-1022 - exponent(a) - power * exponent(b));
    value < least || FLUSHES_BEFORE_ROUNDING && value == least && below
}
