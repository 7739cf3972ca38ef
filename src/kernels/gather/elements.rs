//! Gathers of single elements.

use super::{IndexInt, IndexSpec, for_each_spaced};
use crate::core::DType;
#[cfg(target_arch = "x86_64")]
use crate::kernels::cpu::{self, IsaLevel};
use crate::kernels::elementwise::uninit_slice;
use std::slice::from_raw_parts;

/// Copies single elements, selected by `n` indices, in a single loop.
///
/// `numbers`, `dst` and `src` are pairs of a pointer and a distance in bytes, by which they advance
/// after each index. Where there is no row, the copy is `fill`. The element is read first, at the
/// nearest valid index, and then selected: the loop has no branches, so that many reads are in
/// flight at the same time.
///
/// # Safety
/// `numbers` points to `n` indices of type `index`, and `dst` to space for `n` elements; for each
/// index, the elements that valid ones select at `src` are in memory, and are not at `dst`.
///
/// # Panics
/// If `index` is neither int32 nor int64, or if the task owns only some of the rows.
pub unsafe fn gather_elements<W: Copy>(
    index: DType,
    n: usize,
    numbers: (*const u8, isize),
    r: &IndexSpec,
    dst: (*mut u8, isize),
    src: (*const u8, isize),
    fill: W,
) {
    assert_eq!(r.owned_rows, (0, i64::MAX), "a gather reads all rows");
    // SAFETY: the caller upholds the contract, which is that of these functions too.
    unsafe {
        match index {
            DType::I32 => gather_elements_body::<i32, W>(n, numbers, r, dst, src, fill),
            DType::I64 => gather_elements_body::<i64, W>(n, numbers, r, dst, src, fill),
            _ => panic!("no indices of {index}"),
        }
    }
}

/// Copies single elements, selected by indices of type `T`.
///
/// # Safety
/// The caller upholds the contract of [`gather_elements`].
unsafe fn gather_elements_body<T: IndexInt, W: Copy>(
    n: usize,
    (numbers, step): (*const u8, isize),
    r: &IndexSpec,
    (dst, to): (*mut u8, isize),
    (src, from): (*const u8, isize),
    fill: W,
) {
    let (unit, size) = (r.row_stride as isize, size_of::<W>() as isize);
    let element = |src: *const u8, number: T| {
        let number = r.resolve_negative(number.to_i64());
        let index = number.min(r.max_index).max(0);
        // SAFETY: the element of a valid index is in memory (caller contract).
        let x = unsafe { *src.wrapping_offset(index as isize * unit).cast::<W>() };
        if r.clip | (index == number) { x } else { fill }
    };
    // SAFETY: there are `n` indices, and space for `n` elements (caller contract).
    unsafe {
        if r.max_index < 0 {
            (0..n as isize).for_each(|k| dst.wrapping_offset(k * to).cast::<W>().write(fill));
        } else if (step, to, from) == (size_of::<T>() as isize, size, 0) {
            let done = gather_vectors::<T, W>(n, numbers, r, dst, src, fill);
            let numbers = &from_raw_parts(numbers.cast::<T>(), n)[done..];
            for (number, to) in numbers.iter().zip(&mut uninit_slice::<W>(dst, n)[done..]) {
                to.write(element(src, *number));
            }
        } else {
            for_each_spaced(n, numbers, step, |k, number: T| {
                let [to, from] = [to, from].map(|step| k as isize * step);
                dst.wrapping_offset(to).cast::<W>().write(element(src.wrapping_offset(from), number));
            });
        }
    }
}

