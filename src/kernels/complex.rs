//! Functions on complex numbers.
//!
//! Each step of a sum, product or similar function is rounded to the element type. All other
//! functions are computed in float64 and rounded once, so their results do not depend on the
//! processor level.

use super::elementwise::{Constants, ElementFn, KernelVariant, element_fn, narrow, scalar};
use super::{SliceKernel, float::FloatElement};
use crate::core::{DType, ScalarOp};
use num_complex::Complex;
use std::marker::PhantomData;
use std::ops::{Add, Mul, Neg, Sub};

/// The types of real and imaginary parts: float32 and float64.
pub(super) trait RealPart:
    Copy
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    fn to_f64(self) -> f64;
    fn from_f64(x: f64) -> Self;
    /// Returns the number, or a zero of its sign if it is subnormal.
    fn flush(self) -> Self;
}
macro_rules! parts { ($($T:ident)*) => { $(
    impl RealPart for $T {
        #[inline(always)]
        fn to_f64(self) -> f64 { self.into() }
        #[inline(always)]
        fn from_f64(x: f64) -> $T { x as $T }
        #[inline(always)]
        fn flush(self) -> $T { FloatElement::flushed(self) }
    }
)* } }
parts!(f32 f64);

/// Complex numbers, by the type of their real and imaginary parts.
pub(super) trait ComplexNumber: Copy + 'static {
    type Part: RealPart;
}
impl<T: RealPart> ComplexNumber for Complex<T> {
    type Part = T;
}

/// Returns the product, with each of its products and sums rounded.
#[inline(always)]
pub(super) fn times<T: RealPart>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}
fn wide<T: RealPart>(z: Complex<T>) -> Complex<f64> {
    Complex { re: z.re.to_f64(), im: z.im.to_f64() }
}
fn round<T: RealPart>(z: Complex<f64>) -> Complex<T> {
    Complex { re: T::from_f64(z.re), im: T::from_f64(z.im) }
}

