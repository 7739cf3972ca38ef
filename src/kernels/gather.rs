//! Batched gather and scatter of rows.
//!
//! A kernel computes the offsets of the rows for a batch of indices, and another one copies or
//! combines the rows. Rows are far apart in memory, so each one is prefetched some time before it
//! is used; otherwise every row would wait for memory.

mod elements;

use super::reduce::CombineOp;
use crate::core::DType;
use crate::kernels::cpu::{IsaLevel, for_each_isa, up_to_level};
pub use elements::gather_elements;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// The maximum number of rows in a batch.
pub const MAX_BATCH_ROWS: usize = 64;
/// The prefetch distance, in rows.
const PREFETCH_ROWS: usize = 8;
/// The size of a cache line, in bytes.
pub const CACHE_LINE_BYTES: usize = 64;

/// The mapping from indices to rows.
#[derive(Clone, Copy, Debug)]
pub struct IndexSpec {
    /// The maximum valid index, or a negative number if no index is valid.
    pub max_index: i64,
    /// The number that is added to negative indices (the size of the dimension), or 0.
    pub negative_offset: i64,
    /// True if out-of-bounds indices are clamped to the nearest valid one.
    /// Otherwise such an index has no row.
    pub clip: bool,
    /// The distance in bytes between the rows of consecutive indices.
    pub row_stride: i64,
    /// The half-open range of rows that the task owns; indices of other rows are ignored.
    pub owned_rows: (i64, i64),
}

impl IndexSpec {
    /// Resolves a negative index, which counts from the end.
    #[inline(always)]
    pub fn resolve_negative(&self, index: i64) -> i64 {
        index + ((index >> 63) & self.negative_offset)
    }
}

/// The rows of a batch of indices: their byte offsets, and flags for those that exist.
#[derive(Clone, Copy, Debug)]
pub struct FoundRows {
    /// The byte offset of each row.
    pub offsets: [i64; MAX_BATCH_ROWS],
    /// True for each row that exists and is owned.
    pub in_bounds: [bool; MAX_BATCH_ROWS],
}

/// Adds the offset of each index's row to `found`, and clears the flag of rows that do not exist.
///
/// Indices are `step` bytes apart. The caller upholds: `numbers` points to `n` indices of the
/// function's type, and `n` is at most [`MAX_BATCH_ROWS`].
pub type FindRows =
    unsafe fn(n: usize, numbers: *const u8, step: isize, reach: &IndexSpec, found: &mut FoundRows);

/// Combines `n` pairs of rows of `row` elements, one pair after the other.
///
/// The row at `to[k]` bytes from `dst` is combined with the row at `from[k]` bytes from `src`.
///
/// The caller upholds: `to` and `from` point to `n` offsets each; all of these rows are in memory,
/// initialized and aligned to an element; those at `dst` are writable, and none overlaps one at
/// `src`.
pub type CombineRowsAt =
    unsafe fn(n: usize, row: usize, dst: *mut u8, to: *const i64, src: *const u8, from: *const i64);

/// The integer types of indices.
pub(super) trait IndexInt: Copy {
    /// Converts the index to an i64; larger values become `i64::MAX`.
    fn to_i64(self) -> i64;
}
macro_rules! wholes {
    ($($T:ident)*) => { $( impl IndexInt for $T {
        #[inline(always)]
        fn to_i64(self) -> i64 { i64::from(self) }
    } )* };
}
wholes!(i8 i16 i32 i64 u8 u16 u32);
impl IndexInt for u64 {
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self.min(i64::MAX as u64) as i64
    }
}

/// Calls `f` with each of `n` elements, which are `step` bytes apart from `p` on, and its position.
///
/// # Safety
/// There are `n` initialized elements of type `T`.
#[inline(always)]
unsafe fn for_each_spaced<T: Copy>(n: usize, p: *const u8, step: isize, mut f: impl FnMut(usize, T)) {
    // SAFETY: the elements are there (caller contract), and are read as a slice only where they are
    // contiguous.
    unsafe {
        if step == size_of::<T>() as isize {
            for (k, x) in from_raw_parts(p.cast::<T>(), n).iter().enumerate() {
                f(k, *x);
            }
        } else {
            for k in 0..n {
                f(k, *p.wrapping_offset(k as isize * step).cast::<T>());
            }
        }
    }
}

/// Computes the rows of a batch of indices.
///
/// # Safety
/// The caller upholds the contract of [`FindRows`].
#[inline(always)]
unsafe fn find_body<T: IndexInt>(
    n: usize,
    numbers: *const u8,
    step: isize,
    r: &IndexSpec,
    f: &mut FoundRows,
) {
    let (lo, hi) = if r.max_index < 0 { (0, 0) } else { r.owned_rows };
    let (at, there) = (&mut f.offsets[..n], &mut f.in_bounds[..n]);
    let one = |k: usize, number: T| {
        let number = r.resolve_negative(number.to_i64());
        let index = number.min(r.max_index).max(0);
        at[k] += index * r.row_stride;
        there[k] &= (r.clip | (index == number)) & (index >= lo) & (index < hi);
    };
    // SAFETY: there are `n` indices, `step` bytes apart (caller contract).
    unsafe { for_each_spaced::<T>(n, numbers, step, one) }
}

