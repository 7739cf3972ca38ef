//! Copies of many bytes.

use super::{LINE, fence, how, int};
use std::ops::Range;

/// So many bytes the C library may leave to the processor's own instruction for strings; more it copies by loops of its own.
const STRING: Range<usize> = if cfg!(miri) { 64..1 << 20 } else { 2048..2 << 20 };

/// Copies so many bytes; if `past`, past the caches.
///
/// Many bytes are copied by a loop of ours: where a byte's place is a few bytes behind that of its source, each in its page, the instruction
/// for strings of some processors (Zen 3) takes 30 times as long.
///
/// # Safety
/// So many bytes are readable and writable, and do not overlap.
pub unsafe fn copy(bytes: usize, to: *mut u8, from: *const u8, past: bool) {
    let ours = (past || STRING.contains(&bytes)) && cfg!(target_arch = "x86_64");
    // stores past the caches are of whole lines
    let head = if past { to.align_offset(LINE).min(bytes) } else { 0 };
    // SAFETY: the caller's; the head is within the bytes
    unsafe {
        let Some(rest) = int::copy(1, how(past)).filter(|_| ours) else {
            return std::ptr::copy_nonoverlapping(from, to, bytes);
        };
        std::ptr::copy_nonoverlapping(from, to, head);
        let (to, from) = (to.add(head), from.add(head));
        rest(bytes - head, to, from, from, from, &[0.0; 4]);
    }
    if past {
        fence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_wherever_they_are() {
        const MANY: usize = STRING.start;
        let from: Vec<u8> = (0..3 * MANY).map(|k| (k % 251) as u8).collect();
        for (at, n) in [(0, 0), (1, 3), (0, MANY), (5, MANY + 1), (64, 2 * MANY - 7), (3, MANY - 1)] {
            for past in [false, true] {
                let mut to = vec![255; 3 * MANY];
                // SAFETY: both have so many bytes
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
