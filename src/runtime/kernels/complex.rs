//! Functions on complex numbers. Sums, products and their like round each step in the element type; the others are computed in float64 and
//! rounded once, on all levels alike.

use super::Kernel;
use super::run::{Constants, El, How, narrow, scalar};
use crate::program::sentence::Fun;
use crate::types::DType;
use num_complex::Complex;
use std::marker::PhantomData;
use std::ops::{Add, Mul, Neg, Sub};

/// float32 and float64 as parts.
pub(super) trait Part:
    Copy
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Neg<Output = Self>
    + 'static
{
    fn wide(self) -> f64;
    fn of(x: f64) -> Self;
}
macro_rules! parts { ($($T:ident)*) => { $(
    impl Part for $T {
        #[inline(always)]
        fn wide(self) -> f64 { self.into() }
        #[inline(always)]
        fn of(x: f64) -> $T { x as $T }
    }
)* } }
parts!(f32 f64);

/// Complex numbers of such parts.
pub(super) trait Pair: Copy + 'static {
    type Part: Part;
}
impl<T: Part> Pair for Complex<T> {
    type Part = T;
}

/// The product, each of its products and sums rounded.
#[inline(always)]
pub(super) fn times<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}
fn wide<T: Part>(z: Complex<T>) -> Complex<f64> {
    Complex { re: z.re.wide(), im: z.im.wide() }
}
fn round<T: Part>(z: Complex<f64>) -> Complex<T> {
    Complex { re: T::of(z.re), im: T::of(z.im) }
}

fn modulus(z: Complex<f64>) -> f64 {
    libm::hypot(z.re, z.im)
}
fn exp(z: Complex<f64>) -> Complex<f64> {
    let size = libm::exp(z.re);
    // no 0 · ∞ where the number is real
    let of = |x: f64| if x == 0.0 { x } else { size * x };
    Complex { re: of(libm::cos(z.im)), im: of(libm::sin(z.im)) }
}
fn log(z: Complex<f64>) -> Complex<f64> {
    let (most, least) = (z.re.abs().max(z.im.abs()), z.re.abs().min(z.im.abs()));
    // near modulus 1 its logarithm is small beside the modulus
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
/// What a function of iz is, as one of z.
fn turned(f: fn(Complex<f64>) -> Complex<f64>, z: Complex<f64>) -> Complex<f64> {
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
/// By the greater part of the divisor, without overflow on the way.
fn div(a: Complex<f64>, b: Complex<f64>) -> Complex<f64> {
    if b.re.abs() >= b.im.abs() {
        // (0 by 0 is NaN, another number by 0 infinite)
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
/// The greater of the two by real parts, then by imaginary ones; NaN where either is.
#[inline(always)]
fn most<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let greater = a.re > b.re || a.re == b.re && a.im > b.im;
    if nan(a) || greater && !nan(b) { a } else { b }
}
#[inline(always)]
fn least<T: Part>(a: Complex<T>, b: Complex<T>) -> Complex<T> {
    let less = a.re < b.re || a.re == b.re && a.im < b.im;
    if nan(a) || less && !nan(b) { a } else { b }
}
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
fn nan<T: Part>(z: Complex<T>) -> bool {
    z.re != z.re || z.im != z.im
}

macro_rules! els {
    ($($name:ident $n:literal $D:ty, |$a:ident, $b:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: Part> El for $name<T> {
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
    Abs 1 T, |a, b| T::of(modulus(wide(a)));
    Sign 1 Complex<T>, |a, b| round(sign(wide(a)));
    Exp 1 Complex<T>, |a, b| round(exp(wide(a)));
    Log 1 Complex<T>, |a, b| round(log(wide(a)));
    Sqrt 1 Complex<T>, |a, b| round(sqrt(wide(a)));
    Rsqrt 1 Complex<T>, |a, b| round(div(Complex { re: 1.0, im: 0.0 }, sqrt(wide(a))));
    Sin 1 Complex<T>, |a, b| round(turned(sinh, wide(a)));
    Cos 1 Complex<T>, |a, b| round(cosh(Complex { re: -a.im.wide(), im: a.re.wide() }));
    Tan 1 Complex<T>, |a, b| round(turned(tanh, wide(a)));
    Sinh 1 Complex<T>, |a, b| round(sinh(wide(a)));
    Cosh 1 Complex<T>, |a, b| round(cosh(wide(a)));
    Tanh 1 Complex<T>, |a, b| round(tanh(wide(a)));
    Plus 2 Complex<T>, |a, b| Complex { re: a.re + b.re, im: a.im + b.im };
    Less 2 Complex<T>, |a, b| Complex { re: a.re - b.re, im: a.im - b.im };
    Times 2 Complex<T>, |a, b| times(a, b);
    Div 2 Complex<T>, |a, b| round(div(wide(a), wide(b)));
    Pow 2 Complex<T>, |a, b| round(pow(wide(a), wide(b)));
    Max 2 Complex<T>, |a, b| most(a, b);
    Min 2 Complex<T>, |a, b| least(a, b);
    Eq 2 u8, |a, b| (a.re == b.re && a.im == b.im) as u8;
    Ne 2 u8, |a, b| (a.re != b.re || a.im != b.im) as u8;
}

/// The complex number of two parts.
struct OfParts<T>(PhantomData<T>);
impl<T: Part> El for OfParts<T> {
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
/// The kernel that puts parts of this type together.
pub(super) fn of_parts(part: DType) -> Option<Kernel> {
    match part {
        DType::F32 => Some(scalar::<OfParts<f32>>()),
        DType::F64 => Some(scalar::<OfParts<f64>>()),
        _ => None,
    }
}

/// The kernel of a function on complex numbers.
pub(super) fn select<C: Pair>(fun: Fun, h: How) -> Option<Kernel> {
    of::<C::Part>(fun, h)
}
fn of<T: Part>(fun: Fun, h: How) -> Option<Kernel> {
    Some(match fun {
        Fun::Neg => narrow::<Minus<T>>(h),
        Fun::Conj => narrow::<Conj<T>>(h),
        Fun::Real => narrow::<Real<T>>(h),
        Fun::Imag => narrow::<Imag<T>>(h),
        Fun::Add => narrow::<Plus<T>>(h),
        Fun::Sub => narrow::<Less<T>>(h),
        Fun::Mul => narrow::<Times<T>>(h),
        Fun::Abs => scalar::<Abs<T>>(),
        Fun::Sign => scalar::<Sign<T>>(),
        Fun::Exp => scalar::<Exp<T>>(),
        Fun::Log => scalar::<Log<T>>(),
        Fun::Sqrt => scalar::<Sqrt<T>>(),
        Fun::Rsqrt => scalar::<Rsqrt<T>>(),
        Fun::Sin => scalar::<Sin<T>>(),
        Fun::Cos => scalar::<Cos<T>>(),
        Fun::Tan => scalar::<Tan<T>>(),
        Fun::Sinh => scalar::<Sinh<T>>(),
        Fun::Cosh => scalar::<Cosh<T>>(),
        Fun::Tanh => scalar::<Tanh<T>>(),
        Fun::Div => scalar::<Div<T>>(),
        Fun::Pow => scalar::<Pow<T>>(),
        Fun::Max => scalar::<Max<T>>(),
        Fun::Min => scalar::<Min<T>>(),
        Fun::Eq => scalar::<Eq<T>>(),
        Fun::Ne => scalar::<Ne<T>>(),
        _ => return None,
    })
}
