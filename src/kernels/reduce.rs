//! Reductions: combine many elements into one, or many rows into a row.
//!
//! The order depends only on the number of elements or rows. 16-bit floats are combined in float32.
//! A fold combines elements into one, and rounds once, at its end. Rows are rounded each time that
//! two of them are combined, so that the result does not depend on which task combines them.

use super::CombinePicked;
use super::CombineRows8;
use super::elementwise::{Constants, KernelVariant, uninit_slice};
use super::float::{max, min};
use super::{CombineElementsAt, CombineRows, CombineRowsAt, SliceKernel, complex::times};
use crate::core::{DType, Reducer, types::with_dtype};
use crate::kernels::cpu::{IsaLevel, for_each_isa, up_to_level};
use half::{bf16, f16};
use num_complex::Complex;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// An operation that combines two elements.
pub(super) trait CombineOp: 'static {
    /// The type of an element in memory.
    type M: Copy;
    /// The type in which elements are combined.
    type T: Copy;
    /// The neutral element.
    const IDENTITY: Self::T;
    /// True if rows are combined eight at a time, as a tree.
    const COMBINES_IN_TREE: bool;
    /// The widest level that the kernels are compiled for, as a number: 2 is AVX-512. Types and
    /// operations that gain little from wide vectors, or are rare, have fewer variants.
    const WIDEST: u8;
    /// True if eight rows are combined by a loop for them, instead of one row after the other.
    const HAS_LOOP_FOR_ROWS8: bool;
    fn load(x: Self::M) -> Self::T;
    fn store(x: Self::T) -> Self::M;
    fn mix(a: Self::T, b: Self::T) -> Self::T;
    /// Combines two elements in memory, with the result rounded.
    #[inline(always)]
    fn combine_stored(a: Self::M, b: Self::M) -> Self::M {
        Self::store(Self::mix(Self::load(a), Self::load(b)))
    }
}

pub(super) struct Add<T>(PhantomData<T>);
pub(super) struct Mul<T>(PhantomData<T>);
pub(super) struct Max<T>(PhantomData<T>);
pub(super) struct Min<T>(PhantomData<T>);
pub(super) struct And<T>(PhantomData<T>);
pub(super) struct Or<T>(PhantomData<T>);
/// The reducer for values that are all equal: the result is that value.
pub(super) struct KeepSingle<T>(PhantomData<T>);

