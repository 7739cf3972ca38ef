//! Many elements into one, and rows into a row, in orders that depend on nothing but their number.
//!
//! 16-bit floats are combined in float32: a fold rounds once at its end, rows are rounded each time that two are combined, so that
//! it does not matter who combines them.

#[cfg(not(target_family = "wasm"))]
use super::PickedAt;
use super::complex::times;
use super::float::{max, min};
use super::run::{Constants, How, fresh};
use super::{Kernel, MixAt, OneAt, Rows, Rows8};
use crate::program::sentence::Combine;
use crate::runtime::cpu::{Level, for_each_isa};
use crate::types::{DType, with_dtype};
use half::{bf16, f16};
use num_complex::Complex;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// How two elements become one.
pub(super) trait Mix: 'static {
    /// An element in memory.
    type M: Copy;
    /// An element as it is combined.
    type T: Copy;
    /// What changes nothing.
    const UNIT: Self::T;
    /// Whether rows are taken eight at a time, as a tree.
    const TREE: bool;
    fn load(x: Self::M) -> Self::T;
    fn store(x: Self::T) -> Self::M;
    fn mix(a: Self::T, b: Self::T) -> Self::T;
    /// The same on elements in memory: what is made is rounded.
    #[inline(always)]
    fn join(a: Self::M, b: Self::M) -> Self::M {
        Self::store(Self::mix(Self::load(a), Self::load(b)))
    }
}

pub(super) struct Add<T>(PhantomData<T>);
pub(super) struct Mul<T>(PhantomData<T>);
pub(super) struct Max<T>(PhantomData<T>);
pub(super) struct Min<T>(PhantomData<T>);
pub(super) struct And<T>(PhantomData<T>);
pub(super) struct Or<T>(PhantomData<T>);
/// Of one element: it stays as it is.
pub(super) struct One<T>(PhantomData<T>);

macro_rules! mixes {
    ($($How:ident<$M:ident> as $T:ident: $unit:expr, $tree:literal, |$a:ident, $b:ident| $e:expr, $load:expr, $store:expr;)*) => { $(
        impl Mix for $How<$M> {
            type M = $M;
            type T = $T;
            const UNIT: $T = $unit;
            const TREE: bool = $tree;
            #[inline(always)]
            fn load(x: $M) -> $T { $load(x) }
            #[inline(always)]
            fn store(x: $T) -> $M { $store(x) }
            #[inline(always)]
            fn mix($a: $T, $b: $T) -> $T { $e }
        }
    )* };
}
macro_rules! floats {
    ($($M:ident $T:ident $load:expr, $store:expr;)*) => { $( mixes! {
        Add<$M> as $T: 0.0, true, |a, b| a + b, $load, $store;
        Mul<$M> as $T: 1.0, false, |a, b| a * b, $load, $store;
        Max<$M> as $T: $T::NEG_INFINITY, false, |a, b| max(a, b), $load, $store;
        Min<$M> as $T: $T::INFINITY, false, |a, b| min(a, b), $load, $store;
    } )* };
}
floats! {
    f32 f32 |x| x, |x| x;
    f64 f64 |x| x, |x| x;
    f16 f32 f16::to_f32, f16::from_f32;
    bf16 f32 bf16::to_f32, bf16::from_f32;
}
type C64 = Complex<f32>;
type C128 = Complex<f64>;
mixes! {
    Add<C64> as C64: Complex::new(0.0, 0.0), true, |a, b| a + b, |x| x, |x| x;
    Mul<C64> as C64: Complex::new(1.0, 0.0), false, |a, b| times(a, b), |x| x, |x| x;
    Add<C128> as C128: Complex::new(0.0, 0.0), true, |a, b| a + b, |x| x, |x| x;
    Mul<C128> as C128: Complex::new(1.0, 0.0), false, |a, b| times(a, b), |x| x, |x| x;
}
macro_rules! ones {
    ($($T:ident of $E:ident)*) => { $( mixes! {
        One<$T> as $T: Complex::new($E::NEG_INFINITY, $E::NEG_INFINITY), false,
            |a, b| Complex::new(max(a.re, b.re), max(a.im, b.im)), |x| x, |x| x;
    } )* };
}
ones!(C64 of f32 C128 of f64);
macro_rules! ints {
    ($($T:ident)*) => { $( mixes! {
        Max<$T> as $T: $T::MIN, false, |a, b| if a > b { a } else { b }, |x| x, |x| x;
        Min<$T> as $T: $T::MAX, false, |a, b| if a < b { a } else { b }, |x| x, |x| x;
    } )* };
}
ints!(i8 i16 i32 i64 u8 u16 u32 u64);
macro_rules! bits {
    ($($T:ident)*) => { $( mixes! {
        Add<$T> as $T: 0, false, |a, b| a.wrapping_add(b), |x| x, |x| x;
        Mul<$T> as $T: 1, false, |a, b| a.wrapping_mul(b), |x| x, |x| x;
        And<$T> as $T: !0, false, |a, b| a & b, |x| x, |x| x;
        Or<$T> as $T: 0, false, |a, b| a | b, |x| x, |x| x;
    } )* };
}
bits!(u8 u16 u32 u64);

