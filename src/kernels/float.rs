//! Functions on floats: float32 and float64 directly, and 16-bit floats through float32.

use super::elementwise::{BroadcastFn, Constants, ElementFn, KernelVariant, narrow, pick, plain, scalar};
use super::{BroadcastOp, SliceKernel, math32, math64};
use crate::core::scalar_op::ScalarOp;
use half::{bf16, f16};
use std::marker::PhantomData;

/// The operations of float32 and float64 that kernels need.
pub(super) trait FloatElement: Copy + Default + PartialOrd + 'static {
    fn from_f64(x: f64) -> Self;
    fn sign_of(self) -> Self;
    fn add(self, y: Self) -> Self;
    fn sub(self, y: Self) -> Self;
    fn mul(self, y: Self) -> Self;
    fn div(self, y: Self) -> Self;
    fn rem(self, y: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    /// Returns the bitwise and: of 0 and −0 it gives 0.
    fn bit_and(self, y: Self) -> Self;
    /// Returns the bitwise or: of 0 and −0 it gives −0.
    fn bit_or(self, y: Self) -> Self;
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
    /// Returns the number, or a zero of its sign if it is subnormal, without float instructions.
    fn flushed(self) -> Self;
}

macro_rules! float {
    ($T:ident $m:ident, $erf:expr, $erf_inv:expr, $sin_far:expr, $cos_far:expr; $($rare:ident = $libm:ident;)*) => {
        impl FloatElement for $T {
            #[inline(always)]
            fn from_f64(x: f64) -> $T { x as $T }
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
            fn bit_and(self, y: $T) -> $T { $T::from_bits(self.to_bits() & y.to_bits()) }
            #[inline(always)]
            fn bit_or(self, y: $T) -> $T { $T::from_bits(self.to_bits() | y.to_bits()) }
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
            #[inline(always)]
            fn flushed(self) -> $T {
                let (bits, sign) = (self.to_bits(), (-0.0 as $T).to_bits());
                $T::from_bits(if bits & $T::INFINITY.to_bits() == 0 { bits & sign } else { bits })
            }
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

/// Defines functions of floats whose result is a float.
macro_rules! els {
    ($($name:ident $n:literal |$a:ident, $b:ident, $c:ident, $k:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: FloatElement> ElementFn for $name<T> {
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
/// Defines functions of floats whose result is a bool.
macro_rules! tests {
    ($($name:ident $n:literal |$a:ident, $b:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: FloatElement> ElementFn for $name<T> {
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
/// Defines trigonometric functions that handle large arguments one at a time.
macro_rules! trig {
    ($($name:ident $f:ident $far:ident;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: FloatElement> ElementFn for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = T;
            const ARITY: usize = 1;
            const HAS_HARD_INPUTS: bool = true;
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
    Lin1 1 |a, b, c, k| a.mul(T::from_f64(k[0])).add(T::from_f64(k[1]));
    Lin2 2 |a, b, c, k| a.mul(T::from_f64(k[0])).add(b.mul(T::from_f64(k[1])));
    Lin3 3 |a, b, c, k| a.mul(T::from_f64(k[0])).add(b.mul(T::from_f64(k[1]))).add(c.mul(T::from_f64(k[2])));
    MulAdd 3 |a, b, c, k| a.mul(b).add(c);
    LinMul 3 |a, b, c, k| a.mul(T::from_f64(k[0])).add(b.mul(T::from_f64(k[1]))).mul(c);
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
    Acosh 1 |a, b, c, k| if a < T::from_f64(1.0) { T::from_f64(f64::NAN) } else { a.acosh() };
    Atanh 1 |a, b, c, k| a.atanh();
    Sqrt 1 |a, b, c, k| a.sqrt();
    Rsqrt 1 |a, b, c, k| T::from_f64(1.0).div(a.sqrt());
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
    Flush 1 |a, b, c, k| a.flushed();
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

/// Returns the maximum, which is NaN if either argument is NaN; 0 is greater than −0.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
pub(super) fn max<T: FloatElement>(a: T, b: T) -> T {
    let greater = if a > b || a != a { a } else { b };
    if a == b { a.bit_and(b) } else { greater }
}
/// Returns the minimum, which is NaN if either argument is NaN; −0 is less than 0.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
pub(super) fn min<T: FloatElement>(a: T, b: T) -> T {
    let less = if a < b || a != a { a } else { b };
    if a == b { a.bit_or(b) } else { less }
}

/// Makes the kernel of a function on `T`: directly, or for 16-bit floats through float32.
trait KernelMaker<T> {
    fn fast<E: ElementFn<A = T, B = T, C = T, D = T>>(how: KernelVariant) -> SliceKernel;
    fn slow<E: ElementFn<A = T, B = T, C = T, D = T>>(how: KernelVariant) -> SliceKernel;
    fn rare<E: ElementFn<A = T, B = T, C = T, D = T>>(how: KernelVariant) -> SliceKernel;
    fn test<E: ElementFn<A = T, B = T, C = T, D = u8>>(how: KernelVariant) -> SliceKernel;
}
struct DirectKernels;
impl<T> KernelMaker<T> for DirectKernels {
    fn fast<E: ElementFn<A = T, B = T, C = T, D = T>>(how: KernelVariant) -> SliceKernel {
        pick::<E>(how)
    }
    fn slow<E: ElementFn<A = T, B = T, C = T, D = T>>(how: KernelVariant) -> SliceKernel {
        plain::<E>(how)
    }
    fn rare<E: ElementFn<A = T, B = T, C = T, D = T>>(_: KernelVariant) -> SliceKernel {
        scalar::<E>()
    }
    fn test<E: ElementFn<A = T, B = T, C = T, D = u8>>(how: KernelVariant) -> SliceKernel {
        plain::<E>(how)
    }
}

fn table<T: FloatElement, W: KernelMaker<T>>(fun: ScalarOp, h: KernelVariant) -> Option<SliceKernel> {
    Some(match fun {
        ScalarOp::Neg => W::fast::<Neg<T>>(h),
        ScalarOp::Sign => W::slow::<Sign<T>>(h),
        ScalarOp::Abs => W::fast::<Abs<T>>(h),
        ScalarOp::Floor => W::slow::<Floor<T>>(h),
        ScalarOp::Ceil => W::slow::<Ceil<T>>(h),
        ScalarOp::Round => W::slow::<Round<T>>(h),
        ScalarOp::Exp => W::slow::<Exp<T>>(h),
        ScalarOp::Exp2 => W::slow::<Exp2<T>>(h),
        ScalarOp::Expm1 => W::slow::<Expm1<T>>(h),
        ScalarOp::Log => W::slow::<Log<T>>(h),
        ScalarOp::Log1p => W::slow::<Log1p<T>>(h),
        ScalarOp::Sin => W::slow::<Sin<T>>(h),
        ScalarOp::Cos => W::slow::<Cos<T>>(h),
        ScalarOp::Tan => W::rare::<Tan<T>>(h),
        ScalarOp::Asin => W::rare::<Asin<T>>(h),
        ScalarOp::Acos => W::rare::<Acos<T>>(h),
        ScalarOp::Atan => W::rare::<Atan<T>>(h),
        ScalarOp::Sinh => W::rare::<Sinh<T>>(h),
        ScalarOp::Cosh => W::rare::<Cosh<T>>(h),
        ScalarOp::Tanh => W::slow::<Tanh<T>>(h),
        ScalarOp::Asinh => W::rare::<Asinh<T>>(h),
        ScalarOp::Acosh => W::rare::<Acosh<T>>(h),
        ScalarOp::Atanh => W::rare::<Atanh<T>>(h),
        ScalarOp::Sqrt => W::slow::<Sqrt<T>>(h),
        ScalarOp::Rsqrt => W::slow::<Rsqrt<T>>(h),
        ScalarOp::Cbrt => W::rare::<Cbrt<T>>(h),
        ScalarOp::Logistic => W::slow::<Logistic<T>>(h),
        ScalarOp::Erf => W::slow::<Erf<T>>(h),
        ScalarOp::ErfInv => W::slow::<ErfInv<T>>(h),
        ScalarOp::IsFinite => W::test::<IsFinite<T>>(h),
        ScalarOp::FlushSubnormals => W::fast::<Flush<T>>(h),
        ScalarOp::Add => W::fast::<Add<T>>(h),
        ScalarOp::Sub => W::fast::<Sub<T>>(h),
        ScalarOp::Mul => W::fast::<Mul<T>>(h),
        ScalarOp::Div => W::slow::<Div<T>>(h),
        ScalarOp::Rem => W::rare::<Rem<T>>(h),
        ScalarOp::Max => W::fast::<Max<T>>(h),
        ScalarOp::Min => W::fast::<Min<T>>(h),
        ScalarOp::Pow => W::rare::<Pow<T>>(h),
        ScalarOp::Atan2 => W::rare::<Atan2<T>>(h),
        ScalarOp::NextAfter => W::rare::<NextAfter<T>>(h),
        ScalarOp::Eq => W::test::<Eq<T>>(h),
        ScalarOp::Ne => W::test::<Ne<T>>(h),
        ScalarOp::Lt => W::test::<Lt<T>>(h),
        ScalarOp::Le => W::test::<Le<T>>(h),
        ScalarOp::Gt => W::test::<Gt<T>>(h),
        ScalarOp::Ge => W::test::<Ge<T>>(h),
        _ => return None,
    })
}

/// Returns the kernel of a function on float32 or float64.
pub(super) fn select<T: FloatElement>(fun: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
    table::<T, DirectKernels>(fun, how)
}
pub(super) fn scaled_sum<T: FloatElement>(terms: usize, how: KernelVariant) -> Option<SliceKernel> {
    Some(match terms {
        1 => pick::<Lin1<T>>(how),
        2 => pick::<Lin2<T>>(how),
        3 => pick::<Lin3<T>>(how),
        _ => return None,
    })
}
pub(super) fn mul_add<T: FloatElement>(how: KernelVariant) -> SliceKernel {
    pick::<MulAdd<T>>(how)
}

/// Returns the kernel of a float32 function in which some operands are a single element.
///
/// `same` is the bit mask of these operands. Row kernels use it to combine the elements of a row
/// with the sum of the row.
pub(super) fn broadcast_kernel(fun: BroadcastOp, same: u8, how: KernelVariant) -> Option<SliceKernel> {
    Some(match (fun, same) {
        (BroadcastOp::Mul, 2) => pick::<BroadcastFn<Mul<f32>, 2>>(how),
        (BroadcastOp::Div, 2) => pick::<BroadcastFn<Div<f32>, 2>>(how),
        (BroadcastOp::Lin2, 2) => pick::<BroadcastFn<Lin2<f32>, 2>>(how),
        (BroadcastOp::MulAdd, 2) => pick::<BroadcastFn<MulAdd<f32>, 2>>(how),
        (BroadcastOp::MulAdd, 4) => pick::<BroadcastFn<MulAdd<f32>, 4>>(how),
        (BroadcastOp::MulAdd, 6) => pick::<BroadcastFn<MulAdd<f32>, 6>>(how),
        (BroadcastOp::LinMul, 2) => pick::<BroadcastFn<LinMul<f32>, 2>>(how),
        (BroadcastOp::LinMul, 6) => pick::<BroadcastFn<LinMul<f32>, 6>>(how),
        #[cfg(target_arch = "x86_64")]
        (BroadcastOp::ExpLin, 2) => return super::simd_f32::exp_lin(how.level),
        _ => return None,
    })
}

/// 16-bit floats, which are widened to float32, computed there, and rounded once.
pub(super) trait Half: Copy + Default + 'static {
    fn widen(from: &[Self], to: &mut [f32]);
    fn round(from: &[f32], to: &mut [Self]);
    /// Rounds at most [`CHUNK_ELEMENTS`] numbers, and writes them to uninitialized memory.
    ///
    /// # Safety
    /// `to` points to space for `from.len()` elements.
    #[inline(always)]
    unsafe fn round_to(from: &[f32], to: *mut u8) {
        let mut made = [Self::default(); CHUNK_ELEMENTS];
        Self::round(from, &mut made[..from.len()]);
        // SAFETY: `to` has space for `from.len()` elements (caller contract).
        unsafe { std::ptr::copy_nonoverlapping(made.as_ptr(), to.cast(), from.len()) }
    }
    /// Returns the next representable number after `self` in the direction of `y`.
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

/// The number of 16-bit floats that are widened at a time.
pub(super) const CHUNK_ELEMENTS: usize = 128;

/// Runs a float32 function on 16-bit floats, chunk by chunk.
///
/// `store` receives the results of a chunk, the destination, and the index of the first one.
///
/// # Safety
/// The caller upholds the contract of `SliceKernel`, for operands of type `H` and a result of type
/// `H`, or of bool bytes if `E` returns them.
#[inline(always)]
unsafe fn through_f32<H: Half, E: ElementFn<A = f32, B = f32, C = f32>, const L: u8>(
    n: usize,
    d: *mut u8,
    operands: [*const u8; 3],
    k: &Constants,
    store: impl Fn(&[E::D], *mut u8, usize),
) where
    E::D: Default,
{
    let mut wide = [[0f32; CHUNK_ELEMENTS]; 3];
    let mut made = [E::D::default(); CHUNK_ELEMENTS];
    for at in (0..n).step_by(CHUNK_ELEMENTS) {
        let m = (n - at).min(CHUNK_ELEMENTS);
        for (to, from) in wide.iter_mut().zip(operands).take(E::ARITY) {
            // SAFETY: each operand that is read has `n` elements (caller contract).
            let from = unsafe { std::slice::from_raw_parts(from.cast::<H>().add(at), m) };
            H::widen(from, &mut to[..m]);
        }
        for i in 0..m {
            made[i] = E::f::<L>(wide[0][i], wide[1][i], wide[2][i], k);
            if E::HAS_HARD_INPUTS && E::hard(wide[0][i]) {
                made[i] = E::exact(wide[0][i]).unwrap_or(made[i]);
            }
        }
        store(&made[..m], d, at);
    }
}
/// Runs a function of 16-bit floats whose result is a float.
///
/// # Safety
/// The caller upholds the contract of `through_f32`.
unsafe fn float_kernel<H: Half, E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the operands and `d` have `n` elements of type `H` (caller contract).
    unsafe {
        through_f32::<H, E, 0>(n, d, [a, b, c], k, |made, d, at| {
            H::round_to(made, d.add(at * size_of::<H>()));
        })
    }
}
/// Runs a function of 16-bit floats whose result is a bool.
///
/// # Safety
/// The caller upholds the contract of `through_f32`.
unsafe fn bool_kernel<H: Half, E: ElementFn<A = f32, B = f32, C = f32, D = u8>>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the operands have `n` elements of type `H`, and `d` has space for `n` bytes (caller
    // contract).
    unsafe {
        through_f32::<H, E, 0>(n, d, [a, b, c], k, |made, d, at| {
            std::ptr::copy_nonoverlapping(made.as_ptr(), d.add(at), made.len());
        })
    }
}
struct ThroughF32<H>(PhantomData<H>);
impl<H: Half> KernelMaker<f32> for ThroughF32<H> {
    fn fast<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        float_kernel::<H, E>
    }
    fn slow<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        float_kernel::<H, E>
    }
    fn rare<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        float_kernel::<H, E>
    }
    fn test<E: ElementFn<A = f32, B = f32, C = f32, D = u8>>(_: KernelVariant) -> SliceKernel {
        bool_kernel::<H, E>
    }
}
struct HalfNextAfter<H>(PhantomData<H>);
impl<H: Half> ElementFn for HalfNextAfter<H> {
    type A = H;
    type B = H;
    type C = H;
    type D = H;
    const ARITY: usize = 2;
    fn f<const L: u8>(a: H, b: H, _: H, _: &Constants) -> H {
        a.next_after(b)
    }
}

/// Returns the kernel of a function on 16-bit floats.
pub(super) fn select_half<H: Half>(fun: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
    match fun {
        ScalarOp::NextAfter => Some(narrow::<HalfNextAfter<H>>(how)),
        _ => table::<f32, ThroughF32<H>>(fun, how),
    }
}