macro_rules! mixes {
    ($($How:ident<$M:ident> as $T:ident: $unit:expr, $tree:literal, $widest:literal, $rows8:literal, |$a:ident, $b:ident| $e:expr, $load:expr, $store:expr;)*) => { $(
        impl CombineOp for $How<$M> {
            type M = $M;
            type T = $T;
            const IDENTITY: $T = $unit;
            const COMBINES_IN_TREE: bool = $tree;
            const WIDEST: u8 = $widest;
            const HAS_LOOP_FOR_ROWS8: bool = $rows8;
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
    ($($M:ident $T:ident $widest:literal, $rows8:literal, $load:expr, $store:expr;)*) => { $( mixes! {
        Add<$M> as $T: 0.0, true, $widest, $rows8, |a, b| a + b, $load, $store;
        Mul<$M> as $T: 1.0, false, $widest, true, |a, b| a * b, $load, $store;
        Max<$M> as $T: $T::NEG_INFINITY, false, $widest, $rows8, |a, b| max(a, b), $load, $store;
        Min<$M> as $T: $T::INFINITY, false, $widest, $rows8, |a, b| min(a, b), $load, $store;
    } )* };
}
floats! {
    f32 f32 2, true, |x| x, |x| x;
    f64 f64 2, true, |x| x, |x| x;
    f16 f32 0, false, f16::to_f32, f16::from_f32;
    bf16 f32 1, true, bf16::to_f32, bf16::from_f32;
}
type C64 = Complex<f32>;
type C128 = Complex<f64>;
mixes! {
    Add<C64> as C64: Complex::new(0.0, 0.0), true, 1, true, |a, b| a + b, |x| x, |x| x;
    Mul<C64> as C64: Complex::new(1.0, 0.0), false, 1, true, |a, b| times(a, b), |x| x, |x| x;
    Add<C128> as C128: Complex::new(0.0, 0.0), true, 1, true, |a, b| a + b, |x| x, |x| x;
    Mul<C128> as C128: Complex::new(1.0, 0.0), false, 1, true, |a, b| times(a, b), |x| x, |x| x;
}
macro_rules! ones {
    ($($T:ident of $E:ident)*) => { $( mixes! {
        KeepSingle<$T> as $T: Complex::new($E::NEG_INFINITY, $E::NEG_INFINITY), false, 0, false,
            |a, b| Complex::new(max(a.re, b.re), max(a.im, b.im)), |x| x, |x| x;
    } )* };
}
ones!(C64 of f32 C128 of f64);
macro_rules! ints {
    ($($T:ident)*) => { $( mixes! {
        Max<$T> as $T: $T::MIN, false, 1, false, |a, b| if a > b { a } else { b }, |x| x, |x| x;
        Min<$T> as $T: $T::MAX, false, 1, false, |a, b| if a < b { a } else { b }, |x| x, |x| x;
    } )* };
}
ints!(i8 i16 i32 i64 u8 u16 u32 u64);
macro_rules! bits {
    ($($T:ident)*) => { $( mixes! {
        Add<$T> as $T: 0, false, 1, true, |a, b| a.wrapping_add(b), |x| x, |x| x;
        Mul<$T> as $T: 1, false, 0, false, |a, b| a.wrapping_mul(b), |x| x, |x| x;
        And<$T> as $T: !0, false, 0, false, |a, b| a & b, |x| x, |x| x;
        Or<$T> as $T: 0, false, 0, false, |a, b| a | b, |x| x, |x| x;
    } )* };
}
bits!(u8 u16 u32 u64);

/// A bool in memory: a byte 0 or 1.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct FoldBool(u8);
mixes! {
    And<FoldBool> as u8: 1, false, 1, false, |a, b| a & b, |x: FoldBool| x.0, FoldBool;
    Or<FoldBool> as u8: 0, false, 1, false, |a, b| a | b, |x: FoldBool| x.0, FoldBool;
}

/// Combines `n` elements: element i goes to lane i mod 64, then the lanes are combined in halves.
///
/// # Safety
/// `a` points to `n` elements, and `d` to space for one.
#[inline(always)]
pub(super) unsafe fn fold_body<M: CombineOp>(n: usize, d: *mut u8, a: *const u8) {
    // SAFETY: `a` points to `n` elements and `d` to space for one (caller contract).
    unsafe {
        let a: &[M::M] = from_raw_parts(a.cast(), n);
        let mut lanes = [M::IDENTITY; 64];
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

/// Combines `rows` rows into the row at `acc`.
///
/// `acc` may overlap a row only if it is exactly that row.
///
/// # Safety
/// `acc` points to `n` writable, initialized elements, and `x` to `rows` rows of `n` elements,
/// `step` bytes apart.
#[inline(always)]
unsafe fn rows_body<M: CombineOp>(n: usize, acc: *mut u8, x: *const u8, rows: usize, step: isize) {
    let acc = acc.cast::<M::M>();
    // SAFETY: `acc` and each row have `n` elements (caller contract). All accesses are through raw
    // pointers, so `acc` may be a row.
    unsafe {
        let row = |i: usize| x.offset(i as isize * step).cast::<M::M>();
        let mut i = 0;
        while M::COMBINES_IN_TREE && i + 8 <= rows {
            let r =
                [row(i), row(i + 1), row(i + 2), row(i + 3), row(i + 4), row(i + 5), row(i + 6), row(i + 7)];
            for j in 0..n {
                let l = |k: usize| *r[k].add(j);
                let left = M::combine_stored(M::combine_stored(l(0), l(1)), M::combine_stored(l(2), l(3)));
                let right = M::combine_stored(M::combine_stored(l(4), l(5)), M::combine_stored(l(6), l(7)));
                *acc.add(j) = M::combine_stored(*acc.add(j), M::combine_stored(left, right));
            }
            i += 8;
        }
        while i < rows {
            let r = row(i);
            for j in 0..n {
                *acc.add(j) = M::combine_stored(*acc.add(j), *r.add(j));
            }
            i += 1;
        }
    }
}

/// Combines eight rows into a new one, as a tree.
///
/// # Safety
/// `x` points to eight rows of `n` elements, `step` bytes apart, and `d` to space for `n` elements,
/// which overlaps none of the rows.
#[inline(always)]
unsafe fn rows8_body<M: CombineOp>(n: usize, d: *mut u8, x: *const u8, step: isize) {
    // SAFETY: each of the eight rows has `n` elements, and `d` has space for `n`, apart from them
    // (caller contract).
    unsafe {
        let d = uninit_slice::<M::M>(d, n);
        if !M::HAS_LOOP_FOR_ROWS8 {
            // this needs one loop less: `rows_at` adds to initialized elements, and sums start from
            // the neutral element; other operations for which this is done give the same bits in
            // any order
            d.fill(MaybeUninit::new(M::store(M::IDENTITY)));
            return rows_at::base::<M>(n, d.as_mut_ptr().cast(), x, 8, step);
        }
        let row = |k: usize| x.offset(k as isize * step).cast::<M::M>();
        let r = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
        // compute two vectors before storing them: by itself the compiler uses one vector at a
        // time, and computing addresses then costs as much as the sums
        const RUN_ELEMENTS: usize = 32;
        let runs = n / RUN_ELEMENTS;
        let (whole, rest) = d.split_at_mut(runs * RUN_ELEMENTS);
        for (c, d) in whole.chunks_exact_mut(RUN_ELEMENTS).enumerate() {
            // a loop, because `array::from_fn` is not always inlined, and then has the base level
            let mut sums = [MaybeUninit::uninit(); RUN_ELEMENTS];
            for (j, sum) in sums.iter_mut().enumerate() {
                sum.write(tree8::<M>(|k| *r[k].add(c * RUN_ELEMENTS + j)));
            }
            d.copy_from_slice(&sums);
        }
        for (j, d) in rest.iter_mut().enumerate() {
            d.write(tree8::<M>(|k| *r[k].add(runs * RUN_ELEMENTS + j)));
        }
    }
}

/// Returns the sum of eight elements as a tree, starting from 0.
/// All sums start from 0, so that the sum of −0s is 0.
#[inline(always)]
fn tree8<M: CombineOp>(x: impl Fn(usize) -> M::M) -> M::M {
    let left = M::combine_stored(M::combine_stored(x(0), x(1)), M::combine_stored(x(2), x(3)));
    let right = M::combine_stored(M::combine_stored(x(4), x(5)), M::combine_stored(x(6), x(7)));
    M::combine_stored(M::store(M::IDENTITY), M::combine_stored(left, right))
}

/// Combines two slices of `n` elements, element by element.
///
/// # Safety
/// `d`, `a` and `b` point to `n` elements each, and `d` is writable. `d` may be equal to `a` or
/// `b`, but must not overlap them in part.
#[inline(always)]
unsafe fn mix_body<M: CombineOp>(n: usize, d: *mut u8, a: *const u8, b: *const u8) {
    let (d, a, b) = (d.cast::<M::M>(), a.cast::<M::M>(), b.cast::<M::M>());
    // SAFETY: each pointer has `n` elements, and `d` is `a` or `b` or overlaps neither (caller
    // contract).
    unsafe {
        // in place: with a single pointer, the compiler sees that there is no overlap
        if std::ptr::addr_eq(d, a) && !std::ptr::addr_eq(d, b) {
            for (d, b) in from_raw_parts_mut(d, n).iter_mut().zip(from_raw_parts(b, n)) {
                *d = M::combine_stored(*d, *b);
            }
            return;
        }
        for i in 0..n {
            *d.add(i) = M::combine_stored(*a.add(i), *b.add(i));
        }
    }
}

for_each_isa! {
    mod fold_at<M: CombineOp>(n: usize, d: *mut u8, a: *const u8, _b: *const u8, _c: *const u8, _k: &Constants) at L
        => fold_body::<M>(n, d, a);
    mod rows_at<M: CombineOp>(n: usize, acc: *mut u8, x: *const u8, rows: usize, step: isize) at L
        => rows_body::<M>(n, acc, x, rows, step);
    mod rows8_at<M: CombineOp>(n: usize, d: *mut u8, x: *const u8, step: isize) at L
        => rows8_body::<M>(n, d, x, step);
    mod mix_at<M: CombineOp>(n: usize, d: *mut u8, a: *const u8, b: *const u8, _c: *const u8, _k: &Constants) at L
        => mix_body::<M>(n, d, a, b);
}

/// Combines eight rows of float32 as a tree, optionally with non-temporal stores.
///
/// The generic loop is not always compiled as one function: the closure that fills its arrays may
/// be compiled separately, without these features.
///
/// # Safety
/// The caller upholds the contract of `rows8_body` for float32; the processor has these features.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
unsafe fn rows8_wide<const STREAM: bool>(n: usize, d: *mut u8, x: *const u8, step: isize) {
    use std::arch::x86_64::*;
    // SAFETY: the rows and `d` have `n` elements (caller contract); non-temporal stores are aligned
    // to 64 bytes, as `d` is checked to be.
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

/// A stack of partial results, which are merged like the digits of a binary counter.
///
/// The caller owns the slots that hold the results. They are numbered from `first` on.
#[derive(Debug)]
pub struct MergeStack {
    first: usize,
    /// The next free slot.
    pub depth: usize,
    count: u64,
}

impl MergeStack {
    /// Creates an empty stack whose slots start at `first`.
    pub fn new(first: usize) -> MergeStack {
        MergeStack { first, depth: first, count: 0 }
    }
    /// Records a result in the slot `depth`, and merges results that combine equally many inputs.
    #[inline(always)]
    pub fn push(&mut self, mut merge: impl FnMut(usize, usize)) {
        self.depth += 1;
        self.count += 1;
        let mut c = self.count;
        while c & 1 == 0 {
            self.depth -= 1;
            merge(self.depth - 1, self.depth);
            c >>= 1;
        }
    }
    /// Merges all results into the slot `first`.
    #[inline(always)]
    pub fn finish(&mut self, mut merge: impl FnMut(usize, usize)) {
        while self.depth > self.first + 1 {
            self.depth -= 1;
            merge(self.depth - 1, self.depth);
        }
    }
}

/// The kernels of one reducer and element type.
pub(super) struct CombineKernels {
    pub(super) fold: SliceKernel,
    pub(super) mix: SliceKernel,
    pub(super) mix_at: CombineRowsAt,
    /// Returns the kernel that combines single elements at indices of the given type.
    pub(super) one_at: fn(DType) -> Option<CombineElementsAt>,
    pub(super) picked: CombinePicked,
    pub(super) rows: CombineRows,
    pub(super) rows8: CombineRows8,
    /// The bits of the neutral element, in the low bits of as many words as it has.
    pub(super) neutral: [u64; 2],
}

fn combine_kernels<M: CombineOp>(level: IsaLevel) -> CombineKernels {
    let unit = M::store(M::IDENTITY);
    let from = &raw const unit;
    // SAFETY: `unit` has this number of initialized bytes.
    let neutral = unsafe {
        match size_of::<M::M>() {
            1 => [u64::from(from.cast::<u8>().read()), 0],
            2 => [u64::from(from.cast::<u16>().read()), 0],
            4 => [u64::from(from.cast::<u32>().read()), 0],
            // a complex number of 8 bytes may be aligned to 4 bytes only
            8 => [from.cast::<u64>().read_unaligned(), 0],
            _ => from.cast::<[u64; 2]>().read_unaligned(),
        }
    };
    CombineKernels {
        fold: up_to_level!(fold_at::<M>, M::WIDEST, level),
        mix: up_to_level!(mix_at::<M>, M::WIDEST, level),
        mix_at: super::gather::mix::<M>(level),
        one_at: super::gather::one::<M>,
        picked: super::index_filter::combine_picked::<M>,
        rows: up_to_level!(rows_at::<M>, M::WIDEST, level),
        rows8: if M::HAS_LOOP_FOR_ROWS8 {
            up_to_level!(rows8_at::<M>, M::WIDEST, level)
        } else {
            rows8_at::base::<M>
        },
        neutral,
    }
}

/// Returns the kernels for integers of `size` bytes, for functions that do not depend on the sign.
///
/// Sums and products wrap.
fn bits(combine: Reducer, size: usize, h: KernelVariant) -> Option<CombineKernels> {
    macro_rules! of {
        ($T:ident) => {
            match combine {
                Reducer::Add => combine_kernels::<Add<$T>>(h.level),
                Reducer::Mul => combine_kernels::<Mul<$T>>(h.level),
                Reducer::And => combine_kernels::<And<$T>>(h.level),
                Reducer::Or => combine_kernels::<Or<$T>>(h.level),
                Reducer::Max | Reducer::Min | Reducer::AssumeEqual => return None,
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

/// Returns the kernels that combine elements of a type.
/// Returns `None` if the reducer is not defined for the type.
pub(super) fn find(combine: Reducer, dtype: DType, h: KernelVariant) -> Option<CombineKernels> {
    macro_rules! number {
        ($T:ident) => {
            match combine {
                Reducer::Add => combine_kernels::<Add<$T>>(h.level),
                Reducer::Mul => combine_kernels::<Mul<$T>>(h.level),
                Reducer::Max => combine_kernels::<Max<$T>>(h.level),
                Reducer::Min => combine_kernels::<Min<$T>>(h.level),
                _ => return None,
            }
        };
    }
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut mixer = with_dtype!(dtype, {
        Bool => match combine {
            Reducer::And | Reducer::Mul | Reducer::Min => combine_kernels::<And<FoldBool>>(h.level),
            Reducer::Or | Reducer::Add | Reducer::Max | Reducer::AssumeEqual => combine_kernels::<Or<FoldBool>>(h.level),
        },
        Int T => match combine {
            Reducer::Max => combine_kernels::<Max<T>>(h.level),
            Reducer::Min => combine_kernels::<Min<T>>(h.level),
            _ => bits(combine, size_of::<T>(), h)?,
        },
        Half T => number!(T),
        Float T => number!(T),
        Complex T => match combine {
            Reducer::Add => combine_kernels::<Add<T>>(h.level),
            Reducer::Mul => combine_kernels::<Mul<T>>(h.level),
            Reducer::AssumeEqual => combine_kernels::<KeepSingle<T>>(h.level),
            _ => return None,
        },
    });
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::F32 {
        use super::simd_f32;
        let fold = match combine {
            Reducer::Add => simd_f32::sum(h.level),
            Reducer::Max => simd_f32::max(h.level),
            Reducer::Min => simd_f32::min(h.level),
            _ => None,
        };
        mixer.fold = fold.unwrap_or(mixer.fold);
        if (combine, h.level) == (Reducer::Add, IsaLevel::Avx512) {
            mixer.rows8 = if h.stream { rows8_wide::<true> } else { rows8_wide::<false> };
        }
    }
    Some(mixer)
}