/// Bools: bytes 0 and 1.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Truth(u8);
mixes! {
    And<Truth> as u8: 1, false, |a, b| a & b, |x: Truth| x.0, Truth;
    Or<Truth> as u8: 0, false, |a, b| a | b, |x: Truth| x.0, Truth;
}

/// Element i goes to lane i mod 64, then lanes are halved.
///
/// # Safety
/// There are n elements at `a`, and room for one at `d`.
#[inline(always)]
pub(super) unsafe fn fold_body<M: Mix>(n: usize, d: *mut u8, a: *const u8) {
    // SAFETY: the caller's: n elements at a, one at d
    unsafe {
        let a: &[M::M] = from_raw_parts(a.cast(), n);
        let mut lanes = [M::UNIT; 64];
        let whole = a.chunks_exact(64);
        let rest = whole.remainder();
        for c in whole {
            for j in 0..64 {
                lanes[j] = M::mix(lanes[j], M::load(c[j]));
            }
        }
        for (lane, x) in lanes.iter_mut().zip(rest) {
            *lane = M::mix(*lane, M::load(*x));
        }
        let mut half = 32;
        while half > 0 {
            for j in 0..half {
                lanes[j] = M::mix(lanes[j], lanes[j + half]);
            }
            half /= 2;
        }
        d.cast::<M::M>().write(M::store(lanes[0]));
    }
}

/// `acc` may be one of the rows' memory only where it is wholly that row (element by element in place).
///
/// # Safety
/// There are n elements at `acc` and in each row.
#[inline(always)]
unsafe fn rows_body<M: Mix>(n: usize, acc: *mut u8, x: *const u8, rows: usize, step: isize) {
    let acc = acc.cast::<M::M>();
    // SAFETY: the caller's: n elements in acc and in each row
    unsafe {
        let row = |i: usize| x.offset(i as isize * step).cast::<M::M>();
        let mut i = 0;
        while M::TREE && i + 8 <= rows {
            let r: [*const M::M; 8] = std::array::from_fn(|k| row(i + k));
            for j in 0..n {
                let l = |k: usize| *r[k].add(j);
                let left = M::join(M::join(l(0), l(1)), M::join(l(2), l(3)));
                let right = M::join(M::join(l(4), l(5)), M::join(l(6), l(7)));
                *acc.add(j) = M::join(*acc.add(j), M::join(left, right));
            }
            i += 8;
        }
        while i < rows {
            let r = row(i);
            for j in 0..n {
                *acc.add(j) = M::join(*acc.add(j), *r.add(j));
            }
            i += 1;
        }
    }
}

/// # Safety
/// There are n elements in each of eight rows, and room for n at `d`, which overlaps none of them.
#[inline(always)]
unsafe fn rows8_body<M: Mix>(n: usize, d: *mut u8, x: *const u8, step: isize) {
    // SAFETY: the caller's: n elements in each of eight rows, and at d, which overlaps none of them
    unsafe {
        let d = fresh::<M::M>(d, n);
        if on_a_page!() {
            // one loop less: it adds to what is there, and sums begin with their unit
            d.fill(MaybeUninit::new(M::store(M::UNIT)));
            return rows_at::base::<M>(n, d.as_mut_ptr().cast(), x, 8, step);
        }
        let r: [&[M::M]; 8] =
            std::array::from_fn(|k| from_raw_parts(x.offset(k as isize * step).cast::<M::M>(), n));
        // a run of two vectors at a time, whole before it is stored: left to itself the compiler takes one, and addresses cost as much as sums
        const RUN: usize = 32;
        let runs = n / RUN;
        let (whole, rest) = d.split_at_mut(runs * RUN);
        for (c, d) in whole.chunks_exact_mut(RUN).enumerate() {
            let r: [&[M::M; RUN]; 8] = r.map(|r| &*r.as_ptr().cast::<[M::M; RUN]>().add(c));
            let sums: [M::M; RUN] = std::array::from_fn(|j| tree8::<M>(r.map(|r| r[j])));
            for (d, sum) in d.iter_mut().zip(sums) {
                d.write(sum);
            }
        }
        for (j, d) in rest.iter_mut().enumerate() {
            d.write(tree8::<M>(r.map(|r| r[runs * RUN + j])));
        }
    }
}