/// Prefetches a cache line into the cache of this level, 1 or 2.
#[inline(always)]
fn prefetch_line<const LEVEL: u8>(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch is a hint, which is valid for any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match LEVEL {
            1 => _mm_prefetch::<_MM_HINT_T0>(at.cast()),
            _ => _mm_prefetch::<_MM_HINT_T1>(at.cast()),
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// Prefetches these bytes into the first-level cache, up to a limit.
#[inline(always)]
pub(super) fn prefetch(at: *const u8, bytes: usize) {
    for line in (0..bytes.min(8 * CACHE_LINE_BYTES)).step_by(CACHE_LINE_BYTES) {
        prefetch_line::<1>(at.wrapping_add(line));
    }
}

/// Prefetches a cache line that is used some time later into the second-level cache.
#[inline(always)]
pub fn prefetch_l2(at: *const u8) {
    prefetch_line::<2>(at);
}

/// Combines the rows at the given offsets.
///
/// # Safety
/// The caller upholds the contract of [`CombineRowsAt`].
#[inline(always)]
unsafe fn mix_at_body<M: CombineOp>(
    n: usize,
    row: usize,
    dst: *mut u8,
    to: *const i64,
    src: *const u8,
    from: *const i64,
) {
    // SAFETY: there are `n` offsets each; the rows are initialized, and none of `dst` overlaps one
    // of `src` (caller contract).
    unsafe {
        let (to, from) = (from_raw_parts(to, n), from_raw_parts(from, n));
        let at = |k: usize| dst.wrapping_offset(to[k] as isize).cast::<M::M>();
        let with = |k: usize| src.wrapping_offset(from[k] as isize).cast::<M::M>();
        if row == 1 {
            for k in 0..n {
                let d = at(k);
                *d = M::combine_stored(*d, *with(k));
            }
            return;
        }
        let bytes = row * size_of::<M::M>();
        (0..n.min(PREFETCH_ROWS)).for_each(|k| prefetch(at(k).cast(), bytes));
        for k in 0..n {
            if k + PREFETCH_ROWS < n {
                prefetch(at(k + PREFETCH_ROWS).cast(), bytes);
            }
            let (d, s) = (from_raw_parts_mut(at(k), row), from_raw_parts(with(k), row));
            for (d, s) in d.iter_mut().zip(s) {
                *d = M::combine_stored(*d, *s);
            }
        }
    }
}

/// Combines single elements at `dst`, selected by `n` indices, with elements at `src`.
///
/// `numbers`, `dst` and `src` are pairs of a pointer and a distance in bytes: indices are the first
/// distance apart, and `dst` and `src` advance by theirs after each index.
///
/// The caller upholds: `numbers` points to `n` indices of the function's type, and `src` to `n`
/// elements; all elements at `dst` that valid, owned indices select are in memory, initialized and
/// writable, and none of them is an element of `src`.
pub type CombineElementsAt = unsafe fn(
    n: usize,
    numbers: (*const u8, isize),
    reach: &IndexSpec,
    dst: (*mut u8, isize),
    src: (*const u8, isize),
);

/// Computes rows and combines elements in a single loop.
///
/// The branch is predicted well if nearly all elements exist. Elements are handled one by one,
/// because wider vectors would not make the loop faster.
///
/// # Safety
/// The caller upholds the contract of [`CombineElementsAt`].
unsafe fn one_body<T: IndexInt, M: CombineOp>(
    n: usize,
    (numbers, step): (*const u8, isize),
    r: &IndexSpec,
    (dst, to): (*mut u8, isize),
    (src, from): (*const u8, isize),
) {
    let (lo, hi) = if r.max_index < 0 { (0, 0) } else { r.owned_rows };
    let (lo, hi) = (lo.max(0), hi.min(r.max_index.saturating_add(1)));
    let (unit, some) = (r.row_stride as isize, hi.saturating_sub(lo).max(0) as u64);
    let size = size_of::<M::M>() as isize;
    if step == size_of::<T>() as isize && (unit, to, from, r.clip) == (size, 0, size, false) {
        // everything is contiguous: this loop needs half as many instructions
        let first = dst.wrapping_offset(lo as isize * size).cast::<M::M>();
        // SAFETY: `numbers` has `n` contiguous indices, and `src` has `n` contiguous elements; the
        // element of a row that exists is in memory (caller contract).
        unsafe {
            let (numbers, src) =
                (from_raw_parts(numbers.cast::<T>(), n), from_raw_parts(src.cast::<M::M>(), n));
            for (number, with) in numbers.iter().zip(src) {
                let place = r.resolve_negative(number.to_i64()).wrapping_sub(lo);
                if (place as u64) < some {
                    let d = first.wrapping_offset(place as isize);
                    *d = M::combine_stored(*d, *with);
                }
            }
        }
        return;
    }
    let (mut dst, mut src) = (dst, src);
    // SAFETY: there are `n` indices, `step` bytes apart; the element of a row that exists is in
    // memory (caller contract).
    unsafe {
        for k in 0..n as isize {
            let number = r.resolve_negative((*numbers.wrapping_offset(k * step).cast::<T>()).to_i64());
            let place = if r.clip { number.min(r.max_index).max(0) } else { number };
            if (place.wrapping_sub(lo) as u64) < some {
                let d = dst.wrapping_offset(place as isize * unit).cast::<M::M>();
                *d = M::combine_stored(*d, *src.cast::<M::M>());
            }
            (dst, src) = (dst.wrapping_offset(to), src.wrapping_offset(from));
        }
    }
}

for_each_isa! {
    mod find_at<T: IndexInt>(n: usize, numbers: *const u8, step: isize, r: &IndexSpec, f: &mut FoundRows) at L
        => find_body::<T>(n, numbers, step, r, f);
    mod mix_at<M: CombineOp>(n: usize, row: usize, dst: *mut u8, to: *const i64, src: *const u8, from: *const i64) at L
        => mix_at_body::<M>(n, row, dst, to, src, from);
}

/// Returns the kernel that computes the row offsets of indices of type `T`.
pub(super) fn find<T: IndexInt>(level: IsaLevel) -> FindRows {
    find_at::at::<T>(level)
}
/// Returns the kernel that combines rows at computed offsets.
///
/// Only floats have variants: the rows come from memory, which takes longer than to combine them.
pub(super) fn mix<M: CombineOp>(level: IsaLevel) -> CombineRowsAt {
    up_to_level!(mix_at::<M>, if M::WIDEST == 2 { 2 } else { 0 }, level)
}
/// Returns the kernel that combines single elements at indices of this type.
///
/// Returns `None` for rarely used index types, which are handled by [`find`] and [`mix`].
pub(super) fn one<M: CombineOp>(dtype: DType) -> Option<CombineElementsAt> {
    match dtype {
        DType::I32 => Some(one_body::<i32, M>),
        DType::I64 => Some(one_body::<i64, M>),
        _ => None,
    }
}

/// Copies rows of `row` elements, one after the other.
///
/// The row at `from[k]` bytes from `src` is copied to the row at `to[k]` bytes from `dst`.
///
/// # Safety
/// The caller upholds the contract of [`CombineRowsAt`] for the shorter of the two lists of
/// offsets, except that the elements at `dst` may be uninitialized.
pub unsafe fn copy_rows_at<T: Copy>(row: usize, dst: *mut u8, to: &[i64], src: *const u8, from: &[i64]) {
    let at = |k: usize| dst.wrapping_offset(to[k] as isize).cast::<T>();
    let with = |k: usize| src.wrapping_offset(from[k] as isize).cast::<T>();
    let n = to.len().min(from.len());
    // SAFETY: the rows are in memory, and none of `dst` overlaps one of `src` (caller contract).
    unsafe {
        if row == 1 {
            for k in 0..n {
                *at(k) = *with(k);
            }
            return;
        }
        let bytes = row * size_of::<T>();
        (0..n.min(PREFETCH_ROWS)).for_each(|k| prefetch(with(k).cast(), bytes));
        for k in 0..n {
            if k + PREFETCH_ROWS < n {
                prefetch(with(k + PREFETCH_ROWS).cast(), bytes);
            }
            std::ptr::copy_nonoverlapping(with(k), at(k), row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::scalar_op::Reducer;
    use crate::core::types::DType;
    use crate::kernels::{combine_rows_at, find_rows};

    #[test]
    fn numbers_say_where() {
        let numbers = [3i32, -1, 0, 9, 2, 7];
        let all = (0, i64::MAX);
        let at = |reach: &IndexSpec| {
            let mut found = FoundRows { offsets: [100; MAX_BATCH_ROWS], in_bounds: [true; MAX_BATCH_ROWS] };
            // SAFETY: there are six indices.
            unsafe { find_rows(DType::I32)(6, numbers.as_ptr().cast(), 4, reach, &mut found) }
            (found.offsets[..6].to_vec(), found.in_bounds[..6].to_vec())
        };
        let reach =
            IndexSpec { max_index: 7, negative_offset: 0, clip: false, row_stride: 10, owned_rows: all };
        let (found, there) = at(&reach);
        assert_eq!(found, [130, 100, 100, 170, 120, 170]);
        assert_eq!(there, [true, false, true, false, true, true]);
        assert_eq!(at(&IndexSpec { clip: true, ..reach }).1, [true; 6]);
        assert_eq!(
            at(&IndexSpec { owned_rows: (2, 4), ..reach }).1,
            [true, false, false, false, true, false]
        );
        assert_eq!(at(&IndexSpec { max_index: -1, clip: true, ..reach }).1, [false; 6]);
        let (found, there) = at(&IndexSpec { negative_offset: 8, ..reach });
        assert_eq!((found[1], there), (170, vec![true, true, true, false, true, true]));
        // every second index, of another type, on every level
        let mut found = FoundRows { offsets: [0; MAX_BATCH_ROWS], in_bounds: [true; MAX_BATCH_ROWS] };
        let wide = [5u64, 0, u64::MAX, 0];
        for level in IsaLevel::available() {
            found.offsets = [0; MAX_BATCH_ROWS];
            // SAFETY: there are two indices, 16 bytes apart.
            unsafe { find::<u64>(level)(2, wide.as_ptr().cast(), 16, &reach, &mut found) }
            assert_eq!((&found.offsets[..2], &found.in_bounds[..2]), (&[50, 70][..], &[true, false][..]));
        }
    }

    #[test]
    fn rows_are_combined_one_after_the_other() {
        for row in [1, 2, 7, 40] {
            let n = 21;
            let src: Vec<f32> = (0..n * row).map(|k| k as f32).collect();
            let mut dst = vec![0.5f32; 4 * row];
            let mut expected = dst.clone();
            let (mut to, mut from) = (Vec::new(), Vec::new());
            for k in 0..n {
                let index = k * k % 4;
                to.push((index * row * 4) as i64);
                from.push((k * row * 4) as i64);
                for j in 0..row {
                    expected[index * row + j] += src[k * row + j];
                }
            }
            let mix = combine_rows_at(Reducer::Add, DType::F32).unwrap();
            let (d, s) = (dst.as_mut_ptr().cast(), src.as_ptr().cast());
            // SAFETY: the rows at these offsets are within both vectors.
            unsafe { mix(n, row, d, to.as_ptr(), s, from.as_ptr()) }
            assert_eq!(dst, expected, "{row}");
            // SAFETY: the rows at these offsets are within both vectors.
            unsafe { copy_rows_at::<u32>(row, dst.as_mut_ptr().cast(), &to, s, &from) }
            assert_eq!(dst[..row], src[20 * row..], "{row}");
        }
    }

    #[test]
    fn single_elements_are_found_and_combined_in_one_loop() {
        let numbers: [i64; 9] = [3, -1, 3, 9, i64::MAX, 7, 0, i64::MIN, 7];
        let narrow: Vec<i32> = numbers.iter().map(|n| (*n).clamp(-9, 99) as i32).collect();
        let src: Vec<f32> = (0..18).map(|k| (1 << k) as f32).collect();
        let all = IndexSpec {
            max_index: 7,
            negative_offset: 0,
            clip: false,
            row_stride: 4,
            owned_rows: (0, i64::MAX),
        };
        let few = IndexSpec { owned_rows: (2, 7), negative_offset: 8, ..all };
        for reach in [
            all,
            few,
            IndexSpec { clip: true, ..all },
            IndexSpec { clip: true, ..few },
            IndexSpec { max_index: -1, ..all },
        ] {
            let mut expected = [0.5f32; 8];
            for (k, n) in numbers.iter().enumerate() {
                let n = if *n < 0 { *n + reach.negative_offset } else { *n };
                let index = if reach.clip { n.clamp(0, 7) } else { n };
                if (0..=reach.max_index).contains(&index)
                    && (reach.owned_rows.0..reach.owned_rows.1).contains(&index)
                {
                    expected[index as usize] += src[2 * k];
                }
            }
            for wide in [true, false] {
                let dtype = if wide { DType::I64 } else { DType::I32 };
                let one = crate::kernels::combine_elements_at(Reducer::Add, DType::F32, dtype).unwrap();
                let (numbers, step) =
                    if wide { (numbers.as_ptr().cast(), 8) } else { (narrow.as_ptr().cast(), 4) };
                let every: Vec<f32> = src.iter().step_by(2).copied().collect();
                for (src, from) in [(&src, 8), (&every, 4)] {
                    let mut made = [0.5f32; 8];
                    // SAFETY: there are nine indices, nine updates, and eight elements, of which
                    // only valid rows are accessed.
                    unsafe {
                        let dst = made.as_mut_ptr().cast();
                        one(9, (numbers, step), &reach, (dst, 0), (src.as_ptr().cast(), from));
                    }
                    assert_eq!(made, expected, "{reach:?}");
                }
            }
        }
    }
}
