//! Prefix sums of float32 over whole groups, in SIMD vectors of 16 or 8 lanes.
//!
//! They give the same bits as the portable loops, so the processor level does not affect results.

use super::GROUP_ELEMENTS;
use std::mem::MaybeUninit;

/// The minimum size of a row, in bytes, for non-temporal stores.
const MIN_STREAMING_BYTES: usize = 32 << 20;

/// Selects the function for a kind of vector.
/// There are variants without stores, from the end, and with non-temporal stores.
#[cfg(all(target_arch = "x86_64", not(miri)))]
macro_rules! choose {
    ($registers:ident, $none:expr, $reverse:expr, $past:expr) => {{
        let groups: unsafe fn(&[f32], *mut f32, f32) -> f32 = match ($none, $reverse, $past) {
            (true, false, _) => $registers::groups::<false, 0>,
            (true, true, _) => $registers::groups::<true, 0>,
            (_, false, false) => $registers::groups::<false, 1>,
            (_, true, false) => $registers::groups::<true, 1>,
            (_, false, true) => $registers::groups::<false, 2>,
            (_, true, true) => $registers::groups::<true, 2>,
        };
        groups
    }};
}

/// Returns the total of the whole groups of a block; `None` if the processor has no such vectors.
///
/// With `reverse`, the sums run from the end. If `y` is given, the prefix sums are written to it,
/// continued from `before`. `y` has the length of `x`; the last argument is the size of the
/// complete row in bytes.
pub(super) fn sums(
    x: &[f32],
    y: Option<&mut [MaybeUninit<f32>]>,
    before: Option<f32>,
    reverse: bool,
    row_bytes: usize,
) -> Option<f32> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if x.len().is_multiple_of(GROUP_ELEMENTS) && !x.is_empty() {
        let to = match y {
            Some(y) if y.len() == x.len() => y.as_mut_ptr().cast::<f32>(),
            Some(_) => return None,
            None => std::ptr::null_mut(),
        };
        let past = row_bytes >= MIN_STREAMING_BYTES && to.addr().is_multiple_of(64);
        let groups = if is_x86_feature_detected!("avx512f") {
            choose!(avx512, to.is_null(), reverse, past)
        } else if is_x86_feature_detected!("avx2") {
            choose!(avx2, to.is_null(), reverse, past)
        } else {
            return None;
        };
        // −0 is the neutral element
        let before = before.unwrap_or(-0.0);
        // SAFETY: the processor has these vectors; `x` consists of whole groups; `y`, if given, has
        // the same length, and is aligned to 64 bytes if the stores are non-temporal (`past`).
        return Some(unsafe { groups(x, to, before) });
    }
    let _ = (x, y, before, reverse, row_bytes, GROUP_ELEMENTS, MIN_STREAMING_BYTES);
    None
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512 {
    use super::GROUP_ELEMENTS;
    use std::arch::x86_64::*;

    /// Sums the groups of a block.
    /// `STORE` is 0 for no stores, 1 for normal stores and 2 for non-temporal stores.
    ///
    /// # Safety
    /// The processor has AVX-512 F, and `x` consists of whole groups. Unless `STORE` is 0, `y`
    /// points to space for `x.len()` elements; if `STORE` is 2, it is aligned to 64 bytes.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn groups<const BACK: bool, const STORE: u8>(
        x: &[f32],
        y: *mut f32,
        before: f32,
    ) -> f32 {
        let back = _mm512_setr_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        let by1 = _mm512_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14);
        let by2 = _mm512_setr_epi32(0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);
        let by4 = _mm512_setr_epi32(0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
        let by8 = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7);
        let last = _mm512_set1_epi32(15);
        let before = _mm512_set1_ps(before);
        let mut carry = _mm512_set1_ps(-0.0);
        for k in (0..x.len()).step_by(GROUP_ELEMENTS) {
            let at = if BACK { x.len() - GROUP_ELEMENTS - k } else { k };
            // SAFETY: the group is within `x`, which consists of whole groups (caller contract).
            let mut v = unsafe { _mm512_loadu_ps(x.as_ptr().add(at)) };
            if BACK {
                v = _mm512_permutexvar_ps(back, v);
            }
            v = _mm512_mask_add_ps(v, 0xfffe, _mm512_permutexvar_ps(by1, v), v);
            v = _mm512_mask_add_ps(v, 0xfffc, _mm512_permutexvar_ps(by2, v), v);
            v = _mm512_mask_add_ps(v, 0xfff0, _mm512_permutexvar_ps(by4, v), v);
            v = _mm512_mask_add_ps(v, 0xff00, _mm512_permutexvar_ps(by8, v), v);
            let total = _mm512_permutexvar_ps(last, v);
            if STORE > 0 {
                let mut sums = _mm512_add_ps(before, _mm512_add_ps(carry, v));
                if BACK {
                    sums = _mm512_permutexvar_ps(back, sums);
                }
                // SAFETY: the group is within `y`, which has space for as many elements as `x`
                // (caller contract). For `STORE` 2, `y` is aligned to 64 bytes (caller contract),
                // and so is every group, because a group has 64 bytes.
                unsafe {
                    match STORE {
                        1 => _mm512_storeu_ps(y.add(at), sums),
                        _ => _mm512_stream_ps(y.add(at), sums),
                    }
                }
            }
            carry = _mm512_add_ps(carry, total);
        }
        if STORE == 2 {
            // make the non-temporal stores visible to other threads
            _mm_sfence();
        }
        _mm512_cvtss_f32(carry)
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2 {
    use super::GROUP_ELEMENTS;
    use std::arch::x86_64::*;

    /// Sums the groups of a block like [`avx512::groups`](super::avx512::groups).
    /// Each group is two vectors.
    ///
    /// # Safety
    /// The processor has AVX2, and the caller upholds the other conditions of `avx512::groups`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn groups<const BACK: bool, const STORE: u8>(
        x: &[f32],
        y: *mut f32,
        before: f32,
    ) -> f32 {
        let back = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
        let by1 = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
        let by2 = _mm256_setr_epi32(6, 7, 0, 1, 2, 3, 4, 5);
        let last = _mm256_set1_epi32(7);
        let none = _mm256_set1_ps(-0.0);
        let before = _mm256_set1_ps(before);
        let mut carry = none;
        for k in (0..x.len()).step_by(GROUP_ELEMENTS) {
            let at = if BACK { x.len() - GROUP_ELEMENTS - k } else { k };
            // SAFETY: the group is within `x`, which consists of whole groups (caller contract).
            let (mut a, mut b) =
                unsafe { (_mm256_loadu_ps(x.as_ptr().add(at)), _mm256_loadu_ps(x.as_ptr().add(at + 8))) };
            if BACK {
                (a, b) = (_mm256_permutevar8x32_ps(b, back), _mm256_permutevar8x32_ps(a, back));
            }
            if STORE == 0 {
                // only the total is needed: a reduction of pairs, without prefix sums
                let s = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b));
                let s = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(s, s), _mm256_shuffle_ps::<0xdd>(s, s));
                let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
                let s = _mm_add_ss(s, _mm_movehdup_ps(s));
                carry = _mm256_castps128_ps256(_mm_add_ss(_mm256_castps256_ps128(carry), s));
                continue;
            }
            let (c, d) = (_mm256_permutevar8x32_ps(a, by1), _mm256_permutevar8x32_ps(b, by1));
            b = _mm256_add_ps(_mm256_blend_ps::<0b1>(d, c), b);
            a = _mm256_add_ps(_mm256_blend_ps::<0b1>(c, none), a);
            let (c, d) = (_mm256_permutevar8x32_ps(a, by2), _mm256_permutevar8x32_ps(b, by2));
            b = _mm256_add_ps(_mm256_blend_ps::<0b11>(d, c), b);
            a = _mm256_add_ps(_mm256_blend_ps::<0b11>(c, none), a);
            b = _mm256_add_ps(_mm256_permute2f128_ps::<0x21>(a, b), b);
            a = _mm256_add_ps(_mm256_permute2f128_ps::<0x02>(a, none), a);
            b = _mm256_add_ps(a, b);
            let total = _mm256_permutevar8x32_ps(b, last);
            let (mut c, mut d) = (
                _mm256_add_ps(before, _mm256_add_ps(carry, a)),
                _mm256_add_ps(before, _mm256_add_ps(carry, b)),
            );
            if BACK {
                (c, d) = (_mm256_permutevar8x32_ps(d, back), _mm256_permutevar8x32_ps(c, back));
            }
            // SAFETY: the group is within `y`, which has space for as many elements as `x` (caller
            // contract).
            unsafe {
                match STORE {
                    1 => {
                        _mm256_storeu_ps(y.add(at), c);
                        _mm256_storeu_ps(y.add(at + 8), d);
                    }
                    _ => {
                        _mm256_stream_ps(y.add(at), c);
                        _mm256_stream_ps(y.add(at + 8), d);
                    }
                }
            }
            carry = _mm256_add_ps(carry, total);
        }
        if STORE == 2 {
            // make the non-temporal stores visible to other threads
            _mm_sfence();
        }
        _mm256_cvtss_f32(carry)
    }
}