/// The sum of eight elements as a tree, from 0 on as all sums are (that of −0s is 0).
#[inline(always)]
fn tree8<M: Mix>(x: [M::M; 8]) -> M::M {
    let left = M::join(M::join(x[0], x[1]), M::join(x[2], x[3]));
    let right = M::join(M::join(x[4], x[5]), M::join(x[6], x[7]));
    M::join(M::store(M::UNIT), M::join(left, right))
}

/// # Safety
/// There are n elements at each of the three; `d` may be `a` or `b`, but overlaps neither in part.
#[inline(always)]
unsafe fn mix_body<M: Mix>(n: usize, d: *mut u8, a: *const u8, b: *const u8) {
    let (d, a, b) = (d.cast::<M::M>(), a.cast::<M::M>(), b.cast::<M::M>());
    // SAFETY: the caller's: n elements each; d may be a
    unsafe {
        // in place: with one pointer the compiler sees that nothing overlaps
        if !on_a_page!() && std::ptr::addr_eq(d, a) && !std::ptr::addr_eq(d, b) {
            for (d, b) in from_raw_parts_mut(d, n).iter_mut().zip(from_raw_parts(b, n)) {
                *d = M::join(*d, *b);
            }
            return;
        }
        for i in 0..n {
            *d.add(i) = M::join(*a.add(i), *b.add(i));
        }
    }
}

for_each_isa! {
    mod fold_at<M: Mix>(n: usize, d: *mut u8, a: *const u8, _b: *const u8, _c: *const u8, _k: &Constants) at L
        => fold_body::<M>(n, d, a);
    mod rows_at<M: Mix>(n: usize, acc: *mut u8, x: *const u8, rows: usize, step: isize) at L
        => rows_body::<M>(n, acc, x, rows, step);
    mod rows8_at<M: Mix>(n: usize, d: *mut u8, x: *const u8, step: isize) at L
        => rows8_body::<M>(n, d, x, step);
    mod mix_at<M: Mix>(n: usize, d: *mut u8, a: *const u8, b: *const u8, _c: *const u8, _k: &Constants) at L
        => mix_body::<M>(n, d, a, b);
}

/// The tree over eight rows of float32, stored past the caches or in them. (The loop for all types is not always one function: what makes its arrays
/// may be compiled apart, without these features.)
///
/// # Safety
/// As `rows8_body` says, for float32; the processor has these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
unsafe fn rows8_wide<const STREAM: bool>(n: usize, d: *mut u8, x: *const u8, step: isize) {
    use std::arch::x86_64::*;
    // SAFETY: the caller's; streamed stores go to multiples of 64 bytes
    unsafe {
        let whole = if !STREAM || (d as usize).is_multiple_of(64) { n / 16 * 16 } else { 0 };
        let r: [*const f32; 8] = std::array::from_fn(|k| x.offset(k as isize * step).cast());
        let d32 = d.cast::<f32>();
        for i in (0..whole).step_by(16) {
            let pair =
                |k: usize| _mm512_add_ps(_mm512_loadu_ps(r[k].add(i)), _mm512_loadu_ps(r[k + 1].add(i)));
            let (left, right) = (_mm512_add_ps(pair(0), pair(2)), _mm512_add_ps(pair(4), pair(6)));
            let sum = _mm512_add_ps(_mm512_setzero_ps(), _mm512_add_ps(left, right));
            if STREAM {
                _mm512_stream_ps(d32.add(i), sum);
            } else {
                _mm512_storeu_ps(d32.add(i), sum);
            }
        }
        rows8_body::<Add<f32>>(n - whole, d.add(whole * 4), x.add(whole * 4), step);
    }
}

/// Partial results at places from `first` on, merged like the digits of a binary counter.
#[derive(Debug)]
pub struct Tree {
    first: usize,
    /// The place that is free.
    pub depth: usize,
    count: u64,
}

impl Tree {
    /// None yet.
    pub fn new(first: usize) -> Tree {
        Tree { first, depth: first, count: 0 }
    }
    /// One more result is at place `depth`.
    #[inline(always)]
    pub fn pushed(&mut self, mut merge: impl FnMut(usize, usize)) {
        self.depth += 1;
        self.count += 1;
        let mut c = self.count;
        while c & 1 == 0 {
            self.depth -= 1;
            merge(self.depth - 1, self.depth);
            c >>= 1;
        }
    }
    /// All results become one, at place `first`.
    #[inline(always)]
    pub fn end(&mut self, mut merge: impl FnMut(usize, usize)) {
        while self.depth > self.first + 1 {
            self.depth -= 1;
            merge(self.depth - 1, self.depth);
        }
    }
}

