//! The table of scalar functions: one row for each, which everything else reads.
//!
//! A row is `Variant name Operands: columns;`. `Operands` is the [`DTypeClass`] that the primitive
//! of this name accepts. The documentation of a row of `methods` is that of the method of `Array`.

use super::info::FloatDefinition::{Binary, Unary};
use super::info::ResultDType::{Bool, Complex, Part, SameKind, SameWidth};
use super::info::SubnormalResults::{IfComplex, IfConverted, Possible};
use super::info::{ScalarOpInfo, arithmetic, bitwise, function, movement};
use crate::core::dtype::DTypeClass;
use std::f64::consts::PI;

/// Passes all rows to a macro, after `[extra tokens]`.
///
/// * `methods`: functions of one operand that are primitives, with typed and untyped methods;
/// * `unary`, `binary`: other primitives;
/// * `instructions`: functions that only loop nests contain.
#[doc(hidden)]
#[macro_export]
macro_rules! scalar_functions { ($callback:ident $($extra:tt)*) => { $callback! {
    [$($extra)*]
    methods {
        /// Returns the sign: −1, 0 or 1; for complex z, z/|z| or 0.
        Sign sign Number: arithmetic(Unary(sign)).complex_ns(2.0).subnormals(IfComplex).hlo("sign");
        /// Returns the absolute value; for complex numbers the modulus, a float.
        ///
        /// Elements are floats, signed integers or complex numbers.
        #[doc(alias = "absolute")]
        Abs abs Signed: arithmetic(Unary(f64::abs)).on(DTypeClass::Number).makes(Part)
            .complex_ns(0.1).subnormals(IfComplex).hlo("abs");
        /// Rounds down to an integer value.
        Floor floor Float: arithmetic(Unary(f64::floor)).hlo("floor");
        /// Rounds up to an integer value.
        Ceil ceil Float: arithmetic(Unary(f64::ceil)).hlo("ceil");
        /// Rounds to the nearest integer value, halves away from zero.
        ///
        /// [`rint`](crate::Array::rint) rounds halves to even values, as NumPy does.
        Round round Float: arithmetic(Unary(f64::round)).hlo("round_nearest_afz");
        /// Computes eˣ.
        Exp exp Inexact: function(0.25, Unary(f64::exp)).complex().ulps(1.1, 2.0).hlo("exponential");
        /// Computes 2ˣ.
        Exp2 exp2 Float: function(0.25, Unary(f64::exp2)).ulps(1.6, 2.5).spelled_out();
        /// Computes eˣ − 1, accurately near 0.
        Expm1 expm1 Float: function(0.25, Unary(f64::exp_m1)).ulps(2.0, 3.0).hlo("exponential_minus_one");
        /// Computes the natural logarithm.
        Log log Inexact: function(0.5, Unary(f64::ln)).complex().ulps(1.1, 2.0).hlo("log");
        /// Computes log(1 + x), accurately near 0.
        Log1p log1p Float: function(0.5, Unary(f64::ln_1p)).ulps(1.7, 3.0).hlo("log_plus_one");
        /// Computes the sine.
        Sin sin Inexact: function(0.35, Unary(f64::sin)).complex().ulps(0.51, 2.0).hlo("sine");
        /// Computes the cosine.
        Cos cos Inexact: function(0.35, Unary(f64::cos)).complex().ulps(0.51, 2.0).hlo("cosine");
        /// Computes sin(πx), which is exact where x is a multiple of ½, however large.
        ///
        /// It is a zero of the sign of x at all integers, as in C23. 16-bit floats are computed in
        /// float32 and rounded once. Complex numbers are rejected: take the sine of π times the
        /// number.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([0.5f32, -2.5, 3.0, 1e9]);
        /// assert_eq!(x.sinpi().to_vec::<f32>()?, [1.0, -1.0, 0.0, 0.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        Sinpi sinpi Float: function(0.5, Unary(sinpi)).ulps(0.51, 2.5).spelled_out();
        /// Computes cos(πx), which is exact where x is a multiple of ½, however large.
        ///
        /// It is +0 at all halves, as in C23. 16-bit floats are computed in float32 and rounded
        /// once. Complex numbers are rejected: take the cosine of π times the number.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([0.0f32, 0.5, 1.0, 1e9]);
        /// assert_eq!(x.cospi().to_vec::<f32>()?, [1.0, 0.0, -1.0, 1.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        Cospi cospi Float: function(0.5, Unary(cospi)).ulps(0.51, 2.5).spelled_out();
        /// Computes the tangent.
        Tan tan Inexact: function(6.0, Unary(f64::tan)).ulps(1.0, 1.0).hlo("tan");
        /// Computes the inverse sine.
        Asin asin Float: function(6.0, Unary(f64::asin)).ulps(1.0, 1.0).chlo("asin");
        /// Computes the inverse cosine.
        Acos acos Float: function(6.0, Unary(f64::acos)).ulps(1.0, 1.0).chlo("acos");
        /// Computes the inverse tangent.
        Atan atan Float: function(6.0, Unary(f64::atan)).ulps(1.0, 1.0).chlo("atan");
        /// Computes the hyperbolic sine.
        Sinh sinh Inexact: function(6.0, Unary(f64::sinh)).ulps(2.0, 2.0).chlo("sinh");
        /// Computes the hyperbolic cosine.
        Cosh cosh Inexact: function(6.0, Unary(f64::cosh)).ulps(2.0, 2.0).chlo("cosh");
        /// Computes the hyperbolic tangent.
        Tanh tanh Inexact: function(0.25, Unary(f64::tanh)).ulps(3.0, 4.0).hlo("tanh");
        /// Computes the inverse hyperbolic sine.
        Asinh asinh Float: function(6.0, Unary(libm::asinh)).ulps(2.0, 2.0).chlo("asinh");
        /// Computes the inverse hyperbolic cosine.
        Acosh acosh Float: function(6.0, Unary(acosh)).ulps(2.0, 2.0).chlo("acosh");
        /// Computes the inverse hyperbolic tangent.
        Atanh atanh Float: function(8.0, Unary(libm::atanh)).ulps(2.0, 2.0).chlo("atanh");
        /// Computes the square root.
        Sqrt sqrt Inexact: arithmetic(Unary(f64::sqrt)).ns(0.1).complex().subnormals(IfComplex).hlo("sqrt");
        /// Computes the reciprocal square root, 1/√x.
        Rsqrt rsqrt Inexact: arithmetic(Unary(rsqrt)).ns(0.1).complex_ns(0.025).subnormals(Possible)
            .ulps(1.6, 1.6).hlo("rsqrt");
        /// Computes the cube root.
        Cbrt cbrt Float: function(8.0, Unary(f64::cbrt)).ulps(1.0, 1.0).hlo("cbrt");
        /// Computes the logistic sigmoid, 1 / (1 + e⁻ˣ).
        #[doc(alias = "sigmoid")]
        Logistic logistic Float: function(0.25, Unary(logistic)).ulps(2.6, 4.0).hlo("logistic");
        /// Computes the error function.
        Erf erf Float: function(0.25, Unary(libm::erf)).ulps(6.0, 1.0).chlo("erf");
        /// Computes the inverse of the error function.
        ErfInv erf_inv Float: function(8.0, Unary(erf_inv)).ulps(70.0, f64::INFINITY).chlo("erf_inv");
    }
    unary {
        /// The negation.
        Neg neg Number: arithmetic(Unary(|x| -x)).hlo("negate");
        /// True for values that are neither NaN nor infinite.
        IsFinite is_finite Float: bitwise(1).makes(Bool).typed_hlo("is_finite");
        /// The real part of a complex number.
        Real real Complex: movement(1).makes(Part).typed_hlo("real");
        /// The imaginary part of a complex number.
        Imag imag Complex: movement(1).makes(Part).typed_hlo("imag");
        /// The complex conjugate.
        Conj conj Complex: bitwise(1).spelled_out();
        /// The bitwise complement; the logical negation of a bool.
        Not not Bits: bitwise(1).hlo("not");
    }
    binary {
        /// The sum; the disjunction of bools.
        Add add Number: arithmetic(Binary(|x, y| x + y)).on(DTypeClass::Plain).hlo("add");
        /// The difference; the exclusive disjunction of bools.
        Sub sub Number: arithmetic(Binary(|x, y| x - y)).on(DTypeClass::Plain).hlo("subtract");
        /// The product; the conjunction of bools.
        Mul mul Number: arithmetic(Binary(|x, y| x * y)).on(DTypeClass::Plain).complex_ns(0.1)
            .hlo("multiply");
        /// The quotient. Integer division truncates towards zero.
        Div div Number: arithmetic(Binary(|x, y| x / y)).ns(0.1).complex_ns(2.0).integer_ns(1.5)
            .subnormals(IfComplex).hlo("divide");
        /// The remainder, with the sign of the dividend.
        Rem rem Real: arithmetic(Binary(|x, y| x % y)).ns(1.5).subnormals(Possible).hlo("remainder");
        /// The maximum; NaN if any operand is NaN.
        /// Complex numbers are compared by real part, then by imaginary part.
        Max max Plain: arithmetic(Binary(max)).hlo("maximum");
        /// The minimum, with the rules of `Max`.
        Min min Plain: arithmetic(Binary(min)).hlo("minimum");
        /// The first operand raised to the power of the second.
        Pow pow Number: function(1.5, Binary(f64::powf)).ulps(0.51, 1.0).hlo("power");
        /// The angle of the point (x, y) for the operands y and x.
        Atan2 atan2 Float: function(8.0, Binary(f64::atan2)).ulps(1.5, 1.0).hlo("atan2");
        /// The next representable number after the first operand, towards the second.
        NextAfter nextafter Float: bitwise(2).ns(8.0).subnormals(Possible).chlo("next_after");
        /// The complex number made of a real and an imaginary part.
        Complex complex Parts: movement(2).makes(Complex).spelled_out();
        /// True if the operands are equal.
        Eq eq Plain: bitwise(2).compare("EQ");
        /// True if the operands differ.
        Ne ne Plain: bitwise(2).compare("NE");
        /// True if the first operand is less than the second.
        Lt lt Ordered: bitwise(2).compare("LT");
        /// True if the first operand is less than or equal to the second.
        Le le Ordered: bitwise(2).compare("LE");
        /// True if the first operand is greater than the second.
        Gt gt Ordered: bitwise(2).compare("GT");
        /// True if the first operand is greater than or equal to the second.
        Ge ge Ordered: bitwise(2).compare("GE");
        /// The bitwise and.
        And and Bits: bitwise(2).hlo("and");
        /// The bitwise or.
        Or or Bits: bitwise(2).hlo("or");
        /// The bitwise exclusive or.
        Xor xor Bits: bitwise(2).hlo("xor");
        /// The first operand shifted to the left by the second; 0 if the shift is out of range.
        ShiftLeft shift_left Integer: bitwise(2).hlo("shift_left");
        /// The shift to the right that fills with 0; 0 if the shift is out of range.
        ShiftRightLogical shift_right_logical Integer: bitwise(2).hlo("shift_right_logical");
        /// The shift to the right that fills with copies of the sign bit.
        ShiftRightArithmetic shift_right_arithmetic Integer: bitwise(2).hlo("shift_right_arithmetic");
    }
    instructions {
        /// A copy of the operand.
        Copy copy Any: movement(1).spelled_out();
        /// The conversion of the operand from `operand_dtype` to `dtype`.
        /// Floats are truncated towards zero; conversion to bool is `!= 0`.
        Convert convert Any: movement(1).makes(SameKind).subnormals(IfConverted).spelled_out();
        /// The operand's bits, reinterpreted as another element type of the same width.
        Bitcast bitcast Any: movement(1).makes(SameWidth).subnormals(Possible).spelled_out();
        /// The operand, or a zero of its sign if it is a subnormal number of float32, of float64 or
        /// of bfloat16, whose exponents are those of float32.
        /// Subnormal numbers of float16 are kept.
        FlushSubnormals flush_subnormals Inexact: bitwise(1).spelled_out();
        /// The second operand if the first, a bool, is true; otherwise the third.
        Select select Any: bitwise(3).spelled_out();
        /// The 20-round Threefry hash.
        /// Operands are a key and a counter, both uint64 with the high word in the upper half. The
        /// lower half of the result is the first output word, the upper half the second.
        Threefry threefry Word: bitwise(2).ns(2.5).counts_as_function().spelled_out();
    }
} } }

