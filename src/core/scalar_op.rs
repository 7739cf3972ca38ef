//! Elementwise functions and reducers: the instructions that kernels implement.
//!
//! They are defined outside the IR because the IR and the kernels both use them.

use crate::core::dtype::{DType, Scalar};

/// Elementwise functions.
/// Integer arithmetic wraps; 16-bit floats are computed in float32 and rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "most names say it; the others are commented")]
pub enum ScalarOp {
    /// A copy of the operand.
    Copy,
    /// The conversion of the operand from `operand_dtype` to `dtype`.
    /// Floats are truncated towards zero; conversion to bool is `!= 0`.
    Convert,
    /// The operand's bits, reinterpreted as another element type of the same width.
    Bitcast,
    Neg,
    /// The sign; z/|z| for a complex number.
    Sign,
    /// The absolute value; for a complex number its modulus, a float.
    Abs,
    Floor,
    Ceil,
    /// The nearest integer; halves are rounded away from zero.
    Round,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Sqrt,
    /// The reciprocal square root.
    Rsqrt,
    Cbrt,
    /// The logistic function 1 / (1 + e⁻ˣ).
    Logistic,
    /// The error function.
    Erf,
    /// The inverse error function.
    ErfInv,
    /// True for values that are neither NaN nor infinite.
    IsFinite,
    /// The operand, or a zero of its sign if it is a subnormal number of float32, of float64 or of
    /// bfloat16, whose exponents are those of float32. Subnormal numbers of float16 are kept.
    FlushSubnormals,
    /// The real part of a complex number.
    Real,
    /// The imaginary part of a complex number.
    Imag,
    Conj,
    /// The bitwise complement; the logical negation of a bool.
    Not,
    Add,
    Sub,
    Mul,
    /// The quotient.
    /// Integer division truncates towards zero.
    Div,
    /// The remainder, with the sign of the dividend.
    Rem,
    /// The maximum; NaN if any operand is NaN.
    /// Complex numbers are compared by real part, then by imaginary part.
    Max,
    /// The minimum, with the rules of `Max`.
    Min,
    /// The first operand raised to the power of the second.
    Pow,
    /// The angle of the point (x, y) for the operands y and x.
    Atan2,
    /// The next representable number after the first operand, towards the second.
    NextAfter,
    /// The complex number made of a real and an imaginary part.
    Complex,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Xor,
    /// The first operand shifted to the left by the second; 0 if the shift is out of range.
    ShiftLeft,
    /// The shift to the right that fills with 0; 0 if the shift is out of range.
    ShiftRightLogical,
    /// The shift to the right that fills with copies of the sign bit.
    ShiftRightArithmetic,
    /// The second operand if the first, a bool, is true; otherwise the third.
    Select,
    /// The 20-round Threefry hash.
    /// Operands are a key and a counter, both uint64 with the high word in the upper half. The
    /// lower half of the result is the first output word, the upper half the second.
    Threefry,
}

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
