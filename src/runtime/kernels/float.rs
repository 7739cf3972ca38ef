//! Functions on floats: float32 and float64 themselves, and 16-bit floats by way of float32.

use super::run::{Constants, El, How, Same, narrow, pick, plain, scalar};
use super::{Along, Kernel, math32, math64};
use crate::program::sentence::Fun;
use half::{bf16, f16};
use std::marker::PhantomData;

/// float32 and float64: what kernels need of them.
pub(super) trait Float: Copy + Default + PartialOrd + 'static {
    fn of(x: f64) -> Self;
    fn sign_of(self) -> Self;
    fn add(self, y: Self) -> Self;
    fn sub(self, y: Self) -> Self;
    fn mul(self, y: Self) -> Self;
    fn div(self, y: Self) -> Self;
    fn rem(self, y: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    /// The bits that both have: of two equal numbers 0 rather than −0.
    fn both(self, y: Self) -> Self;
    /// The bits that either has: of two equal numbers −0 rather than 0.
    fn either(self, y: Self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn round(self) -> Self;
    fn sqrt(self) -> Self;
    fn exp<const L: u8>(self) -> Self;
    fn exp2<const L: u8>(self) -> Self;
    fn expm1<const L: u8>(self) -> Self;
    fn log<const L: u8>(self) -> Self;
    fn log1p<const L: u8>(self) -> Self;
    fn sin<const L: u8>(self) -> Self;
    fn cos<const L: u8>(self) -> Self;
    fn tanh<const L: u8>(self) -> Self;
    fn logistic<const L: u8>(self) -> Self;
    fn erf<const L: u8>(self) -> Self;
    fn erf_inv<const L: u8>(self) -> Self;
    fn sin_far(self) -> Self;
    fn cos_far(self) -> Self;
    fn far(self) -> bool;
    fn finite(self) -> bool;
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
    fn cbrt(self) -> Self;
    fn pow(self, y: Self) -> Self;
    fn atan2(self, y: Self) -> Self;
    fn next_after(self, y: Self) -> Self;
}

macro_rules! float {
    ($T:ident $m:ident, $erf:expr, $erf_inv:expr, $sin_far:expr, $cos_far:expr; $($rare:ident = $libm:ident;)*) => {
        impl Float for $T {
            #[inline(always)]
            fn of(x: f64) -> $T { x as $T }
            #[inline(always)]
            fn sign_of(self) -> $T { if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else { self } }
            #[inline(always)]
            fn add(self, y: $T) -> $T { self + y }
            #[inline(always)]
            fn sub(self, y: $T) -> $T { self - y }
            #[inline(always)]
            fn mul(self, y: $T) -> $T { self * y }
            #[inline(always)]
            fn div(self, y: $T) -> $T { self / y }
            #[inline(always)]
            fn rem(self, y: $T) -> $T { self % y }
            #[inline(always)]
            fn neg(self) -> $T { -self }
            #[inline(always)]
            fn abs(self) -> $T { $T::abs(self) }
            #[inline(always)]
            fn both(self, y: $T) -> $T { $T::from_bits(self.to_bits() & y.to_bits()) }
            #[inline(always)]
            fn either(self, y: $T) -> $T { $T::from_bits(self.to_bits() | y.to_bits()) }
            #[inline(always)]
            fn floor(self) -> $T { $T::floor(self) }
            #[inline(always)]
            fn ceil(self) -> $T { $T::ceil(self) }
            #[inline(always)]
            fn round(self) -> $T { $T::round(self) }
            #[inline(always)]
            fn sqrt(self) -> $T { $T::sqrt(self) }
            #[inline(always)]
            fn exp<const L: u8>(self) -> $T { $m::exp::<L>(self) }
            #[inline(always)]
            fn exp2<const L: u8>(self) -> $T { $m::exp2::<L>(self) }
            #[inline(always)]
            fn expm1<const L: u8>(self) -> $T { $m::expm1::<L>(self) }
            #[inline(always)]
            fn log<const L: u8>(self) -> $T { $m::log::<L>(self) }
            #[inline(always)]
            fn log1p<const L: u8>(self) -> $T { $m::log1p::<L>(self) }
            #[inline(always)]
            fn sin<const L: u8>(self) -> $T { $m::sin::<L>(self) }
            #[inline(always)]
            fn cos<const L: u8>(self) -> $T { $m::cos::<L>(self) }
            #[inline(always)]
            fn tanh<const L: u8>(self) -> $T { $m::tanh::<L>(self) }
            #[inline(always)]
            fn logistic<const L: u8>(self) -> $T { $m::logistic::<L>(self) }
            #[inline(always)]
            fn erf<const L: u8>(self) -> $T { $erf(self) }
            #[inline(always)]
            fn erf_inv<const L: u8>(self) -> $T { $erf_inv(self) }
            #[inline(always)]
            fn far(self) -> bool { self.abs() > $m::TRIG_MAX }
            #[inline(always)]
            fn finite(self) -> bool { self.abs() < $T::INFINITY }
            fn sin_far(self) -> $T { $sin_far(self) }
            fn cos_far(self) -> $T { $cos_far(self) }
            $(fn $rare(self) -> $T { libm::$libm(self) })*
            fn pow(self, y: $T) -> $T { float!(@ $T pow)(self, y) }
            fn atan2(self, y: $T) -> $T { float!(@ $T atan2)(self, y) }
            fn next_after(self, y: $T) -> $T { float!(@ $T nextafter)(self, y) }
        }
    };
    (@ f32 pow) => { libm::powf };
    (@ f64 pow) => { libm::pow };
    (@ f32 atan2) => { libm::atan2f };
    (@ f64 atan2) => { libm::atan2 };
    (@ f32 nextafter) => { libm::nextafterf };
    (@ f64 nextafter) => { libm::nextafter };
}
float! { f32 math32, math32::erf::<L>, math32::erf_inv::<L>, |x| libm::sin(x as f64) as f32, |x| libm::cos(x as f64) as f32;
    tan = tanf; asin = asinf; acos = acosf; atan = atanf; sinh = sinhf; cosh = coshf; asinh = asinhf; acosh = acoshf; atanh = atanhf; cbrt = cbrtf;
}
float! { f64 math64, libm::erf, math64::erf_inv, libm::sin, libm::cos;
    tan = tan; asin = asin; acos = acos; atan = atan; sinh = sinh; cosh = cosh; asinh = asinh; acosh = acosh; atanh = atanh; cbrt = cbrt;
}

/// Functions of floats whose result is one.
macro_rules! els {
    ($($name:ident $n:literal |$a:ident, $b:ident, $c:ident, $k:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: Float> El for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = T;
            const ARITY: usize = $n;
            #[inline(always)]
            fn f<const L: u8>($a: T, $b: T, $c: T, $k: &Constants) -> T {
                let _ = ($b, $c, $k);
                $e
            }
        }
    )* };
}
/// Functions of floats whose result is a bool.
macro_rules! tests {
    ($($name:ident $n:literal |$a:ident, $b:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: Float> El for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = u8;
            const ARITY: usize = $n;
            #[inline(always)]
            fn f<const L: u8>($a: T, $b: T, _: T, _: &Constants) -> u8 {
                let _ = $b;
                ($e) as u8
            }
        }
    )* };
}
/// Functions that reduce large arguments one at a time.
macro_rules! trig {
    ($($name:ident $f:ident $far:ident;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: Float> El for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = T;
            const ARITY: usize = 1;
            const HARD: bool = true;
            #[inline(always)]
            fn f<const L: u8>(a: T, _: T, _: T, _: &Constants) -> T {
                a.$f::<L>()
            }
            #[inline(always)]
            fn hard(a: T) -> bool {
                a.far()
            }
            fn exact(a: T) -> Option<T> {
                Some(a.$far())
            }
        }
    )* };
}

