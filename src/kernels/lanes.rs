//! Vectors of float32 and float64 elements under one trait, for kernels that are generic over both.

use std::arch::x86_64::*;

/// A vector of a level.
///
/// The functions are inlined into functions that are compiled for the level.
///
/// # Safety
/// All functions: the processor has the level of the vector.
pub(super) trait Lanes: Copy {
    /// The element type.
    type Element: Copy
        + Default
        + std::ops::Add<Output = Self::Element>
        + std::ops::Mul<Output = Self::Element>;
    /// The number of elements.
    const LEN: usize;
    /// Returns zeros.
    unsafe fn zero() -> Self;
    /// Loads a vector from memory that has `LEN` elements.
    unsafe fn load(p: *const Self::Element) -> Self;
    /// Stores a vector to memory that has space for `LEN` elements.
    unsafe fn store(self, p: *mut Self::Element);
    /// Returns a vector of equal elements.
    unsafe fn splat(x: Self::Element) -> Self;
    /// Returns `self·b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// Returns the sum.
    unsafe fn add(self, b: Self) -> Self;
    /// Returns the product.
    unsafe fn mul(self, b: Self) -> Self;
}

macro_rules! lanes {
    ($($V:ident($T:ident, $n:literal): $zero:ident $load:ident $store:ident $set:ident $fma:ident $add:ident $mul:ident;)*) => { $(
        impl Lanes for $V {
            type Element = $T;
            const LEN: usize = $n;
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the processor has the level (caller contract of each function).
                unsafe { $zero() }
            }
            #[inline(always)]
            unsafe fn load(p: *const $T) -> Self {
                // SAFETY: as above, and `p` points to `LEN` elements (caller contract).
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $T) {
                // SAFETY: as above, and `p` points to space for `LEN` elements (caller contract).
                unsafe { $store(p, self) }
            }
            #[inline(always)]
            unsafe fn splat(x: $T) -> Self {
                // SAFETY: the processor has the level (caller contract).
                unsafe { $set(x) }
            }
            #[inline(always)]
            unsafe fn fma(self, b: Self, c: Self) -> Self {
                // SAFETY: the processor has the level (caller contract).
                unsafe { $fma(self, b, c) }
            }
            #[inline(always)]
            unsafe fn add(self, b: Self) -> Self {
                // SAFETY: the processor has the level (caller contract).
                unsafe { $add(self, b) }
            }
            #[inline(always)]
            unsafe fn mul(self, b: Self) -> Self {
                // SAFETY: the processor has the level (caller contract).
                unsafe { $mul(self, b) }
            }
        }
    )* };
}
lanes! {
    __m512(f32, 16): _mm512_setzero_ps _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_fmadd_ps _mm512_add_ps _mm512_mul_ps;
    __m512d(f64, 8): _mm512_setzero_pd _mm512_loadu_pd _mm512_storeu_pd _mm512_set1_pd _mm512_fmadd_pd _mm512_add_pd _mm512_mul_pd;
    __m256(f32, 8): _mm256_setzero_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_fmadd_ps _mm256_add_ps _mm256_mul_ps;
    __m256d(f64, 4): _mm256_setzero_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_set1_pd _mm256_fmadd_pd _mm256_add_pd _mm256_mul_pd;
}

/// The vectors of AVX-512.
pub(super) mod avx512_lanes {
    pub(in crate::kernels) use std::arch::x86_64::{__m512 as F32, __m512d as F64};
}
/// The vectors of AVX2.
pub(super) mod avx2_lanes {
    pub(in crate::kernels) use std::arch::x86_64::{__m256 as F32, __m256d as F64};
}
