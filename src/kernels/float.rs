//! Functions on float32 and float64.

use super::cpu::{IsaLevel, for_each_isa};
use super::elementwise::{
    BroadcastFn, Constants, ElementFn, KernelVariant, element_fn, pick, plain, scalar, uninit_slice,
};
use super::{BroadcastOp, SliceKernel, math64};
use crate::core::ScalarOp;
use std::marker::PhantomData;
use std::ops::{Add, Mul};

/// The float types that kernels compute in: float32 and float64.
pub(super) trait FloatElement:
    Copy + Default + PartialOrd + Add<Output = Self> + Mul<Output = Self> + 'static
{
    fn from_f64(x: f64) -> Self;
    /// Returns the bitwise and: of 0 and −0 it gives 0.
    fn bit_and(self, y: Self) -> Self;
    /// Returns the bitwise or: of 0 and −0 it gives −0.
    fn bit_or(self, y: Self) -> Self;
    /// Returns the number, or a zero of its sign if it is subnormal, without float instructions.
    fn flushed(self) -> Self;
    /// Returns the kernel of a function, which `W` makes of its elements.
    fn kernel<W: KernelMaker<Self>>(op: ScalarOp, how: KernelVariant) -> Option<SliceKernel>;
}

/// Defines the functions on float32 and float64, in one module for each type.
///
/// A row is `maker Function(operands) = result;`. The makers are the methods of [`KernelMaker`],
/// and `T` and `math` are the type and its module. The results of arguments beyond `TRIG_MAX` are
/// those after `far`, computed one at a time.
macro_rules! float_functions {
    ([$($module:ident $T:ident $math:ident),*] $rows:tt) => { $(
        #[allow(clippy::useless_conversion, reason = "the rows serve both types")]
        mod $module {
            use super::*;
            use crate::kernels::$math as math;
            type T = $T;
            float_functions! { @rows $rows }
        }
    )* };
    (@rows {
        $($maker:ident $name:ident($a:ident $(, $b:ident)?) = $e:expr $(, far $far:expr)?;)*
    }) => {
        $(
            pub(super) struct $name;
            element_fn! {
                $name = ($a $(, $b)?): T => float_functions!(@result $maker), Self::D::from($e);
                $(
                    const HAS_HARD_INPUTS: bool = true;
                    #[inline(always)]
                    fn hard(a: T) -> bool {
                        a.abs() > math::TRIG_MAX
                    }
                    fn exact($a: T) -> Option<T> {
                        Some($far)
                    }
                )?
            }
        )*
        impl FloatElement for T {
            #[inline(always)]
            fn from_f64(x: f64) -> T {
                x as T
            }
            #[inline(always)]
            fn bit_and(self, y: T) -> T {
                T::from_bits(self.to_bits() & y.to_bits())
            }
            #[inline(always)]
            fn bit_or(self, y: T) -> T {
                T::from_bits(self.to_bits() | y.to_bits())
            }
            #[inline(always)]
            fn flushed(self) -> T {
                let (bits, sign) = (self.to_bits(), (-0.0 as T).to_bits());
                T::from_bits(if bits & T::INFINITY.to_bits() == 0 { bits & sign } else { bits })
            }
            fn kernel<W: KernelMaker<T>>(op: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
                Some(match op {
                    $(ScalarOp::$name => W::$maker::<$name>(how),)*
                    _ => return None,
                })
            }
        }
    };
    (@result test) => { u8 };
    (@result $maker:ident) => { T };
}
float_functions! { [single f32 math32, double f64 math64] {
    fast Neg(a) = -a;
    slow Sign(a) = if a > 0.0 { 1.0 } else if a < 0.0 { -1.0 } else { a };
    fast Abs(a) = a.abs();
    slow Floor(a) = a.floor();
    slow Ceil(a) = a.ceil();
    slow Round(a) = a.round();
    slow Exp(a) = math::exp::<L>(a);
    slow Exp2(a) = math::exp2::<L>(a);
    slow Expm1(a) = math::expm1::<L>(a);
    slow Log(a) = math::log::<L>(a);
    slow Log1p(a) = math::log1p::<L>(a);
    slow Sin(a) = math::sin::<L>(a), far math::sin_far(a);
    slow Cos(a) = math::cos::<L>(a), far math::cos_far(a);
    slow Sinpi(a) = math64::sinpi::<L>(a.into()) as T;
    slow Cospi(a) = math64::cospi::<L>(a.into()) as T;
    rare Tan(a) = math::tan(a);
    rare Asin(a) = math::asin(a);
    rare Acos(a) = math::acos(a);
    rare Atan(a) = math::atan(a);
    rare Sinh(a) = math::sinh(a);
    rare Cosh(a) = math::cosh(a);
    slow Tanh(a) = math::tanh::<L>(a);
    rare Asinh(a) = math::asinh(a);
    rare Acosh(a) = if a < 1.0 { T::NAN } else { math::acosh(a) };
    rare Atanh(a) = math::atanh(a);
    slow Sqrt(a) = a.sqrt();
    slow Rsqrt(a) = 1.0 / a.sqrt();
    rare Cbrt(a) = math::cbrt(a);
    slow Logistic(a) = math::logistic::<L>(a);
    slow Erf(a) = math::erf::<L>(a);
    slow ErfInv(a) = math::erf_inv::<L>(a);
    fast FlushSubnormals(a) = a.flushed();
    test IsFinite(a) = a.abs() < T::INFINITY;
    fast Add(a, b) = a + b;
    fast Sub(a, b) = a - b;
    fast Mul(a, b) = a * b;
    slow Div(a, b) = a / b;
    rare Rem(a, b) = a % b;
    fast Max(a, b) = max(a, b);
    fast Min(a, b) = min(a, b);
    slow Pow(a, b) = math::pow::<L>(a, b);
    rare Atan2(a, b) = math::atan2(a, b);
    rare NextAfter(a, b) = math::next_after(a, b);
    test Eq(a, b) = a == b;
    test Ne(a, b) = a != b;
    test Lt(a, b) = a < b;
    test Le(a, b) = a <= b;
    test Gt(a, b) = a > b;
    test Ge(a, b) = a >= b;
} }