els! {
    Lin1 1 |a, b, c, k| a.mul(T::of(k[0])).add(T::of(k[1]));
    Lin2 2 |a, b, c, k| a.mul(T::of(k[0])).add(b.mul(T::of(k[1])));
    Lin3 3 |a, b, c, k| a.mul(T::of(k[0])).add(b.mul(T::of(k[1]))).add(c.mul(T::of(k[2])));
    MulAdd 3 |a, b, c, k| a.mul(b).add(c);
    LinMul 3 |a, b, c, k| a.mul(T::of(k[0])).add(b.mul(T::of(k[1]))).mul(c);
    Neg 1 |a, b, c, k| a.neg();
    Sign 1 |a, b, c, k| a.sign_of();
    Abs 1 |a, b, c, k| a.abs();
    Floor 1 |a, b, c, k| a.floor();
    Ceil 1 |a, b, c, k| a.ceil();
    Round 1 |a, b, c, k| a.round();
    Exp 1 |a, b, c, k| a.exp::<L>();
    Exp2 1 |a, b, c, k| a.exp2::<L>();
    Expm1 1 |a, b, c, k| a.expm1::<L>();
    Log 1 |a, b, c, k| a.log::<L>();
    Log1p 1 |a, b, c, k| a.log1p::<L>();
    Tan 1 |a, b, c, k| a.tan();
    Asin 1 |a, b, c, k| a.asin();
    Acos 1 |a, b, c, k| a.acos();
    Atan 1 |a, b, c, k| a.atan();
    Sinh 1 |a, b, c, k| a.sinh();
    Cosh 1 |a, b, c, k| a.cosh();
    Tanh 1 |a, b, c, k| a.tanh::<L>();
    Asinh 1 |a, b, c, k| a.asinh();
    Acosh 1 |a, b, c, k| if a < T::of(1.0) { T::of(f64::NAN) } else { a.acosh() };
    Atanh 1 |a, b, c, k| a.atanh();
    Sqrt 1 |a, b, c, k| a.sqrt();
    Rsqrt 1 |a, b, c, k| T::of(1.0).div(a.sqrt());
    Cbrt 1 |a, b, c, k| a.cbrt();
    Logistic 1 |a, b, c, k| a.logistic::<L>();
    Erf 1 |a, b, c, k| a.erf::<L>();
    ErfInv 1 |a, b, c, k| a.erf_inv::<L>();
    Add 2 |a, b, c, k| a.add(b);
    Sub 2 |a, b, c, k| a.sub(b);
    Mul 2 |a, b, c, k| a.mul(b);
    Div 2 |a, b, c, k| a.div(b);
    Rem 2 |a, b, c, k| a.rem(b);
    Max 2 |a, b, c, k| max(a, b);
    Min 2 |a, b, c, k| min(a, b);
    Pow 2 |a, b, c, k| a.pow(b);
    Atan2 2 |a, b, c, k| a.atan2(b);
    NextAfter 2 |a, b, c, k| a.next_after(b);
}
tests! {
    IsFinite 1 |a, b| a.finite();
    Eq 2 |a, b| a == b;
    Ne 2 |a, b| a != b;
    Lt 2 |a, b| a < b;
    Le 2 |a, b| a <= b;
    Gt 2 |a, b| a > b;
    Ge 2 |a, b| a >= b;
}
trig! {
    Sin sin sin_far;
    Cos cos cos_far;
}

