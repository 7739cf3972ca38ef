//! Conversions between element types.
//!
//! Floats convert to integers by truncation towards zero, and saturate; NaN becomes 0. Conversion
//! to bool is `!= 0`.

use super::SliceKernel;
use super::elementwise::{Constants, ElementFn, KernelVariant, narrow, scalar};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::half_float::f16c;
use super::half_float::{CHUNK_ELEMENTS, Half};
use crate::core::DType;
use crate::core::types::{f64_to_f32_odd, i128_to_f64_odd};
use half::{bf16, f16};
use num_complex::Complex;
use std::marker::PhantomData;

/// A bool in memory: a byte 0 or 1.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
struct BoolByte(u8);

trait ConvertTo<D> {
    fn to(self) -> D;
}
/// The conversion of a number to float64, before it is rounded to a narrower float.
///
/// A number with more bits than a float64 is rounded to odd, so that the second rounding gives the
/// correctly rounded result.
trait ToF64 {
    fn wide(self) -> f64;
}
macro_rules! wide {
    (whole $($T:ident)*) => { $(
        impl ToF64 for $T {
            #[inline(always)]
            fn wide(self) -> f64 {
                let near = self as f64;
                if near as i128 == i128::from(self) { near } else { i128_to_f64_odd(i128::from(self)) }
            }
        }
    )* };
    ($($T:ident)*) => { $(
        impl ToF64 for $T {
            #[inline(always)]
            fn wide(self) -> f64 { f64::from(self) }
        }
    )* };
}
wide!(u8 u16 u32 i8 i16 i32 f32 f64);
wide!(whole u64 i64);
macro_rules! numbers {
    ($($A:ident)*) => { $(numbers!(@ $A: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);)* $(
        impl ConvertTo<BoolByte> for $A {
            #[inline(always)]
            fn to(self) -> BoolByte { BoolByte((self != 0 as $A) as u8) }
        }
        impl ConvertTo<$A> for BoolByte {
            #[inline(always)]
            fn to(self) -> $A { self.0 as $A }
        }
        impl ConvertTo<f16> for $A {
            #[inline(always)]
            fn to(self) -> f16 { f16::from_f32(f64_to_f32_odd(self.wide())) }
        }
        impl ConvertTo<bf16> for $A {
            #[inline(always)]
            fn to(self) -> bf16 { bf16::from_f32(f64_to_f32_odd(self.wide())) }
        }
        impl ConvertTo<$A> for f16 {
            #[inline(always)]
            fn to(self) -> $A { self.to_f32() as $A }
        }
        impl ConvertTo<$A> for bf16 {
            #[inline(always)]
            fn to(self) -> $A { self.to_f32() as $A }
        }
    )* };
    (@ $A:ident: $($D:ident)*) => { $(
        #[allow(clippy::unnecessary_cast, reason = "the same code for all pairs")]
        impl ConvertTo<$D> for $A {
            #[inline(always)]
            fn to(self) -> $D { self as $D }
        }
    )* };
}
numbers!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
macro_rules! others {
    ($($A:ty => $D:ty, |$x:ident| $e:expr;)*) => { $(
        impl ConvertTo<$D> for $A {
            #[inline(always)]
            fn to(self) -> $D { let $x = self; $e }
        }
    )* };
}
others! {
    BoolByte => BoolByte, |x| x;
    BoolByte => f16, |x| f16::from_f32(x.0 as f32);
    BoolByte => bf16, |x| bf16::from_f32(x.0 as f32);
    f16 => BoolByte, |x| BoolByte((x != f16::ZERO) as u8);
    bf16 => BoolByte, |x| BoolByte((x != bf16::ZERO) as u8);
    f16 => f16, |x| x;
    bf16 => bf16, |x| x;
    f16 => bf16, |x| bf16::from_f32(x.to_f32());
    bf16 => f16, |x| f16::from_f32(x.to_f32());
    Complex<f32> => Complex<f64>, |x| Complex::new(x.re.into(), x.im.into());
    Complex<f64> => Complex<f32>, |x| Complex::new(x.re as f32, x.im as f32);
}

struct CastFn<A, D>(PhantomData<(A, D)>);
impl<A: ConvertTo<D> + Copy + 'static, D: Copy + 'static> ElementFn for CastFn<A, D> {
    type A = A;
    type B = u8;
    type C = u8;
    type D = D;
    const ARITY: usize = 1;
    #[inline(always)]
    fn f<const L: u8>(a: A, _: u8, _: u8, _: &Constants) -> D {
        a.to()
    }
}