/// Defines functions of three elements and of constants, each step of which is rounded.
macro_rules! linear_functions {
    ($($name:ident $n:literal |$a:ident, $b:ident, $c:ident, $k:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: FloatElement> ElementFn for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = T;
            const ARITY: usize = $n;
            #[inline(always)]
            fn f<const L: u8>($a: T, $b: T, $c: T, k: &Constants) -> T {
                let $k = [T::from_f64(k[0]), T::from_f64(k[1]), T::from_f64(k[2])];
                let _ = ($b, $c, $k);
                $e
            }
        }
    )* };
}
linear_functions! {
    Lin1 1 |a, b, c, k| a * k[0] + k[1];
    Lin2 2 |a, b, c, k| a * k[0] + b * k[1];
    Lin3 3 |a, b, c, k| a * k[0] + b * k[1] + c * k[2];
    MulAdd 3 |a, b, c, k| a * b + c;
    LinMul 3 |a, b, c, k| (a * k[0] + b * k[1]) * c;
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
pub(super) trait KernelMaker<T> {
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

/// Returns the kernel of a function on float32 or float64.
pub(super) fn select<T: FloatElement>(fun: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
    T::kernel::<DirectKernels>(fun, how)
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
    plain::<MulAdd<T>>(how)
}

/// Runs [`BroadcastOp::ExtremeIndex`].
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`], where `b` is a single element if `k[2]` is
/// not 0, and `c` is an index instead of a pointer. Results are int32.
#[inline(always)]
#[expect(clippy::eq_op, reason = "only NaN differs from itself")]
unsafe fn extreme_index_body<T: FloatElement>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    let (first, end, step) = (c.addr() as i32, k[0] as i32, k[1] as i32);
    let index = |x: T, best: T, i: usize| {
        let index = first.wrapping_add(step.wrapping_mul(i as i32));
        if (x == best) | (x != x) { index } else { end }
    };
    // SAFETY: `a` has `n` elements, `b` has `n` or one, and `d` has space for `n` int32 numbers
    // apart from them (caller contract).
    unsafe {
        let (d, a) = (uninit_slice::<i32>(d, n), std::slice::from_raw_parts(a.cast::<T>(), n));
        if k[2] != 0.0 {
            let best = *b.cast::<T>();
            for (i, (d, x)) in d.iter_mut().zip(a).enumerate() {
                d.write(index(*x, best, i));
            }
        } else {
            let b = std::slice::from_raw_parts(b.cast::<T>(), n);
            for (i, (d, (x, best))) in d.iter_mut().zip(a.iter().zip(b)).enumerate() {
                d.write(index(*x, *best, i));
            }
        }
    }
}
for_each_isa! {
    mod extreme_index_at<T: FloatElement>(n: usize, d: *mut u8, a: *const u8, b: *const u8, c: *const u8, k: &Constants) at L
        => extreme_index_body::<T>(n, d, a, b, c, k);
}
/// Returns the kernel of [`BroadcastOp::ExtremeIndex`].
pub(super) fn extreme_index<T: FloatElement>(level: IsaLevel) -> SliceKernel {
    extreme_index_at::at::<T>(level)
}

/// Returns the kernel of a float32 function in which some operands are a single element.
///
/// `same` is the bit mask of these operands. Row kernels use it to combine the elements of a row
/// with the sum of the row.
pub(super) fn broadcast_kernel(fun: BroadcastOp, same: u8, how: KernelVariant) -> Option<SliceKernel> {
    Some(match (fun, same) {
        (BroadcastOp::Mul, 2) => pick::<BroadcastFn<single::Mul, 2>>(how),
        (BroadcastOp::Div, 2) => pick::<BroadcastFn<single::Div, 2>>(how),
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
