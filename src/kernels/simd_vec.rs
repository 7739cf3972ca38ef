//! Vectors of 16 float32 elements: one of 64 bytes (AVX-512), or two of 32 bytes (AVX2).
//!
//! Both modules have the same functions.

/// Defines functions of a level with these features.
macro_rules! at_level {
    ($features:tt $($(#[$doc:meta])* [$($kind:tt)*]($($p:ident: $t:ty),*) $(-> $r:ty)? $body:block)*) => { $(
        $(#[$doc])*
        #[target_feature(enable = $features)]
        #[inline]
        pub(crate) $($kind)* ($($p: $t),*) $(-> $r)? $body
    )* };
}
pub(super) use at_level;

/// The range that contains the arguments of `exp`.
pub(super) enum Range {
    /// An unknown range: testing the arguments would cost more than handling every case.
    Any,
    /// All arguments are between −87 and 87.
    /// No power of two is then out of range, and no result is subnormal.
    Near,
    /// At least one argument is not between −87 and 87.
    Far,
}

pub(super) mod avx512 {
    use super::Range;
    use std::arch::x86_64::*;

    /// A vector of 16 elements.
    pub(in crate::kernels) type V = __m512;
    /// A mask of the first elements of a vector.
    pub(in crate::kernels) type First = __mmask16;
    /// A record of the lanes in which a NaN was found.
    pub(in crate::kernels) type Nans = __mmask16;

    at_level! { "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2"
        [fn all](x: f32) -> V { _mm512_set1_ps(x) }
        /// Loads a vector.
        ///
        /// # Safety
        /// `p` points to 16 elements.
        [unsafe fn load](p: *const f32) -> V {
            // SAFETY: `p` points to 16 elements (caller contract).
            unsafe { _mm512_loadu_ps(p) }
        }
        /// Stores a vector.
        ///
        /// # Safety
        /// `p` points to space for 16 elements.
        [unsafe fn store](p: *mut f32, x: V) {
            // SAFETY: `p` points to space for 16 elements (caller contract).
            unsafe { _mm512_storeu_ps(p, x) }
        }
        /// Stores a vector with a non-temporal store.
        ///
        /// # Safety
        /// `p` points to space for 16 elements, and is aligned to 64 bytes.
        [unsafe fn store_past](p: *mut f32, x: V) {
            // SAFETY: `p` is aligned and points to space for 16 elements (caller contract).
            unsafe { _mm512_stream_ps(p, x) }
        }
        /// Returns the mask of the first `n` elements, for `n` from 1 to 16.
        [fn first](n: usize) -> First { u16::MAX >> (16 - n) }
        /// Loads the elements in the mask; the others are 0.
        ///
        /// # Safety
        /// The elements in the mask are readable.
        [unsafe fn load_some](p: *const f32, some: First) -> V {
            // SAFETY: the elements in the mask are readable (caller contract).
            unsafe { _mm512_maskz_loadu_ps(some, p) }
        }
        /// Loads the elements in the mask; the others are those of `x`.
        ///
        /// # Safety
        /// The elements in the mask are readable.
        [unsafe fn load_into](x: V, p: *const f32, some: First) -> V {
            // SAFETY: the elements in the mask are readable (caller contract).
            unsafe { _mm512_mask_loadu_ps(x, some, p) }
        }
        /// Stores the elements in the mask.
        ///
        /// # Safety
        /// The elements in the mask are writable.
        [unsafe fn store_some](p: *mut f32, some: First, x: V) {
            // SAFETY: the elements in the mask are writable (caller contract).
            unsafe { _mm512_mask_storeu_ps(p, some, x) }
        }
        [fn add](x: V, y: V) -> V { _mm512_add_ps(x, y) }
        /// Adds the elements in the mask; the others remain those of `x`.
        [fn add_some](x: V, y: V, some: First) -> V { _mm512_mask_add_ps(x, some, x, y) }
        [fn sub](x: V, y: V) -> V { _mm512_sub_ps(x, y) }
        [fn mul](x: V, y: V) -> V { _mm512_mul_ps(x, y) }
        /// Returns `x·y + z`, rounded once.
        [fn fma](x: V, y: V, z: V) -> V { _mm512_fmadd_ps(x, y, z) }
        /// Returns the maximum, which is `y` if either element is NaN.
        [fn max](x: V, y: V) -> V { _mm512_max_ps(x, y) }
        /// Returns the minimum, which is `y` if either element is NaN.
        [fn min](x: V, y: V) -> V { _mm512_min_ps(x, y) }
        /// Returns an empty record of NaNs.
        [fn no_nans]() -> Nans { 0 }
        [fn nans](found: Nans, x: V) -> Nans { found | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x) }
        [fn any](found: Nans) -> bool { found != 0 }
        /// Exchanges each element with the element 8 positions away.
        [fn swap8](x: V) -> V { _mm512_shuffle_f32x4::<0b01_00_11_10>(x, x) }
        [fn swap4](x: V) -> V { _mm512_shuffle_f32x4::<0b10_11_00_01>(x, x) }
        [fn swap2](x: V) -> V { _mm512_permute_ps::<0b01_00_11_10>(x) }
        [fn swap1](x: V) -> V { _mm512_permute_ps::<0b10_11_00_01>(x) }
        /// Returns the first element.
        [fn front](x: V) -> f32 { _mm512_cvtss_f32(x) }
        [fn range<const N: usize>](_x: &[V; N]) -> Range { Range::Any }
        /// Computes [`scale`] if powers and results are in range.
        [fn scale_near](y: V, _t: V, n: V) -> V { _mm512_scalef_ps(y, n) }
        /// Returns `y·2ⁿ` for an integer `n` of at most three decimal digits.
        /// The result is rounded once, even if it is subnormal.
        ///
        /// `t` is `n + ROUNDING_BIAS`.
        [fn scale](y: V, _t: V, n: V) -> V { _mm512_scalef_ps(y, n) }
    }
}

pub(super) mod avx2 {
    use super::Range;
    use crate::kernels::math32::ROUNDING_BIAS;
    use std::arch::x86_64::*;

    pub(in crate::kernels) type V = [__m256; 2];
    pub(in crate::kernels) type First = [__m256i; 2];
    pub(in crate::kernels) type Nans = __m256;

    at_level! { "avx2,fma,bmi2"
        [fn all](x: f32) -> V { [_mm256_set1_ps(x); 2] }
        /// Loads a vector.
        ///
        /// # Safety
        /// `p` points to 16 elements.
        [unsafe fn load](p: *const f32) -> V {
            // SAFETY: `p` points to 16 elements (caller contract).
            unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
        }
        /// Stores a vector.
        ///
        /// # Safety
        /// `p` points to space for 16 elements.
        [unsafe fn store](p: *mut f32, x: V) {
            // SAFETY: `p` points to space for 16 elements (caller contract).
            unsafe {
                _mm256_storeu_ps(p, x[0]);
                _mm256_storeu_ps(p.add(8), x[1]);
            }
        }
        /// Stores a vector with non-temporal stores.
        ///
        /// # Safety
        /// `p` points to space for 16 elements, and is aligned to 32 bytes.
        [unsafe fn store_past](p: *mut f32, x: V) {
            // SAFETY: `p` is aligned and points to space for 16 elements (caller contract).
            unsafe {
                _mm256_stream_ps(p, x[0]);
                _mm256_stream_ps(p.add(8), x[1]);
            }
        }
        [fn first](n: usize) -> First {
            let (n, places) = (_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
            [
                _mm256_cmpgt_epi32(n, places),
                _mm256_cmpgt_epi32(n, _mm256_add_epi32(places, _mm256_set1_epi32(8))),
            ]
        }
        /// Loads the elements in the mask; the others are 0.
        ///
        /// # Safety
        /// The elements in the mask are readable.
        [unsafe fn load_some](p: *const f32, some: First) -> V {
            // SAFETY: the elements in the mask are readable (caller contract); the others are not
            // read.
            unsafe { [_mm256_maskload_ps(p, some[0]), _mm256_maskload_ps(p.wrapping_add(8), some[1])] }
        }
        /// Loads the elements in the mask; the others are those of `x`.
        ///
        /// # Safety
        /// The elements in the mask are readable.
        [unsafe fn load_into](x: V, p: *const f32, some: First) -> V {
            // SAFETY: the elements in the mask are readable (caller contract).
            let y = unsafe { load_some(p, some) };
            choose(some, y, x)
        }
        /// Stores the elements in the mask.
        ///
        /// # Safety
        /// The elements in the mask are writable.
        [unsafe fn store_some](p: *mut f32, some: First, x: V) {
            // SAFETY: the elements in the mask are writable (caller contract); the others are not
            // written.
            unsafe {
                _mm256_maskstore_ps(p, some[0], x[0]);
                _mm256_maskstore_ps(p.wrapping_add(8), some[1], x[1]);
            }
        }
        /// Returns the elements of `x` in the mask, and those of `y` elsewhere.
        [fn choose](some: First, x: V, y: V) -> V {
            let one = |some, x, y| _mm256_blendv_ps(y, x, _mm256_castsi256_ps(some));
            [one(some[0], x[0], y[0]), one(some[1], x[1], y[1])]
        }
        [fn add](x: V, y: V) -> V { [_mm256_add_ps(x[0], y[0]), _mm256_add_ps(x[1], y[1])] }
        [fn add_some](x: V, y: V, some: First) -> V { choose(some, add(x, y), x) }
        [fn sub](x: V, y: V) -> V { [_mm256_sub_ps(x[0], y[0]), _mm256_sub_ps(x[1], y[1])] }
        [fn mul](x: V, y: V) -> V { [_mm256_mul_ps(x[0], y[0]), _mm256_mul_ps(x[1], y[1])] }
        [fn fma](x: V, y: V, z: V) -> V {
            [_mm256_fmadd_ps(x[0], y[0], z[0]), _mm256_fmadd_ps(x[1], y[1], z[1])]
        }
        [fn max](x: V, y: V) -> V { [_mm256_max_ps(x[0], y[0]), _mm256_max_ps(x[1], y[1])] }
        [fn min](x: V, y: V) -> V { [_mm256_min_ps(x[0], y[0]), _mm256_min_ps(x[1], y[1])] }
        [fn no_nans]() -> Nans { _mm256_setzero_ps() }
        [fn nans](found: Nans, x: V) -> Nans {
            // one comparison finds a NaN in either half
            _mm256_or_ps(found, _mm256_cmp_ps::<_CMP_UNORD_Q>(x[0], x[1]))
        }
        [fn any](found: Nans) -> bool { _mm256_movemask_ps(found) != 0 }
        [fn swap8](x: V) -> V { [x[1], x[0]] }
        [fn swap4](x: V) -> V {
            [_mm256_permute2f128_ps::<1>(x[0], x[0]), _mm256_permute2f128_ps::<1>(x[1], x[1])]
        }
        [fn swap2](x: V) -> V {
            [_mm256_permute_ps::<0b01_00_11_10>(x[0]), _mm256_permute_ps::<0b01_00_11_10>(x[1])]
        }
        [fn swap1](x: V) -> V {
            [_mm256_permute_ps::<0b10_11_00_01>(x[0]), _mm256_permute_ps::<0b10_11_00_01>(x[1])]
        }
        [fn front](x: V) -> f32 { _mm256_cvtss_f32(x[0]) }
        [fn range<const N: usize>](x: &[V; N]) -> Range {
            let size = _mm256_set1_epi32(i32::MAX);
            let mut most = _mm256_setzero_si256();
            for x in x.as_flattened() {
                // NaN has the largest bits of all magnitudes
                most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(*x), size));
            }
            // negative if the magnitude of an element exceeds 87
            let room = _mm256_sub_epi32(_mm256_set1_epi32(87f32.to_bits() as i32), most);
            match _mm256_movemask_ps(_mm256_castsi256_ps(room)) {
                0 => Range::Near,
                _ => Range::Far,
            }
        }
        [fn scale_near](y: V, t: V, _n: V) -> V {
            // shift the bits of `n` into the exponent, and those of ROUNDING_BIAS out
            let one = |y, t| {
                let n = _mm256_slli_epi32::<23>(_mm256_castps_si256(t));
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), n))
            };
            [one(y[0], t[0]), one(y[1], t[1])]
        }
        [fn scale](y: V, t: V, _n: V) -> V {
            let one = |y, t| {
                let n = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(ROUNDING_BIAS.to_bits() as i32));
                let half = _mm256_srai_epi32::<1>(n);
                let two = |n| {
                    let unit = _mm256_set1_epi32(1f32.to_bits() as i32);
                    _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32::<23>(n), unit))
                };
                _mm256_mul_ps(_mm256_mul_ps(y, two(half)), two(_mm256_sub_epi32(n, half)))
            };
            [one(y[0], t[0]), one(y[1], t[1])]
        }
    }
}