/// The functions of one way to combine.
pub(super) struct Mixer {
    pub(super) fold: Kernel,
    pub(super) mix: Kernel,
    pub(super) mix_at: MixAt,
    /// By numbers of this type.
    pub(super) one_at: fn(DType) -> Option<OneAt>,
    #[cfg(not(target_family = "wasm"))]
    pub(super) picked: PickedAt,
    pub(super) rows: Rows,
    pub(super) rows8: Rows8,
    /// Its bits, the low ones of these.
    pub(super) neutral: u64,
}

fn mixer<M: Mix>(h: How, wide: bool) -> Mixer {
    let unit = M::store(M::UNIT);
    let from = &raw const unit;
    // SAFETY: an element of this many bytes, all initialised
    let neutral = unsafe {
        match size_of::<M::M>() {
            1 => u64::from(from.cast::<u8>().read()),
            2 => u64::from(from.cast::<u16>().read()),
            4 => u64::from(from.cast::<u32>().read()),
            // (of a complex number of 16 bytes the real part: none of these has another; one of 8 bytes has the alignment of its parts)
            _ => from.cast::<u64>().read_unaligned(),
        }
    };
    // most gain nothing from the widest vectors
    let level = if wide { h.level } else { h.level.min(Level::Avx2) };
    Mixer {
        fold: fold_at::at::<M>(level),
        mix: mix_at::at::<M>(level),
        mix_at: super::rows::mix::<M>(level),
        one_at: super::rows::one::<M>,
        #[cfg(not(target_family = "wasm"))]
        picked: super::picks::picked::<M>,
        rows: rows_at::at::<M>(level),
        rows8: rows8_at::at::<M>(level),
        neutral,
    }
}

/// What integers of so many bytes are combined by whether they have a sign or not: sums and products wrap.
fn bits(combine: Combine, size: usize, h: How) -> Option<Mixer> {
    macro_rules! of {
        ($T:ident) => {
            match combine {
                Combine::Add => mixer::<Add<$T>>(h, false),
                Combine::Mul => mixer::<Mul<$T>>(h, false),
                Combine::And => mixer::<And<$T>>(h, false),
                Combine::Or => mixer::<Or<$T>>(h, false),
                Combine::Max | Combine::Min | Combine::Same => return None,
            }
        };
    }
    Some(match size {
        1 => of!(u8),
        2 => of!(u16),
        4 => of!(u32),
        _ => of!(u64),
    })
}

/// The functions that combine elements of a type; `None` where it has no such way.
pub(super) fn find(combine: Combine, dtype: DType, h: How) -> Option<Mixer> {
    macro_rules! number {
        ($T:ident, $wide:expr) => {
            match combine {
                Combine::Add => mixer::<Add<$T>>(h, $wide),
                Combine::Mul => mixer::<Mul<$T>>(h, $wide),
                Combine::Max => mixer::<Max<$T>>(h, $wide),
                Combine::Min => mixer::<Min<$T>>(h, $wide),
                _ => return None,
            }
        };
    }
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut mixer = with_dtype!(dtype, {
        Bool => match combine {
            Combine::And | Combine::Mul | Combine::Min => mixer::<And<Truth>>(h, false),
            Combine::Or | Combine::Add | Combine::Max | Combine::Same => mixer::<Or<Truth>>(h, false),
        },
        Int T => match combine {
            Combine::Max => mixer::<Max<T>>(h, false),
            Combine::Min => mixer::<Min<T>>(h, false),
            _ => bits(combine, size_of::<T>(), h)?,
        },
        Half T => number!(T, false),
        Float T => number!(T, true),
        Complex T => match combine {
            Combine::Add => mixer::<Add<T>>(h, false),
            Combine::Mul => mixer::<Mul<T>>(h, false),
            Combine::Same => mixer::<One<T>>(h, false),
            _ => return None,
        },
    });
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F32 {
        use super::wide;
        let fold = match combine {
            Combine::Add => wide::sum(h.level),
            Combine::Max => wide::max(h.level),
            Combine::Min => wide::min(h.level),
            _ => None,
        };
        mixer.fold = fold.unwrap_or(mixer.fold);
        if (combine, h.level) == (Combine::Add, Level::Avx512) {
            mixer.rows8 = if h.stream { rows8_wide::<true> } else { rows8_wide::<false> };
        }
    }
    Some(mixer)
}