fn modulus(z: Complex<f64>) -> f64 {
    libm::hypot(z.re, z.im)
}
/// Returns `a · b`, where `b` is a sine or cosine, and `a` is 0 or grows beyond all numbers.
///
/// A factor of 0 wins: 0 · ∞ and 0 · NaN are 0 here, since the other factor belongs to a limit.
fn product(a: f64, b: f64) -> f64 {
    if a == 0.0 && b.is_nan() {
        return a;
    }
    match b == 0.0 && !a.is_finite() {
        true if a < 0.0 => -b,
        true => b,
        false => a * b,
    }
}
/// Returns the real part of a product as [`product`] does, but ∞ for ∞ · NaN.
///
/// The direction of an infinite number is unknown if its imaginary part was not finite.
fn real_product(a: f64, b: f64) -> f64 {
    if a.is_infinite() && b.is_nan() { a } else { product(a, b) }
}
/// Returns half of `exp(|x|)`, times each of two sines or cosines, if `exp(|x|)` overflows.
fn half_exp_times(x: f64, [a, b]: [f64; 2]) -> Option<[f64; 2]> {
    let root = libm::exp(0.5 * x.abs());
    let overflows = x.is_finite() && x.abs() > 709.0;
    overflows.then(|| [a, b].map(|t| product(root, 0.5 * product(root, t))))
}
fn exp(z: Complex<f64>) -> Complex<f64> {
    if z.re == f64::NEG_INFINITY && !z.im.is_finite() {
        return Complex { re: 0.0, im: 0.0 };
    }
    if z.re == f64::INFINITY && !z.im.is_finite() {
        return Complex { re: z.re, im: f64::NAN };
    }
    let (size, cos, sin) = (libm::exp(z.re), libm::cos(z.im), libm::sin(z.im));
    // avoid 0 · ∞ for real numbers
    let of = |x: f64| if x == 0.0 { x } else { size * x };
    match half_exp_times(z.re, [cos, sin]).filter(|_| z.re > 0.0) {
        Some([re, im]) => Complex { re: 2.0 * re, im: 2.0 * im },
        None => Complex { re: of(cos), im: of(sin) },
    }
}
fn log(z: Complex<f64>) -> Complex<f64> {
    let (most, least) = (z.re.abs().max(z.im.abs()), z.re.abs().min(z.im.abs()));
    let re = match most {
        // (the modulus of NaN and ∞ is ∞)
        _ if z.re.is_nan() || z.im.is_nan() => libm::log(modulus(z)),
        // near modulus 1, the logarithm of the modulus would lose precision
        0.5..2.0 => 0.5 * libm::log1p((most - 1.0) * (most + 1.0) + least * least),
        // the modulus would overflow
        1e308..f64::INFINITY => {
            libm::log(modulus(Complex { re: 0.5 * z.re, im: 0.5 * z.im })) + std::f64::consts::LN_2
        }
        _ => libm::log(modulus(z)),
    };
    Complex { re, im: libm::atan2(z.im, z.re) }
}
fn sqrt(z: Complex<f64>) -> Complex<f64> {
    if z.re == 0.0 && z.im == 0.0 {
        return Complex { re: 0.0, im: z.im };
    }
    if z.im.is_infinite() {
        return Complex { re: f64::INFINITY, im: z.im };
    }
    if z.re.is_infinite() {
        let small = if z.im.is_nan() { z.im } else { 0f64.copysign(z.im) };
        return match z.re > 0.0 {
            true => Complex { re: z.re, im: small },
            false => Complex { re: small.abs(), im: f64::INFINITY.copysign(z.im) },
        };
    }
    if z.re.is_nan() || z.im.is_nan() {
        return Complex { re: f64::NAN, im: f64::NAN };
    }
    // scaled, so that the modulus neither overflows nor loses all bits
    let scaled = |by: f64, root: f64| {
        let y = sqrt(Complex { re: by * z.re, im: by * z.im });
        Complex { re: y.re / root, im: y.im / root }
    };
    match z.re.abs().max(z.im.abs()) {
        1e307.. => return scaled(f64::powi(2.0, -4), 0.25),
        ..1e-290 => return scaled(f64::powi(2.0, 200), f64::powi(2.0, 100)),
        _ => {}
    }
    let root = (0.5 * z.re.abs() + 0.5 * modulus(z)).sqrt();
    let other = z.im.abs() / (2.0 * root);
    match z.re >= 0.0 {
        true => Complex { re: root, im: other.copysign(z.im) },
        false => Complex { re: other, im: root.copysign(z.im) },
    }
}
fn sinh(z: Complex<f64>) -> Complex<f64> {
    let (cos, sin) = (libm::cos(z.im), libm::sin(z.im));
    match half_exp_times(z.re, [cos, sin]) {
        Some([re, im]) => Complex { re: re.copysign(re * z.re), im },
        None => Complex { re: real_product(libm::sinh(z.re), cos), im: product(libm::cosh(z.re), sin) },
    }
}
fn cosh(z: Complex<f64>) -> Complex<f64> {
    let (cos, sin) = (libm::cos(z.im), libm::sin(z.im));
    match half_exp_times(z.re, [cos, sin]) {
        Some([re, im]) => Complex { re, im: im.copysign(im * z.re) },
        None => Complex { re: real_product(libm::cosh(z.re), cos), im: product(libm::sinh(z.re), sin) },
    }
}
fn tanh(z: Complex<f64>) -> Complex<f64> {
    if z.re.is_infinite() && !z.im.is_finite() {
        return Complex { re: 1f64.copysign(z.re), im: 0.0 };
    }
    // the tangent of an unknown angle is known only where the other factor is 0
    if z.im == 0.0 && z.re.is_nan() || z.re == 0.0 && !z.im.is_finite() {
        return Complex { re: z.re, im: if z.im == 0.0 { z.im } else { f64::NAN } };
    }
    if z.re.abs() > 22.0 && z.im.is_finite() {
        let im = 4.0 * libm::sin(z.im) * libm::cos(z.im) * libm::exp(-2.0 * z.re.abs());
        return Complex { re: 1f64.copysign(z.re), im };
    }
    let (t, s) = (libm::tan(z.im), libm::sinh(z.re));
    let beta = 1.0 + t * t;
    let over = 1.0 + beta * s * s;
    Complex { re: beta * (1.0 + s * s).sqrt() * s / over, im: t / over }
}
/// Returns `f(iz) / i`.
/// If `f` is the hyperbolic sine or tangent, this is the sine or tangent of `z`.
fn rotate_argument(f: fn(Complex<f64>) -> Complex<f64>, z: Complex<f64>) -> Complex<f64> {
    let y = f(Complex { re: -z.im, im: z.re });
    Complex { re: y.im, im: -y.re }
}
fn pow(z: Complex<f64>, w: Complex<f64>) -> Complex<f64> {
    let none = Complex { re: 0.0, im: 0.0 };
    if w == none {
        return Complex { re: 1.0, im: 0.0 };
    }
    if z == none && w.re > 0.0 {
        return none;
    }
    let log = log(z);
    // (a product with an imaginary part of 0 would be NaN if the logarithm is infinite)
    match w.im == 0.0 {
        true => exp(Complex { re: w.re * log.re, im: w.re * log.im }),
        false => exp(times(w, log)),
    }
}
/// Divides by scaling with the larger part of the divisor.
///
/// Intermediate results then do not overflow. A finite number divided by an infinite one is 0, and
/// an infinite one divided by a finite one is infinite, also if one of its parts is NaN.
fn div(a: Complex<f64>, b: Complex<f64>) -> Complex<f64> {
    let infinite = |z: Complex<f64>| z.re.is_infinite() || z.im.is_infinite();
    let finite = |z: Complex<f64>| z.re.is_finite() && z.im.is_finite();
    // the direction of an infinite number: a part of ±1 for each infinite part
    let direction = |z: Complex<f64>| {
        let of = |x: f64| f64::from(u8::from(x.is_infinite())).copysign(x);
        Complex { re: of(z.re), im: of(z.im) }
    };
    if infinite(b) && finite(a) {
        let b = direction(b);
        return Complex { re: 0.0 * (a.re * b.re + a.im * b.im), im: 0.0 * (a.im * b.re - a.re * b.im) };
    }
    if infinite(a) && finite(b) && (b.re != 0.0 || b.im != 0.0) {
        let (a, most) = (direction(a), f64::INFINITY);
        return Complex { re: most * (a.re * b.re + a.im * b.im), im: most * (a.im * b.re - a.re * b.im) };
    }
    if b.re.abs() >= b.im.abs() {
        // division by zero: 0 / 0 is NaN, other quotients are infinite
        if b.re == 0.0 {
            return Complex { re: a.re / b.re.abs(), im: a.im / b.re.abs() };
        }
        let q = b.im / b.re;
        let over = b.re + b.im * q;
        return Complex { re: (a.re + a.im * q) / over, im: (a.im - a.re * q) / over };
    }
    let q = b.re / b.im;
    let over = b.re * q + b.im;
    Complex { re: (a.re * q + a.im) / over, im: (a.im * q - a.re) / over }
}
fn sign(z: Complex<f64>) -> Complex<f64> {
    let size = modulus(z);
    match size {
        0.0 => z,
        // (if both parts are infinite, the direction is unknown: NaN)
        f64::INFINITY if z.re.is_finite() => Complex { re: 0.0, im: 1f64.copysign(z.im) },
        f64::INFINITY if z.im.is_finite() => Complex { re: 1f64.copysign(z.re), im: 0.0 },
        _ => Complex { re: z.re / size, im: z.im / size },
    }
}
/// Returns the larger number, compared by real part, then by imaginary part; NaN if either is NaN.
#[inline(always)]
fn lexicographic_max<T: RealPart>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let greater = a.re > b.re || a.re == b.re && a.im > b.im;
    if nan(a) || greater && !nan(b) { a } else { b }
}
#[inline(always)]
fn lexicographic_min<T: RealPart>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let less = a.re < b.re || a.re == b.re && a.im < b.im;
    if nan(a) || less && !nan(b) { a } else { b }
}
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn nan<T: RealPart>(z: Complex<T>) -> bool {
    z.re != z.re || z.im != z.im
}

