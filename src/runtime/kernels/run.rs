//! The loop around every elementwise function, compiled once for each level of the processor.

use super::Kernel;
use crate::runtime::cpu::{Level, for_each_isa};
use std::mem::MaybeUninit;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// The constants of an instruction.
pub(super) type Constants = [f64; 4];

/// A function of up to three elements.
///
/// `L` is the level: from 1 on there is a fused multiply-add.
pub(super) trait El: 'static {
    /// The first operand's element in memory (bool as a byte).
    type A: Copy;
    /// The second's.
    type B: Copy + Default;
    /// The third's.
    type C: Copy + Default;
    /// The result's.
    type D: Copy;
    /// How many operands are read.
    const ARITY: usize;
    /// The function.
    fn f<const L: u8>(a: Self::A, b: Self::B, c: Self::C, k: &Constants) -> Self::D;
    /// Arguments for which `f` is not good enough: they are done by [`El::exact`], one at a time.
    const HARD: bool = false;
    /// Whether this argument is one of them.
    #[inline(always)]
    fn hard(_a: Self::A) -> bool {
        false
    }
    /// What the function is at such an argument.
    fn exact(_a: Self::A) -> Option<Self::D> {
        None
    }
    /// Operands of which there is one element, the same for all: bit 1 the second, bit 2 the third.
    const SAME: u8 = 0;
}

/// A function of which some operands are one element, as bits of `S` say.
pub(super) struct Same<E, const S: u8>(std::marker::PhantomData<E>);

impl<E: El, const S: u8> El for Same<E, S> {
    type A = E::A;
    type B = E::B;
    type C = E::C;
    type D = E::D;
    const ARITY: usize = E::ARITY;
    const SAME: u8 = S;
    #[inline(always)]
    fn f<const L: u8>(a: E::A, b: E::B, c: E::C, k: &Constants) -> E::D {
        E::f::<L>(a, b, c, k)
    }
}

/// Whether there is one element of operand k.
const fn same<E: El>(k: usize) -> bool {
    E::SAME >> k & 1 == 1
}

/// Operands as slices; those beyond the arity are empty.
///
/// # Safety
/// If it is used, there are n elements of the type at `p`, for as long as the slice is.
#[inline(always)]
unsafe fn operand<'a, T>(p: *const u8, n: usize, used: bool) -> &'a [T] {
    // SAFETY: the caller's: there are n elements at p if it is used
    if used { unsafe { from_raw_parts(p.cast(), n) } } else { &[] }
}

/// A result, which nobody has written yet.
///
/// # Safety
/// There is room for n elements at `d`, for as long as the slice is; nobody else uses it.
#[inline(always)]
pub(crate) unsafe fn fresh<'a, T>(d: *mut u8, n: usize) -> &'a mut [MaybeUninit<T>] {
    // SAFETY: the caller's
    unsafe { from_raw_parts_mut(d.cast(), n) }
}

/// # Safety
/// As [`Kernel`] says.
#[inline(always)]
unsafe fn body<E: El, const L: u8>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: a kernel's operands hold n elements each, and the result overlaps none of them
    unsafe {
        let made = fresh::<E::D>(d, n);
        let count = |k: usize| if same::<E>(k) { n.min(1) } else { n };
        let a: &[E::A] = operand(a, n, true);
        let b: &[E::B] = operand(b, count(1), E::ARITY > 1);
        let c: &[E::C] = operand(c, count(2), E::ARITY > 2);
        let k = *k;
        // read before the loop, in which the compiler may not see that nothing writes there
        let first = |k: usize| same::<E>(k) && n > 0;
        let y0 = if first(1) { b[0] } else { Default::default() };
        let z0 = if first(2) { c[0] } else { Default::default() };
        for i in 0..n {
            let y = if E::ARITY > 1 && !same::<E>(1) { b[i] } else { y0 };
            let z = if E::ARITY > 2 && !same::<E>(2) { c[i] } else { z0 };
            made[i].write(E::f::<L>(a[i], y, z, &k));
        }
        if E::HARD && a.iter().fold(false, |any, x| any | E::hard(*x)) {
            mend::<E>(made, a);
        }
    }
}

#[cold]
#[inline(never)]
fn mend<E: El>(d: &mut [MaybeUninit<E::D>], a: &[E::A]) {
    for (d, a) in d.iter_mut().zip(a).filter(|(_, a)| E::hard(**a)) {
        if let Some(y) = E::exact(*a) {
            d.write(y);
        }
    }
}

