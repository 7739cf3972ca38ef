//! Sums of float32 that run along whole groups, in registers of 16 lanes where the processor has them. They are those of the portable loops,
//! bit for bit, so that no level of processors matters.

use super::GROUP;
use std::mem::MaybeUninit;

/// From this many bytes on results go past the caches.
const PAST: usize = 32 << 20;

/// What whole groups of a block add up to, from the end with `reverse`; nothing where there are no such registers. Their running sums, behind
/// what came before the block, are written to `y`, which is as long, of a line of so many bytes.
pub(super) fn sums(
    x: &[f32],
    y: Option<&mut [MaybeUninit<f32>]>,
    before: Option<f32>,
    reverse: bool,
    line: usize,
) -> Option<f32> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if is_x86_feature_detected!("avx512f") && x.len().is_multiple_of(GROUP) && !x.is_empty() {
        let to = match y {
            Some(y) if y.len() == x.len() => y.as_mut_ptr().cast::<f32>(),
            Some(_) => return None,
            None => std::ptr::null_mut(),
        };
        let past = line >= PAST && to.addr().is_multiple_of(64);
        // −0 changes nothing that it is added to
        let before = before.unwrap_or(-0.0);
        // SAFETY: the processor has these registers; x has whole groups, and y as many elements, if there is one
        return Some(unsafe {
            match (to.is_null(), reverse, past) {
                (true, false, _) => avx512::groups::<false, 0>(x, to, before),
                (true, true, _) => avx512::groups::<true, 0>(x, to, before),
                (_, false, false) => avx512::groups::<false, 1>(x, to, before),
                (_, true, false) => avx512::groups::<true, 1>(x, to, before),
                (_, false, true) => avx512::groups::<false, 2>(x, to, before),
                (_, true, true) => avx512::groups::<true, 2>(x, to, before),
            }
        });
    }
    let _ = (x, y, before, reverse, line, GROUP, PAST);
    None
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512 {
    use super::GROUP;
    use std::arch::x86_64::*;

    /// `STORE`: 0 not at all, 1 as usual, 2 past the caches.
    ///
    /// # Safety
    /// The processor has AVX-512 F. x has whole groups. Unless `STORE` is 0, y has room for as many elements, and with 2 begins at a multiple of
    /// 64 bytes.
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
        for k in (0..x.len()).step_by(GROUP) {
            let at = if BACK { x.len() - GROUP - k } else { k };
            // SAFETY: the group is in x
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
                // SAFETY: the caller's: the group is in y
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
            // others see what went past the caches
            _mm_sfence();
        }
        _mm512_cvtss_f32(carry)
    }
}