/// NaN where any is NaN; 0 is greater than −0.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
pub(super) fn max<T: Float>(a: T, b: T) -> T {
    let greater = if a > b || a != a { a } else { b };
    if a == b { a.both(b) } else { greater }
}
/// NaN where any is NaN; −0 is less than 0.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
pub(super) fn min<T: Float>(a: T, b: T) -> T {
    let less = if a < b || a != a { a } else { b };
    if a == b { a.either(b) } else { less }
}

/// How functions of T are made kernels: directly, or for 16-bit floats through float32.
trait Way<T> {
    fn fast<E: El<A = T, B = T, C = T, D = T>>(how: How) -> Kernel;
    fn slow<E: El<A = T, B = T, C = T, D = T>>(how: How) -> Kernel;
    fn rare<E: El<A = T, B = T, C = T, D = T>>(how: How) -> Kernel;
    fn test<E: El<A = T, B = T, C = T, D = u8>>(how: How) -> Kernel;
}
struct Direct;
impl<T> Way<T> for Direct {
    fn fast<E: El<A = T, B = T, C = T, D = T>>(how: How) -> Kernel {
        pick::<E>(how)
    }
    fn slow<E: El<A = T, B = T, C = T, D = T>>(how: How) -> Kernel {
        plain::<E>(how)
    }
    fn rare<E: El<A = T, B = T, C = T, D = T>>(_: How) -> Kernel {
        scalar::<E>()
    }
    fn test<E: El<A = T, B = T, C = T, D = u8>>(how: How) -> Kernel {
        plain::<E>(how)
    }
}