/// The conversion of float32 to bfloat16, without branches.
struct RoundToBf16;
impl ElementFn for RoundToBf16 {
    type A = f32;
    type B = u8;
    type C = u8;
    type D = bf16;
    const ARITY: usize = 1;
    #[inline(always)]
    fn f<const L: u8>(a: f32, _: u8, _: u8, _: &Constants) -> bf16 {
        let x = a.to_bits();
        let rounded = x.wrapping_add(0x7fff + (x >> 16 & 1));
        bf16::from_bits((if a.is_nan() { x | 0x0040_0000 } else { rounded } >> 16) as u16)
    }
}

/// Converts float16 to float32 with vector code.
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`], for an operand of float16 and a result of
/// float32.
unsafe fn widen(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, _: &Constants) {
    // SAFETY: operand and result have `n` elements each, and do not overlap (caller contract).
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if f16c::usable() {
            return f16c::widen(n, a.cast(), d.cast());
        }
        let mut wide = [0f32; CHUNK_ELEMENTS];
        for at in (0..n).step_by(CHUNK_ELEMENTS) {
            let m = (n - at).min(CHUNK_ELEMENTS);
            f16::widen(std::slice::from_raw_parts(a.cast::<f16>().add(at), m), &mut wide[..m]);
            std::ptr::copy_nonoverlapping(wide.as_ptr(), d.cast::<f32>().add(at), m);
        }
    }
}
/// Converts float32 to float16 with vector code.
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`], for an operand of float32 and a result of
/// float16.
unsafe fn round(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, _: &Constants) {
    // SAFETY: operand and result have `n` elements each, and do not overlap (caller contract).
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if f16c::usable() {
            return f16c::round(n, a.cast(), d.cast());
        }
        for at in (0..n).step_by(CHUNK_ELEMENTS) {
            let m = (n - at).min(CHUNK_ELEMENTS);
            let from = std::slice::from_raw_parts(a.cast::<f32>().add(at), m);
            f16::round_to(from, d.add(at * size_of::<f16>()));
        }
    }
}

/// Returns the kernel of [`scalar`], as [`narrow`] does.
fn rare<E: ElementFn>(_: KernelVariant) -> SliceKernel {
    scalar::<E>()
}

/// Selects the conversion from `$A` to the type `$to`; `$common` makes those to common types.
macro_rules! conversion {
    ($A:ty, $common:ident, $to:ident, $h:ident) => {
        match $to {
            DType::Bool => $common::<CastFn<$A, BoolByte>>($h),
            DType::I8 => rare::<CastFn<$A, i8>>($h),
            DType::I16 => rare::<CastFn<$A, i16>>($h),
            DType::I32 => $common::<CastFn<$A, i32>>($h),
            DType::I64 => $common::<CastFn<$A, i64>>($h),
            DType::U8 => rare::<CastFn<$A, u8>>($h),
            DType::U16 => rare::<CastFn<$A, u16>>($h),
            DType::U32 => $common::<CastFn<$A, u32>>($h),
            DType::U64 => rare::<CastFn<$A, u64>>($h),
            DType::F16 => rare::<CastFn<$A, f16>>($h),
            DType::BF16 => rare::<CastFn<$A, bf16>>($h),
            DType::F32 => $common::<CastFn<$A, f32>>($h),
            DType::F64 => $common::<CastFn<$A, f64>>($h),
            _ => return None,
        }
    };
}

/// Returns the kernel that converts elements of type `of` to type `to`.
pub(super) fn convert(of: DType, to: DType, h: KernelVariant) -> Option<SliceKernel> {
    match (of, to) {
        (DType::C64, DType::C128) => return Some(narrow::<CastFn<Complex<f32>, Complex<f64>>>(h)),
        (DType::C128, DType::C64) => return Some(narrow::<CastFn<Complex<f64>, Complex<f32>>>(h)),
        (DType::F16, DType::F32) => return Some(widen),
        (DType::BF16, DType::F32) => return Some(narrow::<CastFn<bf16, f32>>(h)),
        (DType::F32, DType::F16) => return Some(round),
        (DType::F32, DType::BF16) => return Some(narrow::<RoundToBf16>(h)),
        _ => {}
    }
    Some(match of {
        DType::Bool => conversion!(BoolByte, narrow, to, h),
        DType::I8 => conversion!(i8, rare, to, h),
        DType::I16 => conversion!(i16, rare, to, h),
        DType::I32 => conversion!(i32, narrow, to, h),
        DType::I64 => conversion!(i64, narrow, to, h),
        DType::U8 => conversion!(u8, rare, to, h),
        DType::U16 => conversion!(u16, rare, to, h),
        DType::U32 => conversion!(u32, narrow, to, h),
        DType::U64 => conversion!(u64, narrow, to, h),
        DType::F16 => conversion!(f16, rare, to, h),
        DType::BF16 => conversion!(bf16, rare, to, h),
        DType::F32 => conversion!(f32, narrow, to, h),
        DType::F64 => conversion!(f64, narrow, to, h),
        _ => return None,
    })
}
