//! Kernels: one loop for each instruction, element type and processor level.
//!
//! A compiled program is a list of such loops over short runs of elements. Which instruction set a loop uses is chosen once,
//! when a program is compiled. Kernels are `unsafe` to call: the invariants are [`Kernel`]'s, and the two engines keep them.

mod chain;
mod complex;
mod convert;
mod copy;
mod float;
mod fold;
mod int;
mod load;
mod math32;
mod math64;
mod picks;
mod rows;
mod run;
mod sorted;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vector;
#[cfg(target_arch = "x86_64")]
mod wide;

pub use chain::{Chain, FEWEST as FEWEST_TERMS, Factors, TERMS};
pub use copy::copy;
pub use fold::Tree;
#[cfg(test)]
pub use load::count;
pub use picks::{PICKS, Pick, Picked, PickedAt};
pub use rows::{BATCH, Find, Found, LINE, MixAt, OneAt, Reach, ask_later, copy_at};
pub use run::fence;
pub use sorted::{AddSorted, Place, Sorted};

use super::cpu::{self, Level};
use crate::program::sentence::{Combine, Fun};
#[cfg(test)]
use crate::types::Scalar;
use crate::types::{DType, with_dtype};
use run::How;

/// n elements: `dst[i] = f(a[i], b[i], c[i]; k)`.
///
/// The caller upholds: each operand that the function reads is n elements of its type, contiguous and aligned to an element; `dst` has
/// room for n elements of the result's type and overlaps no operand, unless a function says that it may. Bools are bytes 0 and 1.
/// Operands that the function does not read may be any pointers.
pub type Kernel = unsafe fn(n: usize, dst: *mut u8, a: *const u8, b: *const u8, c: *const u8, k: &[f64; 4]);

/// Combines `rows` rows of n elements, `step` bytes apart from `src` on, into the row at `acc`, which holds a value already.
///
/// Sums of floats take eight rows at a time as the tree ((0+1)+(2+3))+((4+5)+(6+7)), the rest one by one.
pub type Rows = unsafe fn(n: usize, acc: *mut u8, src: *const u8, rows: usize, step: isize);

/// The tree over exactly eight rows of n elements, `step` bytes apart from `src` on, into `dst`.
pub type Rows8 = unsafe fn(n: usize, dst: *mut u8, src: *const u8, step: isize);

fn how(stream: bool) -> How {
    How { level: cpu::level(), stream }
}

/// The kernel of a function from operands of type `from` to a result of type `dtype`; `None` where it is not defined on them.
///
/// [`Fun::Select`] reads bools at `a`, values at `b` and `c`; comparisons make bools; [`Fun::Threefry`] reads a key and a counter.
pub fn select(fun: Fun, from: DType, dtype: DType) -> Option<Kernel> {
    select_at(fun, from, dtype, how(false))
}
/// The same kernel with stores that go past the caches where that pays; [`fence`] makes them visible to other threads.
pub fn select_streaming(fun: Fun, from: DType, dtype: DType) -> Option<Kernel> {
    select_at(fun, from, dtype, how(true))
}
fn select_at(fun: Fun, from: DType, dtype: DType, h: How) -> Option<Kernel> {
    let (from, dtype) = (from.storage(), dtype.storage());
    match fun {
        Fun::Copy => return int::copy(dtype.size(), h),
        Fun::Bitcast => return if from.size() == dtype.size() { int::copy(dtype.size(), h) } else { None },
        Fun::Convert if from == dtype => return int::copy(dtype.size(), h),
        Fun::Convert => return convert::convert(from, dtype, h),
        Fun::Select => return int::choose(dtype.size(), h),
        Fun::Threefry => return Some(int::threefry(h)),
        Fun::Complex => return complex::of_parts(from),
        #[cfg(target_arch = "x86_64")]
        Fun::Exp if from == DType::F32 && h.level > Level::Base => return wide::exp(h.level),
        _ => {}
    }
    with_dtype!(from, {
        Bool => int::select_bool(fun, h),
        Int T => int::select::<T>(fun, h),
        Half T => float::select_half::<T>(fun, h),
        Float T => float::select::<T>(fun, h),
        Complex T => complex::select::<T>(fun, h),
    })
}

/// Sums of scaled operands on float32 and float64: `k0·a + k1`, `k0·a + k1·b`, or `(k0·a + k1·b) + k2·c`; each product and each sum is
/// rounded, as if there were a kernel for each.
pub fn lin(dtype: DType, terms: usize) -> Option<Kernel> {
    lin_at(dtype, terms, how(false))
}
/// The same, with stores that go past the caches.
pub fn lin_streaming(dtype: DType, terms: usize) -> Option<Kernel> {
    lin_at(dtype, terms, how(true))
}
fn lin_at(dtype: DType, terms: usize, h: How) -> Option<Kernel> {
    match dtype {
        DType::F32 => float::lin::<f32>(terms, h),
        DType::F64 => float::lin::<f64>(terms, h),
        _ => None,
    }
}

