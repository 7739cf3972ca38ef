//! Functions on 16-bit floats, through float32.

use super::SliceKernel;
use super::elementwise::{Constants, ElementFn, KernelVariant, narrow, without_fma};
use super::float::{FloatElement, KernelMaker};
use crate::core::ScalarOp;
use half::{bf16, f16};
use std::marker::PhantomData;

/// 16-bit floats, which are widened to float32, computed there, and rounded once.
pub(super) trait Half: Copy + Default + 'static {
    fn widen(from: &[Self], to: &mut [f32]);
    fn round(from: &[f32], to: &mut [Self]);
    /// Rounds at most [`CHUNK_ELEMENTS`] numbers, and writes them to uninitialized memory.
    ///
    /// # Safety
    /// `to` points to space for `from.len()` elements.
    #[inline(always)]
    unsafe fn round_to(from: &[f32], to: *mut u8) {
        let mut made = [Self::default(); CHUNK_ELEMENTS];
        Self::round(from, &mut made[..from.len()]);
        // SAFETY: `to` has space for `from.len()` elements (caller contract).
        unsafe { std::ptr::copy_nonoverlapping(made.as_ptr(), to.cast(), from.len()) }
    }
    /// Returns the next representable number after `self` in the direction of `y`.
    fn next_after(self, y: Self) -> Self;
}
macro_rules! half {
    ($($T:ident)*) => { $(
        impl Half for $T {
            fn widen(from: &[$T], to: &mut [f32]) {
                half::slice::HalfFloatSliceExt::convert_to_f32_slice(from, to);
            }
            fn round(from: &[f32], to: &mut [$T]) {
                half::slice::HalfFloatSliceExt::convert_from_f32_slice(to, from);
            }
            fn next_after(self, y: $T) -> $T {
                if self.is_nan() || y.is_nan() {
                    return $T::NAN;
                }
                if self == y {
                    return y;
                }
                if self == $T::ZERO {
                    return $T::from_bits(1 | (y.to_bits() & 0x8000));
                }
                let up = (y > self) == (self > $T::ZERO);
                $T::from_bits(if up { self.to_bits() + 1 } else { self.to_bits() - 1 })
            }
        }
    )* };
}
half!(f16 bf16);

/// Conversions of many float16 elements by the processor, eight at a time.
///
/// The `half` crate uses the same instructions, but calls a function for each eight elements.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) mod f16c {
    use half::f16;
    use std::arch::x86_64::*;

    /// The number of elements that are converted at a time.
    const LANES: usize = 8;

    /// Returns true if the processor has the instructions.
    pub(in crate::kernels) fn usable() -> bool {
        is_x86_feature_detected!("f16c") && is_x86_feature_detected!("avx")
    }

    /// Converts `n` elements.
    ///
    /// # Safety
    /// `from` points to `n` elements, and `to` to space for as many, which do not overlap. The
    /// processor has AVX and F16C.
    #[target_feature(enable = "avx,f16c")]
    pub(in crate::kernels) unsafe fn widen(n: usize, from: *const f16, to: *mut f32) {
        let whole = n - n % LANES;
        // SAFETY: the elements are within both arrays (caller contract).
        unsafe {
            for i in (0..whole).step_by(LANES) {
                let x = _mm_loadu_si128(from.add(i).cast());
                _mm256_storeu_ps(to.add(i), _mm256_cvtph_ps(x));
            }
            (whole..n).for_each(|i| to.add(i).write((*from.add(i)).to_f32()));
        }
    }

    /// Converts `n` elements.
    ///
    /// # Safety
    /// As for [`widen`].
    #[target_feature(enable = "avx,f16c")]
    pub(in crate::kernels) unsafe fn round(n: usize, from: *const f32, to: *mut f16) {
        let whole = n - n % LANES;
        // SAFETY: the elements are within both arrays (caller contract).
        unsafe {
            for i in (0..whole).step_by(LANES) {
                let x = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.add(i)));
                _mm_storeu_si128(to.add(i).cast(), x);
            }
            (whole..n).for_each(|i| to.add(i).write(f16::from_f32(*from.add(i))));
        }
    }
}

/// The number of 16-bit floats that are widened at a time.
pub(super) const CHUNK_ELEMENTS: usize = 128;

/// Runs a float32 kernel on 16-bit floats, chunk by chunk.
///
/// # Safety
/// The caller upholds the contract of `SliceKernel`, for `arity` operands of type `H`, and for a
/// result of type `H` or, with `to_bool`, of bool bytes. The kernel is one of float32 with as many
/// operands, whose result is a float32 or, with `to_bool`, a bool.
unsafe fn through_f32<H: Half>(
    (kernel, arity, to_bool): (SliceKernel, usize, bool),
    n: usize,
    d: *mut u8,
    operands: [*const u8; 3],
    k: &Constants,
) {
    let mut wide = [[0f32; CHUNK_ELEMENTS]; 3];
    let mut made = [0f32; CHUNK_ELEMENTS];
    for at in (0..n).step_by(CHUNK_ELEMENTS) {
        let m = (n - at).min(CHUNK_ELEMENTS);
        for (to, from) in wide.iter_mut().zip(operands).take(arity) {
            // SAFETY: each operand that is read has `n` elements (caller contract).
            let from = unsafe { std::slice::from_raw_parts(from.cast::<H>().add(at), m) };
            H::widen(from, &mut to[..m]);
        }
        let [a, b, c] = wide.each_ref().map(|x| x.as_ptr().cast::<u8>());
        // SAFETY: the operands of the kernel have `m` elements, and so has the space for its
        // result, which is copied to the `m` elements of `d` from `at` on (caller contract).
        unsafe {
            if to_bool {
                kernel(m, d.add(at), a, b, c, k);
            } else {
                kernel(m, made.as_mut_ptr().cast(), a, b, c, k);
                H::round_to(&made[..m], d.add(at * size_of::<H>()));
            }
        }
    }
}
/// Runs a function of 16-bit floats; its result is a float or, with `TO_BOOL`, a bool.
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`] for the function.
unsafe fn half_kernel<H: Half, E: ElementFn<A = f32, B = f32, C = f32>, const TO_BOOL: bool>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the operands and `d` have `n` elements (caller contract), and the kernel is that of
    // the function.
    unsafe { through_f32::<H>((without_fma::<E>(), E::ARITY, TO_BOOL), n, d, [a, b, c], k) }
}
struct ThroughF32<H>(PhantomData<H>);
impl<H: Half> KernelMaker<f32> for ThroughF32<H> {
    fn fast<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        half_kernel::<H, E, false>
    }
    fn slow<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        half_kernel::<H, E, false>
    }
    fn rare<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        half_kernel::<H, E, false>
    }
    fn test<E: ElementFn<A = f32, B = f32, C = f32, D = u8>>(_: KernelVariant) -> SliceKernel {
        half_kernel::<H, E, true>
    }
}
struct HalfNextAfter<H>(PhantomData<H>);
impl<H: Half> ElementFn for HalfNextAfter<H> {
    type A = H;
    type B = H;
    type C = H;
    type D = H;
    const ARITY: usize = 2;
    fn f<const L: u8>(a: H, b: H, _: H, _: &Constants) -> H {
        a.next_after(b)
    }
}

/// Returns the kernel of a function on 16-bit floats.
pub(super) fn select<H: Half>(fun: ScalarOp, how: KernelVariant) -> Option<SliceKernel> {
    match fun {
        ScalarOp::NextAfter => Some(narrow::<HalfNextAfter<H>>(how)),
        _ => f32::kernel::<ThroughF32<H>>(fun, how),
    }
}