/// The complex number with the given real and imaginary parts.
struct FromParts<T>(PhantomData<T>);
element_fn! { FromParts<T: RealPart> = (re, im): T => Complex<T>, Complex { re, im }; }
/// Returns the kernel that combines real and imaginary parts of this type.
pub(super) fn from_parts(part: DType) -> Option<SliceKernel> {
    match part {
        DType::F32 => Some(scalar::<FromParts<f32>>()),
        DType::F64 => Some(scalar::<FromParts<f64>>()),
        _ => None,
    }
}

/// Defines the functions on complex numbers whose parts have type `T`.
///
/// A row is `maker Function(operands) -> Result = result;`, where the makers are the functions of
/// `elementwise`.
macro_rules! complex_functions {
    ($($maker:ident $name:ident($a:ident $(, $b:ident)?) -> $D:ty = $e:expr;)*) => {
        fn kernel<T: RealPart>(op: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
            $(
                struct $name<T>(PhantomData<T>);
                element_fn! { $name<T: RealPart> = ($a $(, $b)?): Complex<T> => $D, $e; }
            )*
            Some(match op {
                $(ScalarOp::$name => complex_functions!(@make $maker how, $name<T>),)*
                _ => return None,
            })
        }
    };
    (@make narrow $how:ident, $E:ty) => { narrow::<$E>($how) };
    (@make scalar $how:ident, $E:ty) => { scalar::<$E>() };
}
complex_functions! {
    narrow Neg(a) -> Complex<T> = Complex { re: -a.re, im: -a.im };
    narrow Conj(a) -> Complex<T> = Complex { re: a.re, im: -a.im };
    narrow FlushSubnormals(a) -> Complex<T> = Complex { re: a.re.flush(), im: a.im.flush() };
    narrow Real(a) -> T = a.re;
    narrow Imag(a) -> T = a.im;
    scalar Abs(a) -> T = T::from_f64(modulus(wide(a)));
    scalar Sign(a) -> Complex<T> = round(sign(wide(a)));
    scalar Exp(a) -> Complex<T> = round(exp(wide(a)));
    scalar Log(a) -> Complex<T> = round(log(wide(a)));
    scalar Sqrt(a) -> Complex<T> = round(sqrt(wide(a)));
    scalar Rsqrt(a) -> Complex<T> = round(div(Complex { re: 1.0, im: 0.0 }, sqrt(wide(a))));
    scalar Sin(a) -> Complex<T> = round(rotate_argument(sinh, wide(a)));
    scalar Cos(a) -> Complex<T> = round(cosh(Complex { re: -a.im.to_f64(), im: a.re.to_f64() }));
    scalar Tan(a) -> Complex<T> = round(rotate_argument(tanh, wide(a)));
    scalar Sinh(a) -> Complex<T> = round(sinh(wide(a)));
    scalar Cosh(a) -> Complex<T> = round(cosh(wide(a)));
    scalar Tanh(a) -> Complex<T> = round(tanh(wide(a)));
    narrow Add(a, b) -> Complex<T> = Complex { re: a.re + b.re, im: a.im + b.im };
    narrow Sub(a, b) -> Complex<T> = Complex { re: a.re - b.re, im: a.im - b.im };
    narrow Mul(a, b) -> Complex<T> = times(a, b);
    scalar Div(a, b) -> Complex<T> = round(div(wide(a), wide(b)));
    scalar Pow(a, b) -> Complex<T> = round(pow(wide(a), wide(b)));
    scalar Max(a, b) -> Complex<T> = lexicographic_max(a, b);
    scalar Min(a, b) -> Complex<T> = lexicographic_min(a, b);
    scalar Eq(a, b) -> u8 = (a.re == b.re && a.im == b.im) as u8;
    scalar Ne(a, b) -> u8 = (a.re != b.re || a.im != b.im) as u8;
}

/// Returns the kernel of a function on complex numbers.
pub(super) fn select<C: ComplexNumber>(op: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
    kernel::<C::Part>(op, how)
}
