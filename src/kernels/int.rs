//! Functions on integers, bools and bits, defined as XLA defines them.
//!
//! Arithmetic wraps. Division by zero gives −1 (all bits set), and the remainder is then the
//! dividend. Shifts by the width or more, or by a negative number, give 0; arithmetic shifts to the
//! right then give copies of the sign bit.

use super::SliceKernel;
use super::cpu::IsaLevel;
use super::elementwise::{Constants, ElementFn, KernelVariant, element_fn, narrow, pick, scalar};
use crate::core::{DType, ScalarOp};
use std::marker::PhantomData;

/// Integers, signed or unsigned.
pub(super) trait Int: 'static {
    /// Returns the kernel of a function.
    fn kernel(op: ScalarOp, how: KernelVariant) -> Option<SliceKernel>;
}

/// Defines the functions on integers: the first rows for all types, the second for unsigned ones.
///
/// A row is `maker Function(operands) = result;`. The makers are the functions of `elementwise`,
/// and `compare`, whose result is a bool. In the rows, `T` is the type, and `U` and `S` are the
/// unsigned and the signed one of its width. The second rows have the same bits for both, so a
/// signed type uses the kernels of the unsigned one.
macro_rules! int_functions {
    ($($S:ident $U:ident)*; $own:tt $bits:tt) => {
        $(int_functions! { @impl $S $U $S, <$U as Int>::kernel, $own {} })*
        $(int_functions! { @impl $U $U $S, |_, _| None, $own $bits })*
    };
    (@impl $T:ident $U:ident $S:ident, $fallback:expr, { $($own:tt)* } { $($bits:tt)* }) => {
        int_functions! { @rows $T $U $S, $fallback, { $($own)* $($bits)* } }
    };
    (@rows $T:ident $U:ident $S:ident, $fallback:expr, {
        $($maker:ident $name:ident($a:ident $(, $b:ident)?) = $e:expr;)*
    }) => {
        #[allow(unused_comparisons, dead_code, clippy::unnecessary_cast, clippy::absurd_extreme_comparisons, reason = "the rows serve all types")]
        impl Int for $T {
            fn kernel(op: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
                type T = $T;
                type U = $U;
                type S = $S;
                $(
                    struct $name;
                    element_fn! {
                        $name = ($a $(, $b)?): T => int_functions!(@result $maker), Self::D::from($e);
                    }
                )*
                match op {
                    $(ScalarOp::$name => Some(int_functions!(@make $maker $name how)),)*
                    _ => $fallback(op, how),
                }
            }
        }
    };
    (@result compare) => { u8 };
    (@result $maker:ident) => { T };
    (@make scalar $name:ident $how:ident) => { scalar::<$name>() };
    (@make $maker:ident $name:ident $how:ident) => { narrow::<$name>($how) };
}
int_functions! { i8 u8 i16 u16 i32 u32 i64 u64; {
    narrow Sign(a) = (a > 0) as T - (a < 0) as T;
    narrow Abs(a) = if a < 0 { a.wrapping_neg() } else { a };
    scalar Div(a, b) = if b == 0 { !0 } else { a.wrapping_div(b) };
    scalar Rem(a, b) = if b == 0 { a } else { a.wrapping_rem(b) };
    narrow Max(a, b) = if a > b { a } else { b };
    narrow Min(a, b) = if a < b { a } else { b };
    scalar Pow(a, b) = {
        if b < 0 {
            // the result is the reciprocal of the power, truncated towards zero
            let unit = if a == 1 || a.wrapping_neg() == 1 { a } else { 0 };
            return if b & 1 == 0 { unit.wrapping_mul(unit) } else { unit };
        }
        let (mut base, mut exponent, mut power) = (a, b, 1 as T);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = power.wrapping_mul(base);
            }
            base = base.wrapping_mul(base);
            exponent >>= 1;
        }
        power
    };
    compare Lt(a, b) = a < b;
    compare Le(a, b) = a <= b;
    compare Gt(a, b) = a > b;
    compare Ge(a, b) = a >= b;
} {
    narrow Neg(a) = a.wrapping_neg();
    narrow Not(a) = !a;
    narrow Add(a, b) = a.wrapping_add(b);
    narrow Sub(a, b) = a.wrapping_sub(b);
    narrow Mul(a, b) = a.wrapping_mul(b);
    narrow And(a, b) = a & b;
    narrow Or(a, b) = a | b;
    narrow Xor(a, b) = a ^ b;
    narrow ShiftLeft(a, b) = if b < U::BITS as T { a.wrapping_shl(b as u32) } else { 0 };
    narrow ShiftRightLogical(a, b) = if b < U::BITS as T { a.wrapping_shr(b as u32) } else { 0 };
    narrow ShiftRightArithmetic(a, b) = {
        let by = if b < U::BITS as T { b as u32 } else { U::BITS - 1 };
        (a as S).wrapping_shr(by) as T
    };
    compare Eq(a, b) = a == b;
    compare Ne(a, b) = a != b;
} }

