//! Kernels that fill a buffer: constants, broadcasts, strided reads and counters.

use super::elementwise::{Constants, uninit_slice};
use super::{SliceKernel, TransposeBlock};
use std::mem::MaybeUninit;

/// Repeats the element at `a`.
///
/// # Safety
/// The caller upholds the contract of `SliceKernel`, with a single element at `a`.
unsafe fn splat<T: Copy>(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, _: &Constants) {
    // SAFETY: `a` points to an element, and `d` to space for `n` (caller contract).
    unsafe { uninit_slice::<T>(d, n).fill(MaybeUninit::new(*a.cast::<T>())) }
}

/// Reads every `k[0]`-th element from `a` on.
///
/// # Safety
/// The caller upholds the contract of `SliceKernel`, where operand `a` has `n` elements that are
/// `k[0]` elements apart.
unsafe fn gather<T: Copy>(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, k: &Constants) {
    let step = k[0] as isize;
    // SAFETY: element `i·k[0]` from `a` on is readable for each `i < n`, and `d` has space for `n`
    // (caller contract).
    unsafe {
        let (d, a) = (d.cast::<T>(), a.cast::<T>());
        for i in 0..n {
            *d.add(i) = *a.offset(i as isize * step);
        }
    }
}

/// The number of columns before it is read that an operand of [`transpose`] is prefetched.
const PREFETCH_COLUMNS: usize = 16;
/// The number of rows that are copied together.
const STRIP_ROWS: usize = 8;

/// Copies a matrix of contiguous columns into contiguous rows.
///
/// # Safety
/// The caller upholds the contract of [`TransposeBlock`].
unsafe fn transpose<T: Copy>(
    (rows, columns): (usize, usize),
    d: *mut u8,
    row_bytes: usize,
    a: *const u8,
    step: isize,
) {
    for j in 0..columns {
        let at = |j: usize| a.wrapping_offset(j as isize * step);
        super::gather::prefetch(at(j + PREFETCH_COLUMNS), rows * size_of::<T>());
        let (from, to) = (at(j).cast::<T>(), d.cast::<T>().wrapping_add(j));
        let whole = rows / STRIP_ROWS * STRIP_ROWS;
        let put = |i: usize, x: T| {
            // SAFETY: row `i` has `columns` elements (caller contract).
            unsafe { to.byte_add(i * row_bytes).write(x) }
        };
        // SAFETY: column `j` has `rows` elements (caller contract).
        unsafe {
            for i in (0..whole).step_by(STRIP_ROWS) {
                let strip = from.add(i).cast::<[T; STRIP_ROWS]>().read();
                for (k, x) in strip.into_iter().enumerate() {
                    put(i + k, x);
                }
            }
            for i in whole..rows {
                put(i, from.add(i).read());
            }
        }
    }
}

macro_rules! fills {
    ($($name:ident $T:ty = $of:expr;)*) => { $(
        unsafe fn $name(n: usize, d: *mut u8, _: *const u8, _: *const u8, _: *const u8, k: &Constants) {
            let of: fn(&Constants) -> $T = $of;
            let element = MaybeUninit::new(of(k));
            // SAFETY: `d` points to space for `n` elements (contract of `SliceKernel`).
            unsafe { uninit_slice::<$T>(d, n) }.fill(element);
        }
    )* };
}
fills! {
    fill1 u8 = |k| k[0].to_bits() as u8;
    fill2 u16 = |k| k[0].to_bits() as u16;
    fill4 u32 = |k| k[0].to_bits() as u32;
    fill8 u64 = |k| k[0].to_bits();
    fill16 [f64; 2] = |k| [k[0], k[1]];
}

/// Returns the kernel that repeats the element at `a`; `size` is in bytes.
pub(super) fn splat_of(size: usize) -> Option<SliceKernel> {
    Some(match size {
        1 => splat::<u8>,
        2 => splat::<u16>,
        4 => splat::<u32>,
        8 => splat::<u64>,
        16 => splat::<[u64; 2]>,
        _ => return None,
    })
}
/// Returns the kernel that reads every `k[0]`-th element from `a` on; `size` is in bytes.
pub(super) fn gather_of(size: usize) -> Option<SliceKernel> {
    Some(match size {
        1 => gather::<u8>,
        2 => gather::<u16>,
        4 => gather::<u32>,
        8 => gather::<u64>,
        16 => gather::<[u64; 2]>,
        _ => return None,
    })
}
/// Returns the kernel that transposes a block; the size of an element is in bytes.
pub(super) fn transpose_of(size: usize) -> Option<TransposeBlock> {
    Some(match size {
        1 => transpose::<u8>,
        2 => transpose::<u16>,
        4 => transpose::<u32>,
        8 => transpose::<u64>,
        16 => transpose::<[u64; 2]>,
        _ => return None,
    })
}
/// Returns the kernel that repeats a constant of `size` bytes.
///
/// The constant is in the low bits of `k[0]`; see [`constant`](super::constant). The kernel reads
/// no operand.
pub(super) fn fill_of(size: usize) -> Option<SliceKernel> {
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
/// Writes the int64 values `*a + i·k[0]` for `i` in `0..n`, such as the indices of a loop.
///
/// # Safety
/// The caller upholds the contract of [`SliceKernel`], with a single int64 at `a`.
pub unsafe fn count(n: usize, d: *mut u8, a: *const u8, _: *const u8, _: *const u8, k: &Constants) {
    let step = k[0] as i64;
    // SAFETY: `a` points to an int64, and `d` to space for `n` of them (caller contract).
    unsafe {
        let mut at = *a.cast::<i64>();
        for d in uninit_slice::<i64>(d, n) {
            d.write(at);
            at = at.wrapping_add(step);
        }
    }
}
