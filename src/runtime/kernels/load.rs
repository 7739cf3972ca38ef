//! Kernels that bring elements together: constants, repetitions, steps, counts.

use super::Kernel;
use super::run::{Constants, fresh};
use std::mem::MaybeUninit;

/// # Safety
/// As `Kernel`, with one element at `a`.
unsafe fn splat<T: Copy>(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, _: &Constants) {
    // SAFETY: the caller's
    unsafe { fresh::<T>(d, n).fill(MaybeUninit::new(*a.cast::<T>())) }
}

/// # Safety
/// As `Kernel`, with an element at every `k[0]`-th place from `a`.
unsafe fn gather<T: Copy>(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, k: &Constants) {
    let step = k[0] as isize;
    // SAFETY: the caller's
    unsafe {
        let (d, a) = (d.cast::<T>(), a.cast::<T>());
        for i in 0..n {
            *d.add(i) = *a.offset(i as isize * step);
        }
    }
}

macro_rules! fills {
    ($($name:ident $T:ident;)*) => { $(
        unsafe fn $name(n: usize, d: *mut u8, _: *const u8, _: *const u8, _: *const u8, k: &Constants) {
            // SAFETY: the caller's
            unsafe { fresh::<$T>(d, n).fill(MaybeUninit::new(k[0].to_bits() as $T)) }
        }
    )* };
}
fills! { fill1 u8; fill2 u16; fill4 u32; fill8 u64; }
unsafe fn fill16(n: usize, d: *mut u8, _: *const u8, _: *const u8, _: *const u8, k: &Constants) {
    // SAFETY: the caller's
    unsafe { fresh::<[f64; 2]>(d, n).fill(MaybeUninit::new([k[0], k[1]])) }
}

/// One element at `a`, n times.
pub(super) fn splat_of(size: usize) -> Option<Kernel> {
    Some(match size {
        1 => splat::<u8>,
        2 => splat::<u16>,
        4 => splat::<u32>,
        8 => splat::<u64>,
        16 => splat::<[u64; 2]>,
        _ => return None,
    })
}
/// Every `k[0]`-th element from `a` on; `k[0]` is a whole number, possibly negative.
pub(super) fn gather_of(size: usize) -> Option<Kernel> {
    Some(match size {
        1 => gather::<u8>,
        2 => gather::<u16>,
        4 => gather::<u32>,
        8 => gather::<u64>,
        16 => gather::<[u64; 2]>,
        _ => return None,
    })
}
/// The element whose bits are the low ones of `k[0]` (see [`constant`](super::constant)), n times; reads nothing.
pub(super) fn fill_of(size: usize) -> Option<Kernel> {
    Some(match size {
        1 => fill1,
        2 => fill2,
        4 => fill4,
        8 => fill8,
        16 => fill16,
        _ => return None,
    })
}

#[cfg(test)]
/// The int64 numbers `*a + i·k[0]` for i in 0..n: an index of a loop. `a` is an int64.
///
/// # Safety
/// As [`Kernel`], with one element at `a`.
pub unsafe fn count(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, k: &Constants) {
    let step = k[0] as i64;
    // SAFETY: the caller's
    unsafe {
        let mut at = *a.cast::<i64>();
        for d in fresh::<i64>(d, n) {
            d.write(at);
            at = at.wrapping_add(step);
        }
    }
}
