//! Scatter-add of updates that are sorted by row.
//!
//! Each row is read and written once, with non-temporal stores for whole cache lines. The updates
//! of a row are added in their original order, so the result has the same bits as if the updates
//! were added without sorting.

use crate::kernels::cpu::IsaLevel;
use std::ops::Range;

/// Updates sorted by the row that they are added to.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only loops for x86-64 read them"))]
pub struct SortedUpdatesView<'a> {
    /// For each row, the number of updates of this row and all earlier rows.
    pub ends: &'a [u32],
    /// The index of each update among the rows at `src`.
    /// `None` if the updates of a batch are contiguous.
    pub update_indices: Option<&'a [u32]>,
    /// The number of elements in a row.
    pub row: usize,
}

/// The position reached in the sorted updates, from which the next call continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddCursor {
    /// The row to continue with.
    pub row: usize,
    /// True if the row has already received some of its updates.
    pub row_started: bool,
}

/// Adds the updates in the range `some` to their rows, starting from position `at`.
///
/// The initial values of the rows are at the first pointer of `begin`, or are all equal to its
/// number if the pointer is null. The rows of the updates are at `src`. Returns the position to
/// continue from.
///
/// The caller upholds: `out`, and the first pointer of `begin` if it is not null, point to all
/// rows, and are equal or do not overlap; the rows of the updates are readable.
pub type AddSorted = unsafe fn(
    s: &SortedUpdatesView<'_>,
    at: AddCursor,
    some: Range<usize>,
    src: *const f32,
    begin: (*const f32, f32),
    out: *mut f32,
) -> AddCursor;

/// Returns the kernel for a level, if there is one.
pub(super) fn kernel_at(level: IsaLevel) -> Option<AddSorted> {
    #[cfg(target_arch = "x86_64")]
    match level {
        IsaLevel::Avx512 => return Some(avx512::add_sorted),
        IsaLevel::Avx2 => return Some(avx2::add_sorted),
        IsaLevel::Base => (),
    }
    let _ = level;
    None
}

