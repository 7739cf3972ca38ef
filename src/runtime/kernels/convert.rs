//! From one element type to another: floats to integers are cut towards zero and saturate (NaN is 0), to bool is `!= 0`.

use super::Kernel;
use super::float::CHUNK;
use super::run::{Constants, El, How, narrow, scalar};
use crate::types::{DType, odd, odd_whole};
use half::{bf16, f16};
use num_complex::Complex;
use std::marker::PhantomData;

/// A bool in memory.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
struct Truth(u8);

trait To<D> {
    fn to(self) -> D;
}
/// A number as a float64 on the way to fewer bits: where it has more than that, so that it is rounded once.
trait Wide {
    fn wide(self) -> f64;
}
macro_rules! wide {
    (whole $($T:ident)*) => { $(
        impl Wide for $T {
            #[inline(always)]
            fn wide(self) -> f64 {
                let near = self as f64;
                if near as i128 == i128::from(self) { near } else { odd_whole(i128::from(self)) }
            }
        }
    )* };
    ($($T:ident)*) => { $(
        impl Wide for $T {
            #[inline(always)]
            fn wide(self) -> f64 { f64::from(self) }
        }
    )* };
}
wide!(u8 u16 u32 i8 i16 i32 f32 f64);
wide!(whole u64 i64);
macro_rules! numbers {
    ($($A:ident)*) => { $(numbers!(@ $A: u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);)* $(
        impl To<Truth> for $A {
            #[inline(always)]
            fn to(self) -> Truth { Truth((self != 0 as $A) as u8) }
        }
        impl To<$A> for Truth {
            #[inline(always)]
            fn to(self) -> $A { self.0 as $A }
        }
        impl To<f16> for $A {
            #[inline(always)]
            fn to(self) -> f16 { f16::from_f32(odd(self.wide())) }
        }
        impl To<bf16> for $A {
            #[inline(always)]
            fn to(self) -> bf16 { bf16::from_f32(odd(self.wide())) }
        }
        impl To<$A> for f16 {
            #[inline(always)]
            fn to(self) -> $A { self.to_f32() as $A }
        }
        impl To<$A> for bf16 {
            #[inline(always)]
            fn to(self) -> $A { self.to_f32() as $A }
        }
    )* };
    (@ $A:ident: $($D:ident)*) => { $(
        #[allow(clippy::unnecessary_cast, reason = "the same code for all pairs")]
        impl To<$D> for $A {
            #[inline(always)]
            fn to(self) -> $D { self as $D }
        }
    )* };
}
numbers!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
macro_rules! others {
    ($($A:ty => $D:ty, |$x:ident| $e:expr;)*) => { $(
        impl To<$D> for $A {
            #[inline(always)]
            fn to(self) -> $D { let $x = self; $e }
        }
    )* };
}
others! {
    Truth => Truth, |x| x;
    Truth => f16, |x| f16::from_f32(x.0 as f32);
    Truth => bf16, |x| bf16::from_f32(x.0 as f32);
    f16 => Truth, |x| Truth((x != f16::ZERO) as u8);
    bf16 => Truth, |x| Truth((x != bf16::ZERO) as u8);
    f16 => f16, |x| x;
    bf16 => bf16, |x| x;
    f16 => bf16, |x| bf16::from_f32(x.to_f32());
    bf16 => f16, |x| f16::from_f32(x.to_f32());
    Complex<f32> => Complex<f64>, |x| Complex::new(x.re.into(), x.im.into());
    Complex<f64> => Complex<f32>, |x| Complex::new(x.re as f32, x.im as f32);
}

struct Cast<A, D>(PhantomData<(A, D)>);
impl<A: To<D> + Copy + 'static, D: Copy + 'static> El for Cast<A, D> {
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

/// float32 to a 16-bit float and back go through the crate's vector code.
///
/// # Safety
/// As [`Kernel`] says, for an operand of type H and a result of float32.
unsafe fn widen<H: super::float::Half>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    _: &Constants,
) {
    let mut wide = [0f32; CHUNK];
    // SAFETY: the caller's: n elements each, apart
    unsafe {
        for at in (0..n).step_by(CHUNK) {
            let m = (n - at).min(CHUNK);
            H::widen(std::slice::from_raw_parts(a.cast::<H>().add(at), m), &mut wide[..m]);
            std::ptr::copy_nonoverlapping(wide.as_ptr(), d.cast::<f32>().add(at), m);
        }
    }
}
/// # Safety
/// As [`Kernel`] says, for an operand of float32 and a result of type H.
unsafe fn round<H: super::float::Half>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    _: *const u8,
    _: *const u8,
    _: &Constants,
) {
    // SAFETY: as above
    unsafe {
        for at in (0..n).step_by(CHUNK) {
            let m = (n - at).min(CHUNK);
            let from = std::slice::from_raw_parts(a.cast::<f32>().add(at), m);
            H::round_to(from, d.add(at * size_of::<H>()));
        }
    }
}

/// Conversions from A: the common ones in vector code.
fn from<A>(to: DType, common: bool, h: How) -> Option<Kernel>
where
    A: Copy + 'static + To<Truth> + To<f16> + To<bf16> + To<f32> + To<f64>,
    A: To<i8> + To<i16> + To<i32> + To<i64> + To<u8> + To<u16> + To<u32> + To<u64>,
{
    macro_rules! one {
        ($D:ty, $fast:expr) => {
            if common && $fast { narrow::<Cast<A, $D>>(h) } else { scalar::<Cast<A, $D>>() }
        };
    }
    Some(match to {
        DType::Bool => one!(Truth, true),
        DType::I8 => one!(i8, false),
        DType::I16 => one!(i16, false),
        DType::I32 => one!(i32, true),
        DType::I64 => one!(i64, true),
        DType::U8 => one!(u8, false),
        DType::U16 => one!(u16, false),
        DType::U32 => one!(u32, true),
        DType::U64 => one!(u64, false),
        DType::F16 => one!(f16, false),
        DType::BF16 => one!(bf16, false),
        DType::F32 => one!(f32, true),
        DType::F64 => one!(f64, true),
        _ => return None,
    })
}

/// The kernel that makes elements of `to` from elements of `of`.
pub(super) fn convert(of: DType, to: DType, h: How) -> Option<Kernel> {
    match (of, to) {
        (DType::C64, DType::C128) => return Some(narrow::<Cast<Complex<f32>, Complex<f64>>>(h)),
        (DType::C128, DType::C64) => return Some(narrow::<Cast<Complex<f64>, Complex<f32>>>(h)),
        (DType::F16, DType::F32) => return Some(widen::<f16>),
        (DType::BF16, DType::F32) => return Some(widen::<bf16>),
        (DType::F32, DType::F16) => return Some(round::<f16>),
        (DType::F32, DType::BF16) => return Some(round::<bf16>),
        _ => {}
    }
    match of {
        DType::Bool => from::<Truth>(to, true, h),
        DType::I8 => from::<i8>(to, false, h),
        DType::I16 => from::<i16>(to, false, h),
        DType::I32 => from::<i32>(to, true, h),
        DType::I64 => from::<i64>(to, true, h),
        DType::U8 => from::<u8>(to, false, h),
        DType::U16 => from::<u16>(to, false, h),
        DType::U32 => from::<u32>(to, true, h),
        DType::U64 => from::<u64>(to, true, h),
        DType::F16 => from::<f16>(to, false, h),
        DType::BF16 => from::<bf16>(to, false, h),
        DType::F32 => from::<f32>(to, true, h),
        DType::F64 => from::<f64>(to, true, h),
        _ => None,
    }
}