macro_rules! scalar_ops {
    (
        []
        methods { $($(#[$method:meta])* $m:ident $f:ident $takes:ident: $columns:expr;)* }
        $($section:ident { $($(#[$doc:meta])* $v:ident $name:ident $class:ident: $row:expr;)* })*
    ) => {
        /// Elementwise functions.
        /// Integer arithmetic wraps; 16-bit floats are computed in float32 and rounded once.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ScalarOp {
            $(
                #[doc = concat!("The function of [`Array::", stringify!($f), "`](crate::Array::", stringify!($f), ").")]
                $m,
            )*
            $($(
                $(#[$doc])*
                $v,
            )*)*
        }
        impl ScalarOp {
            /// All functions.
            pub const ALL: &[ScalarOp] = &[$(ScalarOp::$m,)* $($(ScalarOp::$v,)*)*];
        }
        static TABLE: [ScalarOpInfo; ScalarOp::ALL.len()] = [
            $($columns.named(stringify!($f), DTypeClass::$takes),)*
            $($($row.named(stringify!($name), DTypeClass::$class),)*)*
        ];
    };
}
scalar_functions!(scalar_ops);

const _: () = {
    let mut row = 0;
    while row < TABLE.len() {
        TABLE[row].check();
        row += 1;
    }
};

impl ScalarOp {
    /// Returns the row of the function.
    #[inline]
    pub fn info(self) -> &'static ScalarOpInfo {
        &TABLE[self as usize]
    }
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x } else { x.signum() }
}
/// The inverse hyperbolic cosine, which `libm` does not define below 1.
fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}
/// The sine and the cosine of πx for |x| ≤ ¼, with the rounding error of the product corrected.
fn sin_cos_pi(x: f64) -> (f64, f64) {
    let angle = PI * x;
    let rest = x.mul_add(PI, -angle) + x * 1.2246467991473532e-16;
    let (sin, cos) = angle.sin_cos();
    (sin + rest * cos, cos - rest * sin)
}
/// The cosine of πx. All differences are exact.
fn cospi(x: f64) -> f64 {
    let turn = x.abs() % 2.0;
    let half = if turn > 1.0 { 2.0 - turn } else { turn };
    match half {
        ..=0.25 => sin_cos_pi(half).1,
        ..0.75 => sin_cos_pi(0.5 - half).0,
        _ => -sin_cos_pi(1.0 - half).1,
    }
}
/// The sine of πx: ±cos π(|x| − ½), but accurate near 0, and with the sign of x for a zero.
fn sinpi(x: f64) -> f64 {
    let turn = x.abs() % 2.0;
    let half = if turn >= 1.0 { turn - 1.0 } else { turn };
    let near = half.min(1.0 - half);
    let sine = if near <= 0.25 { sin_cos_pi(near).0 } else { sin_cos_pi(0.5 - near).1 };
    let size = if turn >= 1.0 { 0.0 - sine } else { sine };
    if x.is_sign_negative() { -size } else { size }
}
fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}
/// The logistic function. The quotient would be 0 where the result is subnormal.
fn logistic(x: f64) -> f64 {
    if x < -700.0 { x.exp() } else { 1.0 / (1.0 + (-x).exp()) }
}
/// The maximum. That of two zeros is the positive one.
fn max(a: f64, b: f64) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false if a > b || a == b && b.is_sign_negative() => a,
        false => b,
    }
}
/// The minimum. That of two zeros is the negative one.
fn min(a: f64, b: f64) -> f64 {
    match a.is_nan() || b.is_nan() {
        true => f64::NAN,
        false if a < b || a == b && a.is_sign_negative() => a,
        false => b,
    }
}
/// Returns the inverse of the error function, found by bisection and one Newton step.
/// Bisection works because the error function is monotone.
fn erf_inv(y: f64) -> f64 {
    if y.is_nan() || y.abs() > 1.0 {
        return f64::NAN;
    }
    if y.abs() == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    // (a search would find only the first digits of so small a number)
    if y.abs() < 1e-20 {
        return y * (0.5 * std::f64::consts::PI.sqrt());
    }
    let (mut lo, mut hi) = (-6.5f64, 6.5f64);
    for _ in 0..60 {
        let mid = 0.5 * (lo + hi);
        if libm::erf(mid) < y {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    let x = 0.5 * (lo + hi);
    // near 0, bisection leaves few correct digits, and one Newton step gives all of them
    let slope = 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp();
    if slope > 1e-12 { x - (libm::erf(x) - y) / slope } else { x }
}