/// Returns `a / b` truncated, and the divisor, which is 1 instead of 0 and −1.
///
/// It is computed in float64, because few processors have vector instructions that divide integers.
/// A quotient of two int32 never rounds up to the next integer, so truncating it is exact.
#[inline(always)]
fn quotient(a: i32, b: i32) -> (i32, i32) {
    let divisor = if b == 0 || b == -1 { 1 } else { b };
    // SAFETY: the divisor is neither 0 nor −1, so the quotient is an int32.
    (unsafe { (f64::from(a) / f64::from(divisor)).to_int_unchecked() }, divisor)
}
/// The division of int32.
struct DivInt32;
element_fn! {
    DivInt32 = (a, b): i32 => i32, match b {
        0 => -1,
        -1 => a.wrapping_neg(),
        _ => quotient(a, b).0,
    };
}
/// The remainder of int32.
struct RemInt32;
element_fn! {
    RemInt32 = (a, b): i32 => i32, {
        let (quotient, divisor) = quotient(a, b);
        // (the remainder by 1 is 0, and so is that by −1)
        if b == 0 { a } else { a.wrapping_sub(quotient.wrapping_mul(divisor)) }
    };
}
/// The maximum number of elements that take less time one by one than on vectors.
const MAX_SCALAR_DIVISIONS: usize = 4;

