//! Gathers of single elements.

use super::{IndexInt, IndexSpec, for_each_spaced};
use crate::core::DType;
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
            let numbers = from_raw_parts(numbers.cast::<T>(), n);
            for (number, to) in numbers.iter().zip(uninit_slice::<W>(dst, n)) {
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
}