/// Copies the elements of full vectors of indices, and returns how many they are.
///
/// There are vectors only if indices and elements have 32 bits, and elements are contiguous.
///
/// # Safety
/// The caller upholds the contract of [`gather_elements`], indices and elements of the result are
/// contiguous, and `r.max_index` is not negative.
unsafe fn gather_vectors<T: IndexInt, W: Copy>(
    n: usize,
    numbers: *const u8,
    r: &IndexSpec,
    dst: *mut u8,
    src: *const u8,
    fill: W,
) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let narrow = r.row_stride == 4 && r.max_index.max(r.negative_offset) <= i32::MAX.into();
        if (size_of::<T>(), size_of::<W>()) == (4, 4) && narrow && cpu::level() == IsaLevel::Avx512 {
            // SAFETY: `fill` has four bytes; the caller upholds the contract.
            return unsafe { wide::gather(n, numbers, r, dst, src, std::mem::transmute_copy(&fill)) };
        }
    }
    let _ = (n, numbers, r, dst, src, fill);
    0
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use super::IndexSpec;
    use std::arch::x86_64::*;

    /// Copies elements of 32 bits, 16 at a time, and returns how many.
    ///
    /// # Safety
    /// The caller upholds the contract of [`gather_vectors`](super::gather_vectors), indices are
    /// int32, elements have 32 bits, and the processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn gather(
        n: usize,
        numbers: *const u8,
        r: &IndexSpec,
        dst: *mut u8,
        src: *const u8,
        fill: i32,
    ) -> usize {
        let (whole, last) = (n / 16 * 16, _mm512_set1_epi32(r.max_index as i32));
        let (offset, fill) = (_mm512_set1_epi32(r.negative_offset as i32), _mm512_set1_epi32(fill));
        for k in (0..whole).step_by(16) {
            // SAFETY: there are 16 indices, and space for 16 elements; only elements of valid
            // indices are read (caller contract).
            unsafe {
                let given = _mm512_loadu_si512(numbers.cast::<i32>().add(k).cast());
                let mut index = _mm512_mask_add_epi32(given, _mm512_movepi32_mask(given), given, offset);
                if r.clip {
                    index = _mm512_max_epi32(_mm512_min_epi32(index, last), _mm512_setzero_si512());
                }
                // (a negative index is a large one without its sign)
                let valid = _mm512_cmple_epu32_mask(index, last);
                let x = _mm512_mask_i32gather_epi32::<4>(fill, valid, index, src.cast());
                _mm512_storeu_si512(dst.cast::<i32>().add(k).cast(), x);
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_at_the_nearest_index_or_filled() {
        let numbers: [i64; 8] = [3, -1, 9, 0, -9, 7, i64::MAX, i64::MIN];
        let narrow = numbers.map(|n| n.clamp(-99, 99) as i32);
        let src: Vec<u16> = (100..130).collect();
        let all = IndexSpec {
            max_index: 7,
            negative_offset: 0,
            clip: false,
            row_stride: 4,
            owned_rows: (0, i64::MAX),
        };
        let wraps = IndexSpec { negative_offset: 8, ..all };
        for (r, from) in [
            (all, 0),
            (wraps, 2),
            (IndexSpec { clip: true, ..all }, 0),
            (IndexSpec { max_index: -1, ..all }, 0),
        ] {
            let expected: Vec<u16> = (0..numbers.len())
                .map(|k| {
                    let n = if numbers[k] < 0 { numbers[k] + r.negative_offset } else { numbers[k] };
                    let index = if r.clip { n.clamp(0, 7) } else { n };
                    let first = k * from / 2;
                    if (0..=r.max_index).contains(&index) { src[first + 2 * index as usize] } else { 9 }
                })
                .collect();
            for step in [1, 2] {
                let spread =
                    |x: &[u16]| x.iter().flat_map(|x| [*x, 77]).step_by(3 - step).collect::<Vec<_>>();
                let (mut wide, mut thin) = (vec![77u16; 8 * step], vec![77u16; 8 * step]);
                // SAFETY: there are eight indices, space for eight elements, and 30 elements, of
                // which only those of valid indices are read.
                unsafe {
                    let (to, src) = (2 * step as isize, (src.as_ptr().cast(), from as isize));
                    let at = (numbers.as_ptr().cast(), 8);
                    gather_elements(DType::I64, 8, at, &r, (wide.as_mut_ptr().cast(), to), src, 9u16);
                    let at = (narrow.as_ptr().cast(), 4);
                    gather_elements(DType::I32, 8, at, &r, (thin.as_mut_ptr().cast(), to), src, 9u16);
                }
                let expected = spread(&expected);
                assert_eq!((&wide, &thin), (&expected, &expected), "{r:?} {step}");
            }
        }
    }

    #[test]
    fn vectors_of_indices_read_what_single_ones_read() {
        const N: usize = 100;
        let src: Vec<f32> = (0..50).map(|i| i as f32 + 0.5).collect();
        let numbers: Vec<i32> =
            (0..N as i32).map(|k| [k - 20, k / 2, i32::MIN + k, i32::MAX - k, -k][k as usize % 5]).collect();
        for negative_offset in [0, 50] {
            for (clip, max_index) in [(false, 49), (true, 49), (false, 30)] {
                let owned_rows = (0, i64::MAX);
                let r = IndexSpec { max_index, negative_offset, clip, row_stride: 4, owned_rows };
                let mut made = vec![0f32; N];
                // SAFETY: there are `N` indices, space for `N` elements, and 50 elements.
                unsafe {
                    let (to, src) = ((made.as_mut_ptr().cast(), 4), (src.as_ptr().cast(), 0));
                    gather_elements(DType::I32, N, (numbers.as_ptr().cast(), 4), &r, to, src, 9f32);
                }
                for (n, made) in numbers.iter().zip(made) {
                    let n = i64::from(*n);
                    let n = if n < 0 { n + negative_offset } else { n };
                    let n = if clip { n.clamp(0, max_index) } else { n };
                    let expected = if (0..=max_index).contains(&n) { src[n as usize] } else { 9.0 };
                    assert_eq!(made, expected, "{r:?} at {n}");
                }
            }
        }
    }
}