/// Divides a few elements as integers, and more of them on vectors; with `WIDE` on those of AVX2.
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`]; with `WIDE` the processor has AVX2.
unsafe fn divide<const REM: bool, const WIDE: bool>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: operands and result have `n` elements of int32, and the processor has the level
    // (caller contract).
    unsafe {
        if n > MAX_SCALAR_DIVISIONS {
            let level = if WIDE { IsaLevel::Avx2 } else { IsaLevel::Base };
            let how = KernelVariant { level, stream: false };
            let vectors = if REM { narrow::<RemInt32>(how) } else { narrow::<DivInt32>(how) };
            return vectors(n, d, a, b, c, k);
        }
        let (d, a, b) = (d.cast::<i32>(), a.cast::<i32>(), b.cast::<i32>());
        for i in 0..n {
            let (a, b) = (*a.add(i), *b.add(i));
            d.add(i).write(match (REM, b) {
                (true, 0) => a,
                (true, _) => a.wrapping_rem(b),
                (false, 0) => -1,
                (false, _) => a.wrapping_div(b),
            });
        }
    }
}
/// Returns the kernel of a division or a remainder of int32.
pub(super) fn divide_int32(op: ScalarOp, how: KernelVariant) -> SliceKernel {
    match (op == ScalarOp::Rem, how.level > IsaLevel::Base) {
        (false, false) => divide::<false, false>,
        (false, true) => divide::<false, true>,
        (true, false) => divide::<true, false>,
        (true, true) => divide::<true, true>,
    }
}

/// The logical negation of bools, which are bytes 0 and 1.
struct NotBool;
impl ElementFn for NotBool {
    type A = u8;
    type B = u8;
    type C = u8;
    type D = u8;
    const ARITY: usize = 1;
    #[inline(always)]
    fn f<const L: u8>(a: u8, _: u8, _: u8, _: &Constants) -> u8 {
        a ^ 1
    }
}

/// Returns the kernel of a function on bools, where the sum is `or` and the product is `and`.
pub(super) fn select_bool(op: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
    let on_bytes = match op {
        ScalarOp::Not => return Some(narrow::<NotBool>(how)),
        ScalarOp::Mul | ScalarOp::Min => ScalarOp::And,
        ScalarOp::Add | ScalarOp::Max => ScalarOp::Or,
        ScalarOp::Ne | ScalarOp::Sub => ScalarOp::Xor,
        op if op.info().supports_dtypes(DType::Bool, DType::Bool) => op,
        _ => return None,
    };
    u8::kernel(on_bytes, how)
}

/// The copy of the bits of elements of one width, for any element type.
struct CopyFn<T>(PhantomData<T>);
impl<T: Copy + Default + 'static> ElementFn for CopyFn<T> {
    type A = T;
    type B = T;
    type C = T;
    type D = T;
    const ARITY: usize = 1;
    #[inline(always)]
    fn f<const L: u8>(a: T, _: T, _: T, _: &Constants) -> T {
        a
    }
}
struct SelectFn<T>(PhantomData<T>);
impl<T: Copy + Default + 'static> ElementFn for SelectFn<T> {
    type A = u8;
    type B = T;
    type C = T;
    type D = T;
    const ARITY: usize = 3;
    #[inline(always)]
    fn f<const L: u8>(a: u8, b: T, c: T, _: &Constants) -> T {
        if a != 0 { b } else { c }
    }
}
/// Returns the kernel that copies elements of this size, in bytes.
pub(super) fn copy(size: usize, h: KernelVariant) -> Option<SliceKernel> {
    Some(match size {
        1 => pick::<CopyFn<u8>>(h),
        2 => pick::<CopyFn<u16>>(h),
        4 => pick::<CopyFn<u32>>(h),
        8 => pick::<CopyFn<u64>>(h),
        16 => narrow::<CopyFn<[u64; 2]>>(h),
        _ => return None,
    })
}
/// Returns the kernel that selects `b` where the bool `a` is true, and `c` elsewhere.
///
/// `size` is the size of an element, in bytes.
pub(super) fn choose(size: usize, h: KernelVariant) -> Option<SliceKernel> {
    Some(match size {
        1 => pick::<SelectFn<u8>>(h),
        2 => pick::<SelectFn<u16>>(h),
        4 => pick::<SelectFn<u32>>(h),
        8 => pick::<SelectFn<u64>>(h),
        16 => narrow::<SelectFn<[u64; 2]>>(h),
        _ => return None,
    })
}

/// The 20-round threefry hash of a key and a counter.
struct Threefry;
impl ElementFn for Threefry {
    type A = u64;
    type B = u64;
    type C = u64;
    type D = u64;
    const ARITY: usize = 2;
    #[inline(always)]
    fn f<const L: u8>(key: u64, counter: u64, _: u64, _: &Constants) -> u64 {
        let (k0, k1) = (key as u32, (key >> 32) as u32);
        let keys = [k0, k1, k0 ^ k1 ^ 0x1bd1_1bda];
        let (mut x0, mut x1) = ((counter >> 32) as u32, counter as u32);
        x0 = x0.wrapping_add(keys[0]);
        x1 = x1.wrapping_add(keys[1]);
        const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
        for round in 0..5u32 {
            for turn in ROTATIONS[round as usize % 2] {
                x0 = x0.wrapping_add(x1);
                x1 = x1.rotate_left(turn) ^ x0;
            }
            x0 = x0.wrapping_add(keys[(round as usize + 1) % 3]);
            x1 = x1.wrapping_add(keys[(round as usize + 2) % 3]).wrapping_add(round + 1);
        }
        (x1 as u64) << 32 | x0 as u64
    }
}
pub(super) fn threefry(h: KernelVariant) -> SliceKernel {
    pick::<Threefry>(h)
}
