//! The loop that applies an elementwise function to slices, compiled for each processor level.

use super::SliceKernel;
use crate::kernels::cpu::{BASE_LEVEL, IsaLevel, for_each_isa};
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// The constants of an instruction.
pub(super) type Constants = [f64; 4];

/// A function of up to three elements.
///
/// `L` is the level of the processor: from 1 on there is a fused multiply-add.
pub(super) trait ElementFn: 'static {
    /// The type of the first operand's elements in memory (bools are bytes).
    type A: Copy;
    /// The type of the second operand's elements.
    type B: Copy + Default;
    /// The type of the third operand's elements.
    type C: Copy + Default;
    /// The type of the result's elements.
    type D: Copy;
    /// The number of operands that the function reads.
    const ARITY: usize;
    /// Computes the function.
    fn f<const L: u8>(a: Self::A, b: Self::B, c: Self::C, k: &Constants) -> Self::D;
    /// True if `f` is not accurate for some arguments.
    /// These are passed to [`ElementFn::exact`], one at a time.
    const HAS_HARD_INPUTS: bool = false;
    /// Returns true if `f` is not accurate for this argument.
    #[inline(always)]
    fn hard(_a: Self::A) -> bool {
        false
    }
    /// Computes the function at an argument for which `f` is not accurate.
    fn exact(_a: Self::A) -> Option<Self::D> {
        None
    }
    /// The operands that are a single element, as a bit mask: bit 1 is the second, bit 2 the third.
    const BROADCAST: u8 = 0;
}

/// Implements [`ElementFn`] for a function whose operands have one type:
/// `Name = (operands): type => result type, result;`, then further items of the implementation.
macro_rules! element_fn {
    (
        $name:ident $(<$P:ident: $bound:ident>)? = ($a:ident $(, $b:ident)?): $T:ty => $D:ty, $e:expr;
        $($items:tt)*
    ) => {
        impl $(<$P: $bound>)? ElementFn for $name $(<$P>)? {
            type A = $T;
            type B = $T;
            type C = $T;
            type D = $D;
            const ARITY: usize = [stringify!($a) $(, stringify!($b))?].len();
            #[inline(always)]
            fn f<const L: u8>(x: $T, y: $T, _: $T, _: &Constants) -> $D {
                let $a = x;
                $(let $b = y;)?
                let _ = y;
                $e
            }
            $($items)*
        }
    };
}
pub(super) use element_fn;

/// The function `E` with a single element for the operands whose bits are set in `S`.
pub(super) struct BroadcastFn<E, const S: u8>(std::marker::PhantomData<E>);

impl<E: ElementFn, const S: u8> ElementFn for BroadcastFn<E, S> {
    type A = E::A;
    type B = E::B;
    type C = E::C;
    type D = E::D;
    const ARITY: usize = E::ARITY;
    const BROADCAST: u8 = S;
    #[inline(always)]
    fn f<const L: u8>(a: E::A, b: E::B, c: E::C, k: &Constants) -> E::D {
        E::f::<L>(a, b, c, k)
    }
}

/// Returns true if operand `k` is a single element.
const fn is_broadcast<E: ElementFn>(k: usize) -> bool {
    E::BROADCAST >> k & 1 == 1
}

/// Returns the result as a slice of uninitialized elements.
///
/// # Safety
/// `d` points to space for `n` elements for the lifetime of the slice, which no other code
/// accesses.
#[inline(always)]
pub(crate) unsafe fn uninit_slice<'a, T>(d: *mut u8, n: usize) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: `d` points to space for `n` elements (caller contract).
    unsafe { from_raw_parts_mut(d.cast(), n) }
}

