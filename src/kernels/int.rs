//! Functions on integers, bools and bits, defined as XLA defines them.
//!
//! Arithmetic wraps. Division by zero gives −1 (all bits set), and the remainder is then the
//! dividend. Shifts by the width or more, or by a negative number, give 0; arithmetic shifts to the
//! right then give copies of the sign bit.

use super::SliceKernel;
use super::elementwise::{Constants, ElementFn, KernelVariant, narrow, pick, scalar};
use crate::core::scalar_op::ScalarOp;
use std::marker::PhantomData;

pub(super) trait Int: Copy + Default + Ord + 'static {
    /// The unsigned integer of the same width.
    type Bits: Int;
    fn sign_of(self) -> Self;
    fn absolute(self) -> Self;
    fn negated(self) -> Self;
    fn flipped(self) -> Self;
    fn add(self, y: Self) -> Self;
    fn sub(self, y: Self) -> Self;
    fn mul(self, y: Self) -> Self;
    fn div(self, y: Self) -> Self;
    fn rem(self, y: Self) -> Self;
    fn pow(self, y: Self) -> Self;
    fn and(self, y: Self) -> Self;
    fn or(self, y: Self) -> Self;
    fn xor(self, y: Self) -> Self;
    fn left(self, y: Self) -> Self;
    fn right_logical(self, y: Self) -> Self;
    fn right_arithmetic(self, y: Self) -> Self;
}
macro_rules! int {
    ($($T:ident $U:ident $S:ident;)*) => { $(
        #[allow(unused_comparisons, clippy::unnecessary_cast, reason = "the same code for signed and unsigned")]
        impl Int for $T {
            type Bits = $U;
            #[inline(always)]
            fn sign_of(self) -> $T { (self > 0) as $T - (self < 0) as $T }
            #[inline(always)]
            fn absolute(self) -> $T { if self < 0 { self.wrapping_neg() } else { self } }
            #[inline(always)]
            fn negated(self) -> $T { self.wrapping_neg() }
            #[inline(always)]
            fn flipped(self) -> $T { !self }
            #[inline(always)]
            fn add(self, y: $T) -> $T { self.wrapping_add(y) }
            #[inline(always)]
            fn sub(self, y: $T) -> $T { self.wrapping_sub(y) }
            #[inline(always)]
            fn mul(self, y: $T) -> $T { self.wrapping_mul(y) }
            #[inline(always)]
            fn div(self, y: $T) -> $T { if y == 0 { !0 } else { self.wrapping_div(y) } }
            #[inline(always)]
            fn rem(self, y: $T) -> $T { if y == 0 { self } else { self.wrapping_rem(y) } }
            fn pow(self, y: $T) -> $T {
                if y < 0 {
                    // the result is the reciprocal of the power, truncated towards zero
                    return match self.sign_of() * (self.absolute() == 1) as $T {
                        0 => 0,
                        s if y & 1 == 0 => s.wrapping_mul(s),
                        s => s,
                    };
                }
                let (mut base, mut exponent, mut power) = (self, y, 1 as $T);
                while exponent > 0 {
                    if exponent & 1 == 1 {
                        power = power.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    exponent >>= 1;
                }
                power
            }
            #[inline(always)]
            fn and(self, y: $T) -> $T { self & y }
            #[inline(always)]
            fn or(self, y: $T) -> $T { self | y }
            #[inline(always)]
            fn xor(self, y: $T) -> $T { self ^ y }
            #[inline(always)]
            fn left(self, y: $T) -> $T {
                if (y as $U) < $U::BITS as $U { self.wrapping_shl(y as u32) } else { 0 }
            }
            #[inline(always)]
            fn right_logical(self, y: $T) -> $T {
                if (y as $U) < $U::BITS as $U { (self as $U).wrapping_shr(y as u32) as $T } else { 0 }
            }
            #[inline(always)]
            fn right_arithmetic(self, y: $T) -> $T {
                let by = if (y as $U) < $U::BITS as $U { y as u32 } else { $U::BITS - 1 };
                (self as $S).wrapping_shr(by) as $T
            }
        }
    )* };
}
int! { i8 u8 i8; i16 u16 i16; i32 u32 i32; i64 u64 i64; u8 u8 i8; u16 u16 i16; u32 u32 i32; u64 u64 i64; }

macro_rules! els {
    ($($name:ident: $D:ty, $n:literal |$a:ident, $b:ident| $e:expr;)*) => { $(
        struct $name<T>(PhantomData<T>);
        impl<T: Int> ElementFn for $name<T> {
            type A = T;
            type B = T;
            type C = T;
            type D = $D;
            const ARITY: usize = $n;
            #[inline(always)]
            fn f<const L: u8>($a: T, $b: T, _: T, _: &Constants) -> $D {
                let _ = $b;
                $e
            }
        }
    )* };
}
els! {
    Neg: T, 1 |a, b| a.negated();
    Sign: T, 1 |a, b| a.sign_of();
    Abs: T, 1 |a, b| a.absolute();
    Not: T, 1 |a, b| a.flipped();
    Add: T, 2 |a, b| a.add(b);
    Sub: T, 2 |a, b| a.sub(b);
    Mul: T, 2 |a, b| a.mul(b);
    Div: T, 2 |a, b| a.div(b);
    Rem: T, 2 |a, b| a.rem(b);
    Max: T, 2 |a, b| if a > b { a } else { b };
    Min: T, 2 |a, b| if a < b { a } else { b };
    Pow: T, 2 |a, b| a.pow(b);
    And: T, 2 |a, b| a.and(b);
    Or: T, 2 |a, b| a.or(b);
    Xor: T, 2 |a, b| a.xor(b);
    Left: T, 2 |a, b| a.left(b);
    RightLogical: T, 2 |a, b| a.right_logical(b);
    RightArithmetic: T, 2 |a, b| a.right_arithmetic(b);
    Eq: u8, 2 |a, b| (a == b) as u8;
    Ne: u8, 2 |a, b| (a != b) as u8;
    Lt: u8, 2 |a, b| (a < b) as u8;
    Le: u8, 2 |a, b| (a <= b) as u8;
    Gt: u8, 2 |a, b| (a > b) as u8;
    Ge: u8, 2 |a, b| (a >= b) as u8;
}

/// Returns the kernel of a function on integers.
///
/// A function that gives the same bits for signed and unsigned integers uses the kernel of the
/// unsigned type.
pub(super) fn select<T: Int>(fun: ScalarOp, h: KernelVariant) -> Option<SliceKernel> {
    Some(match fun {
        ScalarOp::Neg => narrow::<Neg<T::Bits>>(h),
        ScalarOp::Sign => narrow::<Sign<T>>(h),
        ScalarOp::Abs => narrow::<Abs<T>>(h),
        ScalarOp::Not => narrow::<Not<T::Bits>>(h),
        ScalarOp::Add => narrow::<Add<T::Bits>>(h),
        ScalarOp::Sub => narrow::<Sub<T::Bits>>(h),
        ScalarOp::Mul => narrow::<Mul<T::Bits>>(h),
        ScalarOp::Div => scalar::<Div<T>>(),
        ScalarOp::Rem => scalar::<Rem<T>>(),
        ScalarOp::Max => narrow::<Max<T>>(h),
        ScalarOp::Min => narrow::<Min<T>>(h),
        ScalarOp::Pow => scalar::<Pow<T>>(),
        ScalarOp::And => narrow::<And<T::Bits>>(h),
        ScalarOp::Or => narrow::<Or<T::Bits>>(h),
        ScalarOp::Xor => narrow::<Xor<T::Bits>>(h),
        ScalarOp::ShiftLeft => narrow::<Left<T::Bits>>(h),
        ScalarOp::ShiftRightLogical => narrow::<RightLogical<T::Bits>>(h),
        ScalarOp::ShiftRightArithmetic => narrow::<RightArithmetic<T::Bits>>(h),
        ScalarOp::Eq => narrow::<Eq<T::Bits>>(h),
        ScalarOp::Ne => narrow::<Ne<T::Bits>>(h),
        ScalarOp::Lt => narrow::<Lt<T>>(h),
        ScalarOp::Le => narrow::<Le<T>>(h),
        ScalarOp::Gt => narrow::<Gt<T>>(h),
        ScalarOp::Ge => narrow::<Ge<T>>(h),
        _ => return None,
    })
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
pub(super) fn select_bool(fun: ScalarOp, h: KernelVariant) -> Option<SliceKernel> {
    Some(match fun {
        ScalarOp::Not => narrow::<NotBool>(h),
        ScalarOp::And | ScalarOp::Mul | ScalarOp::Min => narrow::<And<u8>>(h),
        ScalarOp::Or | ScalarOp::Add | ScalarOp::Max => narrow::<Or<u8>>(h),
        ScalarOp::Xor | ScalarOp::Ne | ScalarOp::Sub => narrow::<Xor<u8>>(h),
        ScalarOp::Eq => narrow::<Eq<u8>>(h),
        ScalarOp::Lt => narrow::<Lt<u8>>(h),
        ScalarOp::Le => narrow::<Le<u8>>(h),
        ScalarOp::Gt => narrow::<Gt<u8>>(h),
        ScalarOp::Ge => narrow::<Ge<u8>>(h),
        _ => return None,
    })
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
