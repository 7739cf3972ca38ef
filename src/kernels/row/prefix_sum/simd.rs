//! Prefix sums of float32 over whole groups, in SIMD vectors.
//!
//! They give the same bits as the portable loops, so the processor level does not affect results.

use super::GROUP_ELEMENTS;
use crate::kernels::cpu::IsaLevel;
use std::mem::MaybeUninit;

/// The minimum size of a row, in bytes, for non-temporal stores.
const MIN_STREAMING_BYTES: usize = 32 << 20;

/// Selects the function of a level. There are variants without stores, from the end, and with
/// non-temporal stores.
#[cfg(target_arch = "x86_64")]
macro_rules! choose {
    ($level:ident, $variant:expr) => {
        match $variant {
            (true, false, _) => $level::sum_groups::<false, 0>,
            (true, true, _) => $level::sum_groups::<true, 0>,
            (_, false, false) => $level::sum_groups::<false, 1>,
            (_, true, false) => $level::sum_groups::<true, 1>,
            (_, false, true) => $level::sum_groups::<false, 2>,
            (_, true, true) => $level::sum_groups::<true, 2>,
        }
    };
}

/// Returns the total of the whole groups of a block; `None` if the level has no such vectors.
///
/// With `reverse`, the sums run from the end. If `y` is given, the prefix sums are written to it,
/// continued from `before`. `y` has the length of `x`; the last argument is the size of the
/// complete row in bytes.
pub(super) fn sums(
    level: IsaLevel,
    x: &[f32],
    y: Option<&mut [MaybeUninit<f32>]>,
    before: Option<f32>,
    reverse: bool,
    row_bytes: usize,
) -> Option<f32> {
    #[cfg(target_arch = "x86_64")]
    if level > IsaLevel::Base && x.len().is_multiple_of(GROUP_ELEMENTS) && !x.is_empty() {
        let to = match y {
            Some(y) if y.len() == x.len() => y.as_mut_ptr().cast::<f32>(),
            Some(_) => return None,
            None => std::ptr::null_mut(),
        };
        let past = row_bytes >= MIN_STREAMING_BYTES && to.addr().is_multiple_of(64);
        let variant = (to.is_null(), reverse, past);
        let groups: unsafe fn(&[f32], *mut f32, f32) -> f32 =
            if level == IsaLevel::Avx512 { choose!(avx512, variant) } else { choose!(avx2, variant) };
        // −0 is the neutral element
        let before = before.unwrap_or(-0.0);
        // SAFETY: the processor has the instructions of the level; `x` consists of whole groups;
        // `y`, if given, has the same length, and is aligned to 64 bytes if the stores are
        // non-temporal (`past`).
        return Some(unsafe { groups(x, to, before) });
    }
    let _ = (level, x, y, before, reverse, row_bytes, GROUP_ELEMENTS, MIN_STREAMING_BYTES);
    None
}

