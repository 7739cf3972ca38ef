//! Copies of long byte ranges.

use super::{CACHE_LINE_BYTES, fence, int, variant};
use std::mem::MaybeUninit;
use std::ops::Range;

/// The sizes, in bytes, that a loop of this crate copies.
///
/// For these sizes the C library may use the processor's string instruction; larger sizes it copies
/// with its own vector loops.
const OWN_LOOP_BYTES: Range<usize> = if cfg!(miri) { 64..1 << 20 } else { 2048..2 << 20 };

/// Copies `bytes` bytes; the flag selects stores that bypass the caches.
///
/// Sizes in `OWN_LOOP_BYTES` are copied by a loop of this crate. The string instruction that the C
/// library may use is 30x slower on some processors (Zen 3) if the destination's offset in its page
/// is slightly larger than the source's.
///
/// # Safety
/// `from` points to `bytes` readable bytes, `to` to `bytes` writable ones, and the two do not
/// overlap.
pub unsafe fn copy(bytes: usize, to: *mut u8, from: *const u8, bypass_cache: bool) {
    let ours = (bypass_cache || OWN_LOOP_BYTES.contains(&bytes)) && cfg!(target_arch = "x86_64");
    // non-temporal stores write whole cache lines, so the destination is aligned first
    let head = if bypass_cache { to.align_offset(CACHE_LINE_BYTES).min(bytes) } else { 0 };
    // SAFETY: both ranges have `bytes` bytes and do not overlap (caller contract); `head` is at
    // most `bytes`.
    unsafe {
        let Some(rest) = int::copy(1, variant(bypass_cache)).filter(|_| ours) else {
            return std::ptr::copy_nonoverlapping(from, to, bytes);
        };
        std::ptr::copy_nonoverlapping(from, to, head);
        let (to, from) = (to.add(head), from.add(head));
        rest(bytes - head, to, from, from, from, &[0.0; 4]);
    }
    if bypass_cache {
        fence();
    }
}

/// Copies a slice into memory of the same length, as [`copy`] does.
pub fn copy_slice<T: Copy>(to: &mut [MaybeUninit<T>], from: &[T], bypass_cache: bool) {
    assert_eq!(to.len(), from.len(), "as many elements as there is space for");
    // SAFETY: both slices have this number of bytes; `to` is a mutable borrow, so they do not
    // overlap.
    unsafe { copy(size_of_val(from), to.as_mut_ptr().cast(), from.as_ptr().cast(), bypass_cache) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_wherever_they_are() {
        const LONG_BYTES: usize = OWN_LOOP_BYTES.start;
        let from: Vec<u8> = (0..3 * LONG_BYTES).map(|k| (k % 251) as u8).collect();
        for (at, n) in [
            (0, 0),
            (1, 3),
            (0, LONG_BYTES),
            (5, LONG_BYTES + 1),
            (64, 2 * LONG_BYTES - 7),
            (3, LONG_BYTES - 1),
        ] {
            for past in [false, true] {
                let mut to = vec![255; 3 * LONG_BYTES];
                // SAFETY: both vectors have `n` bytes from these offsets on.
                unsafe { copy(n, to.as_mut_ptr().add(at), from[1..].as_ptr(), past) };
                let kept = |part: &[u8]| part.iter().all(|x| *x == 255);
                assert!(
                    to[at..at + n] == from[1..1 + n] && kept(&to[..at]) && kept(&to[at + n..]),
                    "{at} {n}"
                );
            }
        }
    }
}