fn table<T: Float, W: Way<T>>(fun: Fun, h: How) -> Option<Kernel> {
    Some(match fun {
        Fun::Neg => W::fast::<Neg<T>>(h),
        Fun::Sign => W::slow::<Sign<T>>(h),
        Fun::Abs => W::fast::<Abs<T>>(h),
        Fun::Floor => W::slow::<Floor<T>>(h),
        Fun::Ceil => W::slow::<Ceil<T>>(h),
        Fun::Round => W::slow::<Round<T>>(h),
        Fun::Exp => W::slow::<Exp<T>>(h),
        Fun::Exp2 => W::slow::<Exp2<T>>(h),
        Fun::Expm1 => W::slow::<Expm1<T>>(h),
        Fun::Log => W::slow::<Log<T>>(h),
        Fun::Log1p => W::slow::<Log1p<T>>(h),
        Fun::Sin => W::slow::<Sin<T>>(h),
        Fun::Cos => W::slow::<Cos<T>>(h),
        Fun::Tan => W::rare::<Tan<T>>(h),
        Fun::Asin => W::rare::<Asin<T>>(h),
        Fun::Acos => W::rare::<Acos<T>>(h),
        Fun::Atan => W::rare::<Atan<T>>(h),
        Fun::Sinh => W::rare::<Sinh<T>>(h),
        Fun::Cosh => W::rare::<Cosh<T>>(h),
        Fun::Tanh => W::slow::<Tanh<T>>(h),
        Fun::Asinh => W::rare::<Asinh<T>>(h),
        Fun::Acosh => W::rare::<Acosh<T>>(h),
        Fun::Atanh => W::rare::<Atanh<T>>(h),
        Fun::Sqrt => W::slow::<Sqrt<T>>(h),
        Fun::Rsqrt => W::slow::<Rsqrt<T>>(h),
        Fun::Cbrt => W::rare::<Cbrt<T>>(h),
        Fun::Logistic => W::slow::<Logistic<T>>(h),
        Fun::Erf => W::slow::<Erf<T>>(h),
        Fun::ErfInv => W::slow::<ErfInv<T>>(h),
        Fun::IsFinite => W::test::<IsFinite<T>>(h),
        Fun::Add => W::fast::<Add<T>>(h),
        Fun::Sub => W::fast::<Sub<T>>(h),
        Fun::Mul => W::fast::<Mul<T>>(h),
        Fun::Div => W::slow::<Div<T>>(h),
        Fun::Rem => W::rare::<Rem<T>>(h),
        Fun::Max => W::fast::<Max<T>>(h),
        Fun::Min => W::fast::<Min<T>>(h),
        Fun::Pow => W::rare::<Pow<T>>(h),
        Fun::Atan2 => W::rare::<Atan2<T>>(h),
        Fun::NextAfter => W::rare::<NextAfter<T>>(h),
        Fun::Eq => W::test::<Eq<T>>(h),
        Fun::Ne => W::test::<Ne<T>>(h),
        Fun::Lt => W::test::<Lt<T>>(h),
        Fun::Le => W::test::<Le<T>>(h),
        Fun::Gt => W::test::<Gt<T>>(h),
        Fun::Ge => W::test::<Ge<T>>(h),
        _ => return None,
    })
}

/// The kernel of a function on float32 or float64.
pub(super) fn select<T: Float>(fun: Fun, how: How) -> Option<Kernel> {
    table::<T, Direct>(fun, how)
}
pub(super) fn lin<T: Float>(terms: usize, how: How) -> Option<Kernel> {
    Some(match terms {
        1 => pick::<Lin1<T>>(how),
        2 => pick::<Lin2<T>>(how),
        3 => pick::<Lin3<T>>(how),
        _ => return None,
    })
}
pub(super) fn mul_add<T: Float>(how: How) -> Kernel {
    pick::<MulAdd<T>>(how)
}

/// The kernel of a function of float32 with one element for some operands, as bits of `same` say: what rows are made of with their sums.
pub(super) fn along_one(fun: Along, same: u8, how: How) -> Option<Kernel> {
    Some(match (fun, same) {
        (Along::Mul, 2) => pick::<Same<Mul<f32>, 2>>(how),
        (Along::Div, 2) => pick::<Same<Div<f32>, 2>>(how),
        (Along::Lin2, 2) => pick::<Same<Lin2<f32>, 2>>(how),
        (Along::MulAdd, 2) => pick::<Same<MulAdd<f32>, 2>>(how),
        (Along::MulAdd, 4) => pick::<Same<MulAdd<f32>, 4>>(how),
        (Along::MulAdd, 6) => pick::<Same<MulAdd<f32>, 6>>(how),
        (Along::LinMul, 2) => pick::<Same<LinMul<f32>, 2>>(how),
        (Along::LinMul, 6) => pick::<Same<LinMul<f32>, 6>>(how),
        #[cfg(target_arch = "x86_64")]
        (Along::ExpLin, 2) => return super::wide::exp_lin(how.level),
        _ => return None,
    })
}