/// Defines the loop of a level with these features.
#[cfg(target_arch = "x86_64")]
macro_rules! sum_groups {
    ($level:ident $features:tt) => {
        mod $level {
            use super::super::GROUP_ELEMENTS;
            use super::shifts::$level::*;
            use crate::kernels::simd_vec::$level::*;

            /// Sums the groups of a block.
            /// `STORE` is 0 for no stores, 1 for normal stores and 2 for non-temporal stores.
            ///
            /// # Safety
            /// The processor has these features, and `x` consists of whole groups. Unless `STORE`
            /// is 0, `y` points to space for `x.len()` elements; if it is 2, `y` is aligned to 64
            /// bytes.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn sum_groups<const BACK: bool, const STORE: u8>(
                x: &[f32],
                y: *mut f32,
                before: f32,
            ) -> f32 {
                let (before, mut carry) = (all(before), first_carry());
                for k in (0..x.len()).step_by(GROUP_ELEMENTS) {
                    let at = if BACK { x.len() - GROUP_ELEMENTS - k } else { k };
                    // SAFETY: the group is within `x`, which has whole groups (caller contract).
                    let mut v = unsafe { load(x.as_ptr().add(at)) };
                    if BACK {
                        v = reverse(v);
                    }
                    if STORE == 0 {
                        carry = add_total(carry, v);
                        continue;
                    }
                    v = prefix_sums(v);
                    let mut sums = add(before, add_carry(carry, v));
                    if BACK {
                        sums = reverse(sums);
                    }
                    // SAFETY: the group is within `y`, which has space for as many elements as `x`
                    // (caller contract). If `y` is aligned to 64 bytes, so is every group.
                    unsafe {
                        match STORE {
                            1 => store(y.add(at), sums),
                            _ => store_past(y.add(at), sums),
                        }
                    }
                    carry = next_carry(carry, v);
                }
                if STORE == 2 {
                    // make the non-temporal stores visible to other threads
                    std::arch::x86_64::_mm_sfence();
                }
                total(carry)
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
sum_groups!(avx512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2");
#[cfg(target_arch = "x86_64")]
sum_groups!(avx2 "avx2,fma,bmi2");

/// Shifts and sums within a vector of 16 elements. Both modules have the same functions.
#[cfg(target_arch = "x86_64")]
mod shifts {
    pub(super) mod avx512 {
        use crate::kernels::simd_vec::at_level;
        use crate::kernels::simd_vec::avx512::V;
        use std::arch::x86_64::*;

        at_level! { "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2"
            [fn reverse](v: V) -> V {
                _mm512_permutexvar_ps(_mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), v)
            }
            /// Returns the sum of each element and those before it.
            [fn prefix_sums](v: V) -> V {
                let by1 = _mm512_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
                let by2 = _mm512_setr_epi32(0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
                let by4 = _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
                let by8 = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7);
                let v = _mm512_mask_add_ps(v, 0xfffe, _mm512_permutexvar_ps(by1, v), v);
                let v = _mm512_mask_add_ps(v, 0xfffc, _mm512_permutexvar_ps(by2, v), v);
                let v = _mm512_mask_add_ps(v, 0xfff0, _mm512_permutexvar_ps(by4, v), v);
                _mm512_mask_add_ps(v, 0xff00, _mm512_permutexvar_ps(by8, v), v)
            }
            [fn first_carry]() -> V { _mm512_set1_ps(-0.0) }
            [fn add_carry](carry: V, v: V) -> V { _mm512_add_ps(carry, v) }
            /// Adds the last of the prefix sums.
            [fn next_carry](carry: V, sums: V) -> V {
                _mm512_add_ps(carry, _mm512_permutexvar_ps(_mm512_set1_epi32(15), sums))
            }
            /// Adds the sum of the elements.
            [fn add_total](carry: V, v: V) -> V { next_carry(carry, prefix_sums(v)) }
            [fn total](carry: V) -> f32 { _mm512_cvtss_f32(carry) }
        }
    }

    pub(super) mod avx2 {
        use crate::kernels::simd_vec::at_level;
        use crate::kernels::simd_vec::avx2::V;
        use std::arch::x86_64::*;

        at_level! { "avx2,fma,bmi2"
            [fn reverse](v: V) -> V {
                let [a, b] = v;
                let back = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
                [_mm256_permutevar8x32_ps(b, back), _mm256_permutevar8x32_ps(a, back)]
            }
            [fn prefix_sums](v: V) -> V {
                let [a, b] = v;
                let by1 = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
                let by2 = _mm256_setr_epi32(6, 7, 0, 1, 2, 3, 4, 5);
                let none = _mm256_set1_ps(-0.0);
                let (c, d) = (_mm256_permutevar8x32_ps(a, by1), _mm256_permutevar8x32_ps(b, by1));
                let b = _mm256_add_ps(_mm256_blend_ps::<0b1>(d, c), b);
                let a = _mm256_add_ps(_mm256_blend_ps::<0b1>(c, none), a);
                let (c, d) = (_mm256_permutevar8x32_ps(a, by2), _mm256_permutevar8x32_ps(b, by2));
                let b = _mm256_add_ps(_mm256_blend_ps::<0b11>(d, c), b);
                let a = _mm256_add_ps(_mm256_blend_ps::<0b11>(c, none), a);
                let b = _mm256_add_ps(_mm256_permute2f128_ps::<0x21>(a, b), b);
                let a = _mm256_add_ps(_mm256_permute2f128_ps::<0x02>(a, none), a);
                [a, _mm256_add_ps(a, b)]
            }
            [fn first_carry]() -> __m256 { _mm256_set1_ps(-0.0) }
            [fn add_carry](carry: __m256, v: V) -> V { [_mm256_add_ps(carry, v[0]), _mm256_add_ps(carry, v[1])] }
            [fn next_carry](carry: __m256, sums: V) -> __m256 {
                _mm256_add_ps(carry, _mm256_permutevar8x32_ps(sums[1], _mm256_set1_epi32(7)))
            }
            /// Adds the sum of the elements to the first lane, by a reduction of pairs.
            [fn add_total](carry: __m256, v: V) -> __m256 {
                let [a, b] = v;
                let s = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
                let s = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(s, s), _mm256_shuffle_ps::<0xdd>(s, s));
                let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
                let s = _mm_add_ss(s, _mm_movehdup_ps(s));
                _mm256_castps128_ps256(_mm_add_ss(_mm256_castps256_ps128(carry), s))
            }
            [fn total](carry: __m256) -> f32 { _mm256_cvtss_f32(carry) }
        }
    }
}
