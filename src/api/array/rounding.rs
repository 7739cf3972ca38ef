//! Floor division, remainders and rounding as NumPy defines them, and the parts of floats.
//!
//! The operators `/` and `%` and [`Array::round`] follow Rust: they truncate, and round halves away
//! from zero. The methods in this module follow NumPy, and are composed of these operators.

use super::{Array, Operand, Term};
use crate::core::{ArrayType, DType, Scalar};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::program::CallSite;

/// # Floor division and rounding
impl Array {
    /// Computes ⌊self / b⌋, rounded towards minus infinity (NumPy's `//`).
    ///
    /// The operator `/` truncates quotients of integers towards zero instead.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([-3, 3]);
    /// assert_eq!(x.floor_divide(2).to_vec::<i32>()?, [-2, 1]);
    /// assert_eq!((&x / 2).to_vec::<i32>()?, [-1, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("//", "floordiv", "div_euclid"))]
    #[track_caller]
    pub fn floor_divide(&self, b: impl Operand) -> Array {
        let (b, call) = (b.term(), CallSite::here("floor_divide"));
        let quotient = self.binary_with(Binary::Div, &b, call);
        let rest = self.binary_with(Binary::Rem, &b, call);
        let Ok(ArrayType { dtype, .. }) = quotient.type_ref() else { return quotient };
        if dtype.is_unsigned() {
            return quotient;
        }
        let one = rest.has_opposite_sign(&b, call).astype_at(*dtype, call);
        if dtype.is_signed() {
            return quotient.binary_with(Binary::Sub, one, call);
        }
        // the quotient of `self - rest` is an integer up to one rounding
        let exact = self.binary_with(Binary::Sub, &rest, call).binary_with(Binary::Div, &b, call);
        let floor = exact.binary_with(Binary::Sub, one, call).unary(Unary::Round, call);
        // a division by zero has an infinite quotient, as in NumPy, unless `self` is infinite too
        let none = self.binary_with(Binary::Sub, self, call);
        let infinite = quotient.unary(Unary::Abs, call).binary_with(Binary::Eq, f64::INFINITY, call);
        let beyond = quotient.binary_with(Binary::Add, none, call);
        let floor = infinite.select_at(beyond.term(), floor.term(), call);
        floor.unary(Unary::StopGradient, call)
    }
    /// Computes the remainder of [`floor_divide`](Array::floor_divide), with the sign of `b`.
    ///
    /// This is `%` and `mod` of NumPy and Python. The operator `%` of Rust, and of this crate,
    /// gives the remainder the sign of the array instead (NumPy's `fmod`).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let i = Array::from([-1, 5]);
    /// assert_eq!(i.remainder(4).to_vec::<i32>()?, [3, 1]);
    /// assert_eq!((&i % 4).to_vec::<i32>()?, [-1, 1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("mod", "modulo", "fmod", "rem_euclid", "divmod", "%"))]
    #[track_caller]
    pub fn remainder(&self, b: impl Operand) -> Array {
        let (b, call) = (b.term(), CallSite::here("remainder"));
        let rest = self.binary_with(Binary::Rem, &b, call);
        if rest.type_ref().map_or(true, |ty| ty.dtype.is_unsigned()) {
            return rest;
        }
        let moved = rest.binary_with(Binary::Add, &b, call);
        rest.has_opposite_sign(&b, call).select_at(moved.term(), rest.term(), call)
    }
    /// Returns true where this remainder is not zero and has another sign than its divisor.
    fn has_opposite_sign(&self, divisor: &Term, call: CallSite<'_>) -> Array {
        let negative = match divisor {
            Term::Array(b) => b.binary_with(Binary::Lt, 0, call).term(),
            Term::Number(b) => Term::Number(Scalar::Bool(b.to_f64() < 0.0)),
        };
        let differs = self.binary_with(Binary::Lt, 0, call).binary_with(Binary::Ne, negative, call);
        self.binary_with(Binary::Ne, 0, call).binary_with(Binary::And, differs, call)
    }
    /// Rounds to the nearest integer value, halves to the even one (NumPy's `rint` and `round`).
    ///
    /// [`round`](Array::round) rounds halves away from zero, as Rust's `round` does.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([0.5f32, 1.5, 2.5, -0.7]);
    /// assert_eq!(x.rint().to_vec::<f32>()?, [0.0, 2.0, 2.0, -1.0]);
    /// assert_eq!(x.round().to_vec::<f32>()?, [1.0, 2.0, 3.0, -1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("round_ties_even", "around", "round"))]
    #[track_caller]
    pub fn rint(&self) -> Array {
        self.with_call_site(CallSite::here("rint"), |call| {
            let nearest = self.unary(Unary::Round, call);
            let fraction = self.binary_with(Binary::Sub, self.unary(Unary::Floor, call), call);
            // for k + 1/2, half of it is nearest to half of the even neighbour
            let half = self.binary_with(Binary::Mul, 0.5, call).unary(Unary::Round, call);
            let even = half.binary_with(Binary::Mul, 2.0, call);
            fraction.binary_with(Binary::Eq, 0.5, call).select_at(even.term(), nearest.term(), call)
        })
    }
    /// Replaces NaN by 0, and infinities by the largest and smallest finite numbers of the type.
    ///
    /// Integers are returned unchanged.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, f32::NAN, f32::NEG_INFINITY]);
    /// assert_eq!(x.nan_to_num().to_vec::<f32>()?, [1.0, 0.0, f32::MIN]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn nan_to_num(&self) -> Array {
        self.with_call_site(CallSite::here("nan_to_num"), |call| self.nan_to_num_at(call))
    }
    /// Implements [`Array::nan_to_num`].
    fn nan_to_num_at(&self, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.dtype.is_complex() {
            let [re, im] = [Unary::Real, Unary::Imag].map(|part| self.unary(part, call).nan_to_num_at(call));
            return re.binary_with(Binary::Complex, im, call);
        }
        let most = match ty.dtype {
            DType::F16 => half::f16::MAX.to_f64(),
            DType::BF16 => half::bf16::MAX.to_f64(),
            DType::F32 => f32::MAX.into(),
            DType::F64 => f64::MAX,
            _ => return self.clone(),
        };
        let replace = |x: Array, infinity: f64, by: f64| {
            let mask = self.binary_with(Binary::Eq, infinity, call);
            mask.select_at(Term::Number(Scalar::Float(by)), x.term(), call)
        };
        let x = replace(self.replace_nan(0.0, call), f64::INFINITY, most);
        replace(x, f64::NEG_INFINITY, -most)
    }
    /// Splits floats into mantissa and int32 exponent: x = mantissa · 2ᵉˣᵖᵒⁿᵉⁿᵗ.
    ///
    /// The magnitude of the mantissa is at least 1/2 and less than 1. For 0, infinities and NaN it
    /// is the number, with exponent 0. The derivative is zero.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let (mantissa, exponent) = Array::from([10.0f32, -0.25]).frexp();
    /// assert_eq!(mantissa.to_vec::<f32>()?, [0.625, -0.5]);
    /// assert_eq!(exponent.to_vec::<i32>()?, [4, -1]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn frexp(&self) -> (Array, Array) {
        self.with_call_site(CallSite::here("frexp"), |call| {
            let Ok(ty) = self.type_ref() else { return (self.clone(), self.clone()) };
            let (x, bits, digits) = match ty.dtype {
                DType::F64 => (self.clone(), DType::I64, 52),
                DType::F32 => (self.clone(), DType::I32, 23),
                DType::F16 | DType::BF16 => (self.astype_at(DType::F32, call), DType::I32, 23),
                // not a float: the error of an operation on floats
                _ => {
                    let failed = self.unary(Unary::Floor, call);
                    return (failed.clone(), failed);
                }
            };
            let (mantissa, exponent) = x.unary(Unary::StopGradient, call).float_parts(bits, digits, call);
            (mantissa.astype_at(ty.dtype, call), exponent)
        })
    }
    /// Returns the mantissas and exponents of floats with this number of fraction digits.
    ///
    /// `bits` is the signed integer type of the same width.
    fn float_parts(&self, bits: DType, digits: u32, call: CallSite<'_>) -> (Array, Array) {
        let exponent_mask = (1i64 << (bits.size() as u32 * 8 - 1 - digits)) - 1;
        let half = exponent_mask / 2 - 1;
        // scale subnormal numbers, which have no implicit leading digit, by a power of two
        let scale = i64::from(digits) + 1;
        let least = 2f64.powi(1 - (half + 1) as i32);
        let size = self.unary(Unary::Abs, call);
        let subnormal = size.binary_with(Binary::Lt, least, call);
        let scaled = self.binary_with(Binary::Mul, 2f64.powi(scale as i32), call);
        let normal = subnormal.select_at(scaled.term(), self.term(), call);
        let word = normal.bitcast_at(bits, call);
        let field = word.binary_with(Binary::ShiftRightLogical, i64::from(digits), call);
        let field = field.binary_with(Binary::And, exponent_mask, call);
        let offset = subnormal.select_at((half + scale).term(), half.term(), call).astype_at(bits, call);
        let exponent = field.binary_with(Binary::Sub, offset, call);
        let cleared = word.binary_with(Binary::And, !(exponent_mask << digits), call);
        let dtype = self.type_ref().map_or(DType::F32, |ty| ty.dtype);
        let mantissa = cleared.binary_with(Binary::Or, half << digits, call).bitcast_at(dtype, call);
        let finite = self.unary(Unary::IsFinite, call);
        let has_parts = size.binary_with(Binary::Gt, 0, call).binary_with(Binary::And, finite, call);
        let exponent = has_parts.select_at(exponent.term(), 0.term(), call).astype_at(DType::I32, call);
        (has_parts.select_at(mantissa.term(), self.term(), call), exponent)
    }
}