/// `a·b + c` on float32 and float64; the product is rounded, and so is the sum.
pub fn mul_add(dtype: DType) -> Option<Kernel> {
    match dtype {
        DType::F32 => Some(float::mul_add::<f32>(how(false))),
        DType::F64 => Some(float::mul_add::<f64>(how(false))),
        _ => None,
    }
}

/// What there are kernels of with one element in place of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// `a·b`.
    Mul,
    /// `a / b`.
    Div,
    /// `k0·a + k1·b`.
    Lin2,
    /// `a·b + c`.
    MulAdd,
    /// `(k0·a + k1·b)·c`.
    LinMul,
    /// The exponential of `k0·a + k1·b`.
    ExpLin,
}

/// A function of which some operands are one element, the same for all: bit 1 of `same` says so of the second, bit 2 of the third. It computes
/// what the function does of that element repeated. `stream`: past the caches where that pays.
pub fn along_one(fun: Along, same: u8, dtype: DType, stream: bool) -> Option<Kernel> {
    if dtype == DType::F32 { float::along_one(fun, same, how(stream)) } else { None }
}

/// A sum of so many scaled operands, [`FEWEST_TERMS`] to [`TERMS`], on float32 and float64; `stream`: past the caches where that pays.
pub fn chain(dtype: DType, terms: usize, stream: bool) -> Option<Chain> {
    chain::find(dtype, terms, how(stream))
}

/// The element at `a`, n times. `size` is an element's, in bytes: 1, 2, 4, 8 or 16.
pub fn splat(size: usize) -> Option<Kernel> {
    load::splat_of(size)
}
/// Every `k[0]`-th element from `a` on; `k[0]` is a whole number of elements, possibly negative.
pub fn gather(size: usize) -> Option<Kernel> {
    load::gather_of(size)
}
/// The element whose bits are the low ones of `k[0]`, as [`constant`] makes it (of 16 bytes the second half is `k[1]`), n times; reads nothing.
pub fn fill(size: usize) -> Option<Kernel> {
    load::fill_of(size)
}

/// Whether rows are asked for even where all that is used with them is near. It was measured to pay on a processor of AVX2 (logsumexp in 0.74 of
/// its time), and to cost a little on one of AVX-512.
pub fn asks_early() -> bool {
    cfg!(target_arch = "x86_64") && cpu::level() == Level::Avx2
}