/// 16-bit floats: widened to float32, computed there, rounded once.
pub(super) trait Half: Copy + Default + 'static {
    fn widen(from: &[Self], to: &mut [f32]);
    fn round(from: &[f32], to: &mut [Self]);
    /// [`Half::round`] of at most [`CHUNK`] numbers to memory that nobody has written yet.
    ///
    /// # Safety
    /// There is room for as many elements at `to`.
    #[inline(always)]
    unsafe fn round_to(from: &[f32], to: *mut u8) {
        let mut made = [Self::default(); CHUNK];
        Self::round(from, &mut made[..from.len()]);
        // SAFETY: the caller's
        unsafe { std::ptr::copy_nonoverlapping(made.as_ptr(), to.cast(), from.len()) }
    }
    /// The bits, ordered as the numbers are, for the neighbour of a number.
    fn next_after(self, y: Self) -> Self;
}
macro_rules! half {
    ($($T:ident)*) => { $(
        impl Half for $T {
            fn widen(from: &[$T], to: &mut [f32]) {
                half::slice::HalfFloatSliceExt::convert_to_f32_slice(from, to);
            }
            fn round(from: &[f32], to: &mut [$T]) {
                half::slice::HalfFloatSliceExt::convert_from_f32_slice(to, from);
            }
            fn next_after(self, y: $T) -> $T {
                if self.is_nan() || y.is_nan() {
                    return $T::NAN;
                }
                if self == y {
                    return y;
                }
                if self == $T::ZERO {
                    return $T::from_bits(1 | (y.to_bits() & 0x8000));
                }
                let up = (y > self) == (self > $T::ZERO);
                $T::from_bits(if up { self.to_bits() + 1 } else { self.to_bits() - 1 })
            }
        }
    )* };
}
half!(f16 bf16);

/// How many elements are widened at a time.
pub(super) const CHUNK: usize = 128;

/// # Safety
/// As `Kernel` says, for operands of type H and a result of type H (or bool bytes where `E` makes these).
#[inline(always)]
unsafe fn through<H: Half, E: El<A = f32, B = f32, C = f32>, const L: u8>(
    n: usize,
    d: *mut u8,
    operands: [*const u8; 3],
    k: &Constants,
    store: impl Fn(&[E::D], *mut u8, usize),
) where
    E::D: Default,
{
    let mut wide = [[0f32; CHUNK]; 3];
    let mut made = [E::D::default(); CHUNK];
    for at in (0..n).step_by(CHUNK) {
        let m = (n - at).min(CHUNK);
        for (to, from) in wide.iter_mut().zip(operands).take(E::ARITY) {
            // SAFETY: the caller's: there are n elements at each operand that is read
            let from = unsafe { std::slice::from_raw_parts(from.cast::<H>().add(at), m) };
            H::widen(from, &mut to[..m]);
        }
        for i in 0..m {
            made[i] = E::f::<L>(wide[0][i], wide[1][i], wide[2][i], k);
            if E::HARD && E::hard(wide[0][i]) {
                made[i] = E::exact(wide[0][i]).unwrap_or(made[i]);
            }
        }
        store(&made[..m], d, at);
    }
}
/// # Safety
/// As `through` says.
unsafe fn float_kernel<H: Half, E: El<A = f32, B = f32, C = f32, D = f32>>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the caller's
    unsafe {
        through::<H, E, 0>(n, d, [a, b, c], k, |made, d, at| {
            H::round_to(made, d.add(at * size_of::<H>()));
        })
    }
}
/// # Safety
/// As `through` says.
unsafe fn bool_kernel<H: Half, E: El<A = f32, B = f32, C = f32, D = u8>>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the caller's
    unsafe {
        through::<H, E, 0>(n, d, [a, b, c], k, |made, d, at| {
            std::ptr::copy_nonoverlapping(made.as_ptr(), d.add(at), made.len());
        })
    }
}
struct Through<H>(PhantomData<H>);
impl<H: Half> Way<f32> for Through<H> {
    fn fast<E: El<A = f32, B = f32, C = f32, D = f32>>(_: How) -> Kernel {
        float_kernel::<H, E>
    }
    fn slow<E: El<A = f32, B = f32, C = f32, D = f32>>(_: How) -> Kernel {
        float_kernel::<H, E>
    }
    fn rare<E: El<A = f32, B = f32, C = f32, D = f32>>(_: How) -> Kernel {
        float_kernel::<H, E>
    }
    fn test<E: El<A = f32, B = f32, C = f32, D = u8>>(_: How) -> Kernel {
        bool_kernel::<H, E>
    }
}
struct HalfNextAfter<H>(PhantomData<H>);
impl<H: Half> El for HalfNextAfter<H> {
    type A = H;
    type B = H;
    type C = H;
    type D = H;
    const ARITY: usize = 2;
    fn f<const L: u8>(a: H, b: H, _: H, _: &Constants) -> H {
        a.next_after(b)
    }
}

/// The kernel of a function on 16-bit floats.
pub(super) fn select_half<H: Half>(fun: Fun, how: How) -> Option<Kernel> {
    match fun {
        Fun::NextAfter => Some(narrow::<HalfNextAfter<H>>(how)),
        _ => table::<f32, Through<H>>(fun, how),
    }
}