/// Defines the loop of a level with these features.
#[cfg(target_arch = "x86_64")]
macro_rules! adds {
    ($level:ident $features:tt) => {
        mod $level {
            use super::super::simd_vec::$level::*;
            use super::{AddCursor, SortedUpdatesView};
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm_sfence};
            use std::ops::Range;

            /// The number of elements in a vector, which has the size of a cache line.
            const LANES: usize = 16;
            /// The number of vectors of a row that are processed together, which stay in registers.
            const PIECE_VECTORS: usize = 4;
            /// The prefetch distance, in updates.
            const PREFETCH_UPDATES: usize = 8;

            /// Adds sorted updates to their rows.
            ///
            /// # Safety
            /// The caller upholds the contract of [`AddSorted`](super::AddSorted); the processor
            /// has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn add_sorted(
                s: &SortedUpdatesView<'_>,
                at: AddCursor,
                some: Range<usize>,
                src: *const f32,
                (was, number): (*const f32, f32),
                out: *mut f32,
            ) -> AddCursor {
                let row = s.row;
                let update = |k: usize| {
                    let at = s.update_indices.map_or(k - some.start, |w| w[k] as usize);
                    src.wrapping_add(at * row)
                };
                let (mut open, mut k) = (at.row_started, some.start);
                let mut made = AddCursor { row: s.ends.len(), row_started: false };
                for (r, end) in s.ends.iter().enumerate().skip(at.row) {
                    let end = *end as usize;
                    if k == some.end && end > k {
                        made = AddCursor { row: r, row_started: open };
                        break;
                    }
                    let last = end.min(some.end);
                    let to = out.wrapping_add(r * row);
                    let from = if open { to.cast_const() } else { was.wrapping_add(r * row) };
                    let begin = if was.is_null() && !open { None } else { Some(from) };
                    if s.update_indices.is_some() {
                        for ahead in (k + PREFETCH_UPDATES..last + PREFETCH_UPDATES)
                            .take_while(|ahead| *ahead < some.end)
                        {
                            for line in (0..row.min(8 * LANES)).step_by(LANES) {
                                _mm_prefetch::<_MM_HINT_T0>(update(ahead).wrapping_add(line).cast());
                            }
                        }
                    }
                    if k < last || from != to.cast_const() {
                        let mut c = 0;
                        // SAFETY: the rows and updates are in memory (caller contract), and the
                        // vectors are within them, since the last one is masked.
                        unsafe {
                            while c + PIECE_VECTORS * LANES <= row {
                                piece::<PIECE_VECTORS>(c, None, (begin, number), k..last, &update, to);
                                c += PIECE_VECTORS * LANES;
                            }
                            while c < row {
                                let rest = (row - c < LANES).then(|| first(row - c));
                                piece::<1>(c, rest, (begin, number), k..last, &update, to);
                                c += LANES;
                            }
                        }
                    }
                    (k, open) = (last, false);
                    if last < end {
                        made = AddCursor { row: r, row_started: true };
                        break;
                    }
                }
                _mm_sfence();
                made
            }

            /// Adds updates to `N` vectors of a row, from element `c` on.
            /// If `some_of` is a mask, only its lanes are accessed.
            ///
            /// # Safety
            /// The caller upholds the contract of [`add_sorted`] for these updates, and the
            /// elements are within the row.
            #[target_feature(enable = $features)]
            #[inline]
            unsafe fn piece<const N: usize>(
                c: usize,
                some_of: Option<First>,
                (begin, number): (Option<*const f32>, f32),
                some: Range<usize>,
                update: &impl Fn(usize) -> *const f32,
                to: *mut f32,
            ) {
                let mut sum = [all(number); N];
                // SAFETY: these elements of the row and of its updates are in memory (caller
                // contract); a non-temporal store is used only at a multiple of 64 bytes.
                unsafe {
                    let read = |from: *const f32, v: usize| match some_of {
                        None => load(from.add(c + v * LANES)),
                        Some(some) => load_some(from.add(c + v * LANES), some),
                    };
                    if let Some(from) = begin {
                        for (v, sum) in sum.iter_mut().enumerate() {
                            *sum = read(from, v);
                        }
                    }
                    for k in some {
                        let with = update(k);
                        for (v, sum) in sum.iter_mut().enumerate() {
                            *sum = add(*sum, read(with, v));
                        }
                    }
                    for (v, sum) in sum.iter().enumerate() {
                        let to = to.add(c + v * LANES);
                        match some_of {
                            None if to.addr().is_multiple_of(64) => store_past(to, *sum),
                            None => store(to, *sum),
                            Some(some) => store_some(to, some, *sum),
                        }
                    }
                }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
adds!(avx512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2");
#[cfg(target_arch = "x86_64")]
adds!(avx2 "avx2,fma,bmi2");

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn rows_meet_their_updates_in_order_however_they_are_cut() {
        let forms: Vec<AddSorted> = IsaLevel::available().filter_map(kernel_at).collect();
        let rows = 23;
        for row in [1, 16, 40, 64, 150] {
            let places: Vec<usize> =
                (0..60).map(|k| [k * 7 % rows, 5][usize::from(k % 3 == 0)]).filter(|r| *r != 22).collect();
            let src: Vec<f32> = (0..places.len() * row).map(|k| 1.0 / (k + 1) as f32).collect();
            let was: Vec<f32> = (0..rows * row).map(|k| k as f32).collect();
            let mut ends = vec![0u32; rows];
            let mut which: Vec<u32> = (0..places.len() as u32).collect();
            which.sort_by_key(|k| places[*k as usize]);
            for (r, end) in ends.iter_mut().enumerate() {
                *end = places.iter().filter(|p| **p <= r).count() as u32;
            }
            let sorted: Vec<f32> =
                which.iter().flat_map(|k| &src[*k as usize * row..][..row]).copied().collect();
            for (begins, indirect, turn) in [
                (0, true, 1000),
                (1, true, 1000),
                (2, true, 1000),
                (0, false, 7),
                (1, false, 1),
                (2, false, 13),
            ] {
                let mut expected = if begins == 0 { vec![0.5; rows * row] } else { was.clone() };
                for (k, r) in places.iter().enumerate() {
                    (0..row).for_each(|i| expected[r * row + i] += src[k * row + i]);
                }
                for add in &forms {
                    let mut out = if begins == 2 { was.clone() } else { vec![f32::NAN; rows * row] };
                    let from = [std::ptr::null(), was.as_ptr(), out.as_ptr()][begins];
                    let s = SortedUpdatesView {
                        ends: &ends,
                        update_indices: indirect.then_some(&which[..]),
                        row,
                    };
                    let (mut at, mut k) = (AddCursor::default(), 0);
                    while k < places.len() {
                        let end = (k + turn).min(places.len());
                        let rows = if indirect { src.as_ptr() } else { sorted[k * row..].as_ptr() };
                        // SAFETY: all rows and updates are in the vectors, and the level is
                        // available on this processor.
                        at = unsafe { add(&s, at, k..end, rows, (from, 0.5), out.as_mut_ptr()) };
                        k = end;
                    }
                    assert_eq!(at, AddCursor { row: rows, row_started: false });
                    assert_eq!(out, expected, "{row} {begins} {turn}");
                }
            }
        }
    }
}