for_each_isa! {
    mod plain_loop<E: El>(n: usize, d: *mut u8, a: *const u8, b: *const u8, c: *const u8, k: &Constants) at L
        => body::<E, L>(n, d, a, b, c, k);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;
    use std::marker::PhantomData;

    /// Bytes that are computed at a time before they are streamed.
    const LINE: usize = 256;

    /// Aligned space for one such piece.
    #[repr(align(64))]
    struct Piece([u8; LINE]);

    /// A loop that can be run in pieces.
    pub(in super::super) trait Pieces {
        /// Bytes of an element of the result.
        const SIZE: usize;
        /// Elements `first` to before `first + n`, from `to` on.
        ///
        /// # Safety
        /// The operands have these elements, and there is room for them at `to`; the processor has level `L`.
        unsafe fn piece<const L: u8>(&self, first: usize, n: usize, to: *mut u8);
    }

    /// The loop of a function of up to three elements.
    struct Elements<'a, E> {
        s: [*const u8; 3],
        k: &'a Constants,
        of: PhantomData<E>,
    }
    impl<E: El> Pieces for Elements<'_, E> {
        const SIZE: usize = size_of::<E::D>();
        #[inline(always)]
        unsafe fn piece<const L: u8>(&self, first: usize, n: usize, to: *mut u8) {
            let at =
                |k: usize, size: usize| self.s[k].wrapping_add(if same::<E>(k) { 0 } else { first * size });
            let (a, b, c) = (at(0, size_of::<E::A>()), at(1, size_of::<E::B>()), at(2, size_of::<E::C>()));
            // SAFETY: the caller's
            unsafe { body::<E, L>(n, to, a, b, c, self.k) }
        }
    }

    /// Runs a loop piece by piece, handing each to `store`: LINE bytes and room for them, both aligned to 64
    /// bytes. An unaligned result and the rest are stored as usual.
    ///
    /// # Safety
    /// As for the loop; the processor has level `L`.
    #[inline(always)]
    unsafe fn pieces<P: Pieces, const L: u8>(
        n: usize,
        d: *mut u8,
        p: &P,
        store: impl Fn(*const u8, *mut u8),
    ) {
        let step = LINE / P::SIZE;
        let whole = if (d as usize).is_multiple_of(64) { n / step * step } else { 0 };
        let mut piece = Piece([0; LINE]);
        // SAFETY: the caller's; each piece is within the operands
        unsafe {
            for i in (0..whole).step_by(step) {
                p.piece::<L>(i, step, piece.0.as_mut_ptr());
                store(piece.0.as_ptr(), d.add(i * P::SIZE));
            }
            p.piece::<L>(whole, n - whole, d.add(whole * P::SIZE));
        }
    }

    /// # Safety
    /// As for the loop; the processor has these features.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
    #[inline]
    pub(in super::super) unsafe fn past512<P: Pieces>(n: usize, d: *mut u8, p: &P) {
        // SAFETY: the caller's; both pointers are aligned to 64 bytes and have LINE bytes
        unsafe {
            pieces::<P, 2>(n, d, p, |from, to| {
                for i in (0..LINE).step_by(64) {
                    _mm512_stream_si512(to.add(i).cast(), _mm512_load_si512(from.add(i).cast()));
                }
            })
        }
    }

    /// # Safety
    /// As for the loop; the processor has these features.
    #[target_feature(enable = "avx2,fma,bmi2")]
    #[inline]
    pub(in super::super) unsafe fn past256<P: Pieces>(n: usize, d: *mut u8, p: &P) {
        // SAFETY: as above
        unsafe {
            pieces::<P, 1>(n, d, p, |from, to| {
                for i in (0..LINE).step_by(32) {
                    _mm256_stream_si256(to.add(i).cast(), _mm256_load_si256(from.add(i).cast()));
                }
            })
        }
    }

    /// # Safety
    /// As [`Kernel`](super::Kernel) says; the processor has these features.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
    pub(super) unsafe fn stream512<E: El>(
        n: usize,
        d: *mut u8,
        a: *const u8,
        b: *const u8,
        c: *const u8,
        k: &Constants,
    ) {
        // SAFETY: the caller's
        unsafe { past512(n, d, &Elements::<E> { s: [a, b, c], k, of: PhantomData }) }
    }

    /// # Safety
    /// As [`Kernel`](super::Kernel) says; the processor has these features.
    #[target_feature(enable = "avx2,fma,bmi2")]
    pub(super) unsafe fn stream256<E: El>(
        n: usize,
        d: *mut u8,
        a: *const u8,
        b: *const u8,
        c: *const u8,
        k: &Constants,
    ) {
        // SAFETY: the caller's
        unsafe { past256(n, d, &Elements::<E> { s: [a, b, c], k, of: PhantomData }) }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Pieces, past256, past512};

/// How the kernel of a function is compiled and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct How {
    /// For which level.
    pub(super) level: Level,
    /// Whether the result goes past the caches.
    pub(super) stream: bool,
}

/// The kernel of a function at a level.
pub(super) fn pick<E: El>(how: How) -> Kernel {
    match (how.level, how.stream) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, true) => x86::stream512::<E>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, true) => x86::stream256::<E>,
        (level, _) => plain_loop::at::<E>(level),
    }
}

/// The kernel of a function whose result is never worth streaming.
pub(super) fn plain<E: El>(how: How) -> Kernel {
    plain_loop::at::<E>(how.level)
}

/// The kernel of a function that gains little from the widest vectors: two forms only.
pub(super) fn narrow<E: El>(how: How) -> Kernel {
    match how.level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => plain_loop::avx2::<E>,
        _ => plain_loop::base::<E>,
    }
}

/// The kernel of a rare function, one form.
pub(super) fn scalar<E: El>() -> Kernel {
    plain_loop::base::<E>
}

/// Makes results that were stored past the caches visible to other threads.
pub fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has SSE
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
