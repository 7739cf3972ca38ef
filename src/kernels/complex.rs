//! Functions on complex numbers.
//!
//! Each step of a sum, product or similar function is rounded to the element type. All other
//! functions are computed in float64 and rounded once, so their results do not depend on the
//! processor level.

use super::SliceKernel;
use super::elementwise::{Constants, ElementFn, KernelVariant, narrow, scalar};
use crate::core::scalar_op::ScalarOp;
use crate::core::types::DType;
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
}
macro_rules! parts { ($($T:ident)*) => { $(
    impl RealPart for $T {
        #[inline(always)]
        fn to_f64(self) -> f64 { self.into() }
        #[inline(always)]
        fn from_f64(x: f64) -> $T { x as $T }
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
fn exp(z: Complex<f64>) -> Complex<f64> {
    let size = libm::exp(z.re);
    // avoid 0 · ∞ for real numbers
    let of = |x: f64| if x == 0.0 { x } else { size * x };
    Complex { re: of(libm::cos(z.im)), im: of(libm::sin(z.im)) }
}
fn log(z: Complex<f64>) -> Complex<f64> {
    let (most, least) = (z.re.abs().max(z.im.abs()), z.re.abs().min(z.im.abs()));
    // near modulus 1, the logarithm of the modulus would lose precision
    let re = match (0.5..2.0).contains(&most) {
        true => 0.5 * libm::log1p((most - 1.0) * (most + 1.0) + least * least),
        false => libm::log(modulus(z)),
    };
    Complex { re, im: libm::atan2(z.im, z.re) }
}
fn sqrt(z: Complex<f64>) -> Complex<f64> {
    if z.re == 0.0 && z.im == 0.0 {
        return Complex { re: 0.0, im: z.im };
    }
    let root = (0.5 * z.re.abs() + 0.5 * modulus(z)).sqrt();
    let other = z.im.abs() / (2.0 * root);
    match z.re >= 0.0 {
        true => Complex { re: root, im: other.copysign(z.im) },
        false => Complex { re: other, im: root.copysign(z.im) },
    }
}
fn sinh(z: Complex<f64>) -> Complex<f64> {
    Complex { re: libm::sinh(z.re) * libm::cos(z.im), im: libm::cosh(z.re) * libm::sin(z.im) }
}
fn cosh(z: Complex<f64>) -> Complex<f64> {
    Complex { re: libm::cosh(z.re) * libm::cos(z.im), im: libm::sinh(z.re) * libm::sin(z.im) }
}
fn tanh(z: Complex<f64>) -> Complex<f64> {
    if z.re.abs() > 22.0 {
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
    match z == none {
        true if w == none => Complex { re: 1.0, im: 0.0 },
        true if w.re > 0.0 => none,
        _ => exp(times(w, log(z))),
    }
}
/// Divides by scaling with the larger part of the divisor.
/// Intermediate results then do not overflow.
fn div(a: Complex<f64>, b: Complex<f64>) -> Complex<f64> {
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
    match size == 0.0 {
        true => z,
        false => Complex { re: z.re / size, im: z.im / size },
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

macro_rules! els {
    ($($name:ident $n:literal $D:ty, |$a:ident, $b:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: RealPart> ElementFn for $name<T> {
            type A = Complex<T>;
            type B = Complex<T>;
            type C = u8;
            type D = $D;
            const ARITY: usize = $n;
            #[inline(always)]
            fn f<const L: u8>($a: Complex<T>, $b: Complex<T>, _: u8, _: &Constants) -> $D {
                let _ = $b;
                $e
            }
        }
    )* };
}
els! {
    Minus 1 Complex<T>, |a, b| Complex { re: -a.re, im: -a.im };
    Conj 1 Complex<T>, |a, b| Complex { re: a.re, im: -a.im };
    Real 1 T, |a, b| a.re;
    Imag 1 T, |a, b| a.im;
    Abs 1 T, |a, b| T::from_f64(modulus(wide(a)));
    Sign 1 Complex<T>, |a, b| round(sign(wide(a)));
    Exp 1 Complex<T>, |a, b| round(exp(wide(a)));
    Log 1 Complex<T>, |a, b| round(log(wide(a)));
    Sqrt 1 Complex<T>, |a, b| round(sqrt(wide(a)));
    Rsqrt 1 Complex<T>, |a, b| round(div(Complex { re: 1.0, im: 0.0 }, sqrt(wide(a))));
    Sin 1 Complex<T>, |a, b| round(rotate_argument(sinh, wide(a)));
    Cos 1 Complex<T>, |a, b| round(cosh(Complex { re: -a.im.to_f64(), im: a.re.to_f64() }));
    Tan 1 Complex<T>, |a, b| round(rotate_argument(tanh, wide(a)));
    Sinh 1 Complex<T>, |a, b| round(sinh(wide(a)));
    Cosh 1 Complex<T>, |a, b| round(cosh(wide(a)));
    Tanh 1 Complex<T>, |a, b| round(tanh(wide(a)));
    Plus 2 Complex<T>, |a, b| Complex { re: a.re + b.re, im: a.im + b.im };
    Less 2 Complex<T>, |a, b| Complex { re: a.re - b.re, im: a.im - b.im };
    Times 2 Complex<T>, |a, b| times(a, b);
    Div 2 Complex<T>, |a, b| round(div(wide(a), wide(b)));
    Pow 2 Complex<T>, |a, b| round(pow(wide(a), wide(b)));
    Max 2 Complex<T>, |a, b| lexicographic_max(a, b);
    Min 2 Complex<T>, |a, b| lexicographic_min(a, b);
    Eq 2 u8, |a, b| (a.re == b.re && a.im == b.im) as u8;
    Ne 2 u8, |a, b| (a.re != b.re || a.im != b.im) as u8;
}

/// The complex number with the given real and imaginary parts.
struct FromParts<T>(PhantomData<T>);
impl<T: RealPart> ElementFn for FromParts<T> {
    type A = T;
    type B = T;
    type C = u8;
    type D = Complex<T>;
    const ARITY: usize = 2;
    #[inline(always)]
    fn f<const L: u8>(re: T, im: T, _: u8, _: &Constants) -> Complex<T> {
        Complex { re, im }
    }
}
/// Returns the kernel that combines real and imaginary parts of this type.
pub(super) fn from_parts(part: DType) -> Option<SliceKernel> {
    match part {
        DType::F32 => Some(scalar::<FromParts<f32>>()),
        DType::F64 => Some(scalar::<FromParts<f64>>()),
        _ => None,
    }
}

/// Returns the kernel of a function on complex numbers.
pub(super) fn select<C: ComplexNumber>(fun: ScalarOp, h: KernelVariant) -> Option<SliceKernel> {
    table::<C::Part>(fun, h)
}
fn table<T: RealPart>(fun: ScalarOp, h: KernelVariant) -> Option<SliceKernel> {
    Some(match fun {
        ScalarOp::Neg => narrow::<Minus<T>>(h),
        ScalarOp::Conj => narrow::<Conj<T>>(h),
        ScalarOp::Real => narrow::<Real<T>>(h),
        ScalarOp::Imag => narrow::<Imag<T>>(h),
        ScalarOp::Add => narrow::<Plus<T>>(h),
        ScalarOp::Sub => narrow::<Less<T>>(h),
        ScalarOp::Mul => narrow::<Times<T>>(h),
        ScalarOp::Abs => scalar::<Abs<T>>(),
        ScalarOp::Sign => scalar::<Sign<T>>(),
        ScalarOp::Exp => scalar::<Exp<T>>(),
        ScalarOp::Log => scalar::<Log<T>>(),
        ScalarOp::Sqrt => scalar::<Sqrt<T>>(),
        ScalarOp::Rsqrt => scalar::<Rsqrt<T>>(),
        ScalarOp::Sin => scalar::<Sin<T>>(),
        ScalarOp::Cos => scalar::<Cos<T>>(),
        ScalarOp::Tan => scalar::<Tan<T>>(),
        ScalarOp::Sinh => scalar::<Sinh<T>>(),
        ScalarOp::Cosh => scalar::<Cosh<T>>(),
        ScalarOp::Tanh => scalar::<Tanh<T>>(),
        ScalarOp::Div => scalar::<Div<T>>(),
        ScalarOp::Pow => scalar::<Pow<T>>(),
        ScalarOp::Max => scalar::<Max<T>>(),
        ScalarOp::Min => scalar::<Min<T>>(),
        ScalarOp::Eq => scalar::<Eq<T>>(),
        ScalarOp::Ne => scalar::<Ne<T>>(),
        _ => return None,
    })
}