/// Runs the function over `n` elements.
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`](super::SliceKernel).
#[inline(always)]
unsafe fn body<E: ElementFn, const L: u8>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: operands have `n` elements each, or one if they are broadcast, and the result
    // overlaps none of them (caller contract).
    unsafe {
        let (d, a, b, c) = (d.cast::<E::D>(), a.cast::<E::A>(), b.cast::<E::B>(), c.cast::<E::C>());
        let k = *k;
        // read before the loop: the compiler may not see that the loop does not write these
        // elements
        let y0 = if is_broadcast::<E>(1) && n > 0 { *b } else { Default::default() };
        let z0 = if is_broadcast::<E>(2) && n > 0 { *c } else { Default::default() };
        for i in 0..n {
            let y = if const { E::ARITY > 1 && !is_broadcast::<E>(1) } { *b.add(i) } else { y0 };
            let z = if const { E::ARITY > 2 && !is_broadcast::<E>(2) } { *c.add(i) } else { z0 };
            d.add(i).write(E::f::<L>(*a.add(i), y, z, &k));
        }
        if E::HAS_HARD_INPUTS {
            let (d, a) = (uninit_slice::<E::D>(d.cast(), n), from_raw_parts(a, n));
            if a.iter().fold(false, |any, x| any | E::hard(*x)) {
                fix_hard_elements::<E>(d, a);
            }
        }
    }
}

#[cold]
#[inline(never)]
fn fix_hard_elements<E: ElementFn>(d: &mut [MaybeUninit<E::D>], a: &[E::A]) {
    for (d, a) in d.iter_mut().zip(a).filter(|(_, a)| E::hard(**a)) {
        if let Some(y) = E::exact(*a) {
            d.write(y);
        }
    }
}

for_each_isa! {
    mod plain_loop<E: ElementFn>(n: usize, d: *mut u8, a: *const u8, b: *const u8, c: *const u8, k: &Constants) at L
        => body::<E, L>(n, d, a, b, c, k);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;
    use std::marker::PhantomData;

    /// The number of bytes that are computed into a buffer before they are stored non-temporally.
    const PIECE_BYTES: usize = 256;

    /// An aligned buffer for one piece of the result.
    #[repr(align(64))]
    struct PieceBuffer([u8; PIECE_BYTES]);

    /// A loop that can be run in pieces.
    pub(in crate::kernels) trait PiecewiseLoop {
        /// The size of an element of the result, in bytes.
        const ELEMENT_BYTES: usize;
        /// Computes the `n` elements from `first` on, and writes them to `to`.
        ///
        /// # Safety
        /// The operands have these elements, `to` points to space for them, which overlaps no
        /// operand, and the processor has level `L`.
        unsafe fn piece<const L: u8>(&self, first: usize, n: usize, to: *mut u8);
    }

    /// The loop of a function of up to three elements.
    struct ElementwiseLoop<'a, E> {
        operands: [*const u8; 3],
        k: &'a Constants,
        function: PhantomData<E>,
    }
    impl<E: ElementFn> PiecewiseLoop for ElementwiseLoop<'_, E> {
        const ELEMENT_BYTES: usize = size_of::<E::D>();
        #[inline(always)]
        unsafe fn piece<const L: u8>(&self, first: usize, n: usize, to: *mut u8) {
            let at = |k: usize, size: usize| {
                self.operands[k].wrapping_add(if is_broadcast::<E>(k) { 0 } else { first * size })
            };
            let (a, b, c) = (at(0, size_of::<E::A>()), at(1, size_of::<E::B>()), at(2, size_of::<E::C>()));
            // SAFETY: the operands have `n` elements from `first` on, or one if they are broadcast,
            // and `to` has space for the results, apart from them (caller contract).
            unsafe { body::<E, L>(n, to, a, b, c, self.k) }
        }
    }

    /// Runs a loop with non-temporal stores, piece by piece; the base level has none.
    ///
    /// A result that is not aligned to 64 bytes is stored normally, and so are the elements after
    /// the last full piece.
    ///
    /// # Safety
    /// The operands of the loop have `n` elements, and `d` points to space for `n` results, which
    /// overlaps no operand; the processor has level `L`.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run_streaming<P: PiecewiseLoop, const L: u8>(
        n: usize,
        d: *mut u8,
        p: &P,
    ) {
        let step = PIECE_BYTES / P::ELEMENT_BYTES;
        let whole = if L > 0 && (d as usize).is_multiple_of(64) { n / step * step } else { 0 };
        let mut piece = PieceBuffer([0; PIECE_BYTES]);
        // SAFETY: each piece is within the `n` elements of the operands and of `d`, and the
        // processor has level `L` (caller contract). Both sides of a store are aligned to 64 bytes.
        unsafe {
            for i in (0..whole).step_by(step) {
                p.piece::<L>(i, step, piece.0.as_mut_ptr());
                let to = d.add(i * P::ELEMENT_BYTES);
                if L == 2 {
                    stream_piece_512(&piece, to);
                } else {
                    stream_piece_256(&piece, to);
                }
            }
            p.piece::<L>(whole, n - whole, d.add(whole * P::ELEMENT_BYTES));
        }
    }

    /// Defines the function that stores a piece with these instructions.
    macro_rules! stream_piece {
        ($name:ident $features:tt $bytes:literal $load:ident $store:ident) => {
            /// Stores a piece with non-temporal stores.
            ///
            /// # Safety
            /// `to` points to space for the piece, and is aligned to 64 bytes; the processor has
            /// these features.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn $name(from: &PieceBuffer, to: *mut u8) {
                for i in (0..PIECE_BYTES).step_by($bytes) {
                    // SAFETY: both have `PIECE_BYTES` bytes, and are aligned to 64 bytes.
                    unsafe { $store(to.add(i).cast(), $load(from.0.as_ptr().add(i).cast())) }
                }
            }
        };
    }
    stream_piece! { stream_piece_512 "avx512f" 64 _mm512_load_si512 _mm512_stream_si512 }
    stream_piece! { stream_piece_256 "avx2" 32 _mm256_load_si256 _mm256_stream_si256 }

    for_each_isa! {
        mod stream_loop<E: ElementFn>(n: usize, d: *mut u8, a: *const u8, b: *const u8, c: *const u8, k: &Constants) at L
            => run_streaming::<_, L>(n, d, &ElementwiseLoop::<E> { operands: [a, b, c], k, function: PhantomData });
    }
    pub(super) use stream_loop::{avx2 as stream256, avx512 as stream512};
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{PiecewiseLoop, run_streaming};

/// The variant of a kernel: the level that it is compiled for, and how it stores its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelVariant {
    /// The level of vector instructions.
    pub(super) level: IsaLevel,
    /// True if stores are non-temporal, which bypasses the caches.
    pub(super) stream: bool,
}

/// Returns the kernel of a function for a variant.
pub(super) fn pick<E: ElementFn>(how: KernelVariant) -> SliceKernel {
    match (how.level, how.stream) {
        #[cfg(target_arch = "x86_64")]
        (IsaLevel::Avx512, true) => x86::stream512::<E>,
        #[cfg(target_arch = "x86_64")]
        (IsaLevel::Avx2, true) => x86::stream256::<E>,
        (level, _) => plain_loop::at::<E>(level),
    }
}

/// Returns the kernel of a function for which non-temporal stores are never faster.
pub(super) fn plain<E: ElementFn>(how: KernelVariant) -> SliceKernel {
    plain_loop::at::<E>(how.level)
}

/// Returns the kernel of a function that gains little from the widest vectors.
/// There are only two variants of it.
pub(super) fn narrow<E: ElementFn>(how: KernelVariant) -> SliceKernel {
    plain_loop::narrow::<E>(how.level)
}

/// Returns the kernel of a rarely used function, which has a single variant.
pub(super) fn scalar<E: ElementFn>() -> SliceKernel {
    plain_loop::base::<E>
}

/// Returns the kernel of a function without fused multiply-adds, for every level.
///
/// It is the base level's, except on processors that always have them.
pub(super) fn without_fma<E: ElementFn>() -> SliceKernel {
    match BASE_LEVEL {
        0 => plain_loop::base::<E>,
        _ => level_0::<E>,
    }
}

/// Runs the function over `n` elements without fused multiply-adds.
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`].
unsafe fn level_0<E: ElementFn>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the caller upholds the contract of `body`.
    unsafe { body::<E, 0>(n, d, a, b, c, k) }
}

/// Makes the results of non-temporal stores visible to other threads.
pub fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has SSE, which includes `sfence`.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