/// n ≥ 0 contiguous elements at `a` combined into one at `dst`; the neutral element where n is 0. `None` where the type has no such way.
///
/// Element i goes to lane i mod 64, then lanes are halved (0+32, 1+33, …; 0+16, …).
pub fn fold(combine: Combine, dtype: DType) -> Option<Kernel> {
    fold::find(combine, dtype.storage(), how(false)).map(|m| m.fold)
}
/// Elements of float32 that a fold of a row takes together: a row's units are combined by a [`Tree`].
pub const UNIT: usize = 512;
/// What is folded along a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The elements at `a`.
    Plain,
    /// `a·b`, each product rounded.
    Products,
    /// The exponentials of the elements at `a`.
    Exp,
    /// What [`Along::ExpLin`] computes.
    ExpLin,
}
/// [`fold`] of rows of any length, [`UNIT`] by [`UNIT`]; only where that is one loop.
pub fn fold_row(what: Folded, combine: Combine, dtype: DType) -> Option<Kernel> {
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F32 {
        let level = cpu::level();
        return match (what, combine) {
            (Folded::Plain, Combine::Add) => wide::sum_row(level),
            (Folded::Plain, Combine::Max) => wide::max(level),
            (Folded::Plain, Combine::Min) => wide::min(level),
            (Folded::Products, Combine::Add) => wide::products(level),
            (Folded::Exp, Combine::Add) => wide::sum_exp(level),
            (Folded::ExpLin, Combine::Add) => wide::sum_exp_lin(level),
            _ => None,
        };
    }
    let _ = (what, combine, dtype);
    None
}
/// [`fold`] of `k0·a`, each product rounded; only where that is one loop.
pub fn fold_scaled(combine: Combine, dtype: DType) -> Option<Kernel> {
    fold_made(combine, dtype, 0)
}
/// [`fold`] of the squares of `k0·a + k1·b`, each step rounded, where `b` is one element; what is squared is put at `c`, where there must be
/// room that nobody else has. Only where that is one loop.
pub fn fold_squares(combine: Combine, dtype: DType) -> Option<Kernel> {
    fold_made(combine, dtype, 1)
}
fn fold_made(combine: Combine, dtype: DType, what: usize) -> Option<Kernel> {
    #[cfg(target_arch = "x86_64")]
    if (combine, dtype) == (Combine::Add, DType::F32) {
        return [wide::scaled, wide::squares][what](cpu::level());
    }
    let _ = (combine, dtype, what);
    None
}
/// `a ∘ b`, element by element; `dst` may be `a`.
pub fn combine(combine: Combine, dtype: DType) -> Option<Kernel> {
    fold::find(combine, dtype.storage(), how(false)).map(|m| m.mix)
}
/// Rows at places combined with rows.
pub fn mix_at(combine: Combine, dtype: DType) -> Option<MixAt> {
    fold::find(combine, dtype.storage(), how(false)).map(|m| m.mix_at)
}
/// Single elements combined where numbers of a type say.
pub fn one_at(combine: Combine, dtype: DType, numbers: DType) -> Option<OneAt> {
    fold::find(combine, dtype.storage(), how(false)).and_then(|m| (m.one_at)(numbers))
}
/// Single elements combined that were picked by their numbers.
#[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "on a page none are picked"))]
pub fn picked_at(combine: Combine, dtype: DType) -> Option<PickedAt> {
    #[cfg(not(target_family = "wasm"))]
    return fold::find(combine, dtype.storage(), how(false)).map(|m| m.picked);
    #[cfg(target_family = "wasm")]
    None
}
/// Places that numbers of this type say.
pub fn find_places(dtype: DType) -> Find {
    let level = cpu::level();
    match dtype {
        DType::I64 => rows::find::<i64>(level),
        DType::U32 => rows::find::<u32>(level),
        DType::U64 => rows::find::<u64>(level),
        DType::I16 => rows::find::<i16>(level),
        DType::U16 => rows::find::<u16>(level),
        DType::I8 => rows::find::<i8>(level),
        DType::I32 => rows::find::<i32>(level),
        _ => rows::find::<u8>(level),
    }
}
/// Numbers of this type picked by the rows that they say, many at a time; nothing: this machine does not know how.
pub fn pick(dtype: DType) -> Option<Pick> {
    picks::pick(dtype, cpu::level())
}
/// Sums of updates that are sorted by row; nothing: this machine has no loop for it.
pub fn add_sorted() -> Option<AddSorted> {
    sorted::form(cpu::level())
}
/// Rows combined into a row.
pub fn rows(combine: Combine, dtype: DType) -> Option<Rows> {
    fold::find(combine, dtype.storage(), how(false)).map(|m| m.rows)
}
/// Eight rows combined into a new one as a tree; `stream`: past the caches where that pays.
pub fn rows8(combine: Combine, dtype: DType, stream: bool) -> Option<Rows8> {
    fold::find(combine, dtype.storage(), how(stream)).map(|m| m.rows8)
}
/// The element that changes nothing when combined, as [`fill`] takes it; of 16 bytes the second half is 0.
pub fn neutral(combine: Combine, dtype: DType) -> Option<f64> {
    fold::find(combine, dtype.storage(), How { level: Level::Base, stream: false })
        .map(|m| f64::from_bits(m.neutral))
}

#[cfg(test)]
/// A number as an element of this type, as it is in memory; the type's size counts. Numbers out of an integer type's range wrap.
pub fn bytes(dtype: DType, value: Scalar) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |b: &[u8]| bytes[..b.len()].copy_from_slice(b);
    match dtype {
        DType::Bool => put(&[match value {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
            Scalar::Complex(re, im) => re != 0.0 || im != 0.0,
        } as u8]),
        DType::F16 => put(&value.to_f16().to_ne_bytes()),
        DType::BF16 => put(&value.to_bf16().to_ne_bytes()),
        DType::F32 => put(&value.to_f32().to_ne_bytes()),
        DType::F64 => put(&value.to_f64().to_ne_bytes()),
        d => match d.size() {
            1 => put(&(value.to_i128() as u8).to_ne_bytes()),
            2 => put(&(value.to_i128() as u16).to_ne_bytes()),
            4 => put(&(value.to_i128() as u32).to_ne_bytes()),
            _ => put(&(value.to_i128() as u64).to_ne_bytes()),
        },
    }
    bytes
}
#[cfg(test)]
/// A number as [`fill`] takes it.
pub fn constant(dtype: DType, value: Scalar) -> f64 {
    let b = bytes(dtype, value);
    // the low bits of the float are the element's, whatever the byte order
    f64::from_bits(match dtype.size() {
        1 => b[0] as u64,
        2 => u16::from_ne_bytes([b[0], b[1]]) as u64,
        4 => u32::from_ne_bytes([b[0], b[1], b[2], b[3]]) as u64,
        _ => u64::from_ne_bytes(b),
    })
}
