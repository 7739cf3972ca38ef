//! Functions on 16-bit floats, through float32.

use super::SliceKernel;
use super::elementwise::{Constants, ElementFn, KernelVariant, narrow};
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

/// The number of 16-bit floats that are widened at a time.
pub(super) const CHUNK_ELEMENTS: usize = 128;

/// Runs a float32 function on 16-bit floats, chunk by chunk.
///
/// `store` receives the results of a chunk, the destination, and the index of the first one.
///
/// # Safety
/// The caller upholds the contract of `SliceKernel`, for operands of type `H` and a result of type
/// `H`, or of bool bytes if `E` returns them.
#[inline(always)]
unsafe fn through_f32<H: Half, E: ElementFn<A = f32, B = f32, C = f32>, const L: u8>(
    n: usize,
    d: *mut u8,
    operands: [*const u8; 3],
    k: &Constants,
    store: impl Fn(&[E::D], *mut u8, usize),
) where
    E::D: Default,
{
    let mut wide = [[0f32; CHUNK_ELEMENTS]; 3];
    let mut made = [E::D::default(); CHUNK_ELEMENTS];
    for at in (0..n).step_by(CHUNK_ELEMENTS) {
        let m = (n - at).min(CHUNK_ELEMENTS);
        for (to, from) in wide.iter_mut().zip(operands).take(E::ARITY) {
            // SAFETY: each operand that is read has `n` elements (caller contract).
            let from = unsafe { std::slice::from_raw_parts(from.cast::<H>().add(at), m) };
            H::widen(from, &mut to[..m]);
        }
        for i in 0..m {
            made[i] = E::f::<L>(wide[0][i], wide[1][i], wide[2][i], k);
            if E::HAS_HARD_INPUTS && E::hard(wide[0][i]) {
                made[i] = E::exact(wide[0][i]).unwrap_or(made[i]);
            }
        }
        store(&made[..m], d, at);
    }
}
/// Runs a function of 16-bit floats whose result is a float.
///
/// # Safety
/// The caller upholds the contract of `through_f32`.
unsafe fn float_kernel<H: Half, E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the operands and `d` have `n` elements of type `H` (caller contract).
    unsafe {
        through_f32::<H, E, 0>(n, d, [a, b, c], k, |made, d, at| {
            H::round_to(made, d.add(at * size_of::<H>()));
        })
    }
}
/// Runs a function of 16-bit floats whose result is a bool.
///
/// # Safety
/// The caller upholds the contract of `through_f32`.
unsafe fn bool_kernel<H: Half, E: ElementFn<A = f32, B = f32, C = f32, D = u8>>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    k: &Constants,
) {
    // SAFETY: the operands have `n` elements of type `H`, and `d` has space for `n` bytes (caller
    // contract).
    unsafe {
        through_f32::<H, E, 0>(n, d, [a, b, c], k, |made, d, at| {
            std::ptr::copy_nonoverlapping(made.as_ptr(), d.add(at), made.len());
        })
    }
}
struct ThroughF32<H>(PhantomData<H>);
impl<H: Half> KernelMaker<f32> for ThroughF32<H> {
    fn fast<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        float_kernel::<H, E>
    }
    fn slow<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        float_kernel::<H, E>
    }
    fn rare<E: ElementFn<A = f32, B = f32, C = f32, D = f32>>(_: KernelVariant) -> SliceKernel {
        float_kernel::<H, E>
    }
    fn test<E: ElementFn<A = f32, B = f32, C = f32, D = u8>>(_: KernelVariant) -> SliceKernel {
        bool_kernel::<H, E>
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
