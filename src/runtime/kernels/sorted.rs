//! Updates that are sorted by the rows to which they are added: each row is read and written once, past the caches where lines are whole.
//!
//! A row meets its updates in their order, so that its bits are those of updates that come one by one.

use crate::runtime::cpu::Level;
use std::ops::Range;

/// Updates sorted by row.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only loops for x86-64 read them"))]
pub struct Sorted<'a> {
    /// For each row how many updates there are up to its last one.
    pub ends: &'a [u32],
    /// Where each is among the rows that are put; nothing: those of a turn follow one another.
    pub which: Option<&'a [u32]>,
    /// Elements of a row.
    pub row: usize,
}

/// How far updates have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The row to go on with.
    pub row: usize,
    /// Whether some updates of it are in the result already.
    pub open: bool,
}

/// Adds the updates `some`, those from a place on, to what rows begin from: those of the first pointer, or a number everywhere. The updates'
/// rows are at `src`. The place to go on from.
///
/// The caller upholds: `out`, and the first pointer if it is not null, have all rows, and are one or apart; the rows of the updates are there.
pub type AddSorted = unsafe fn(
    s: &Sorted<'_>,
    at: Place,
    some: Range<usize>,
    src: *const f32,
    begin: (*const f32, f32),
    out: *mut f32,
) -> Place;

/// The form for a level, if it has one.
pub(super) fn form(level: Level) -> Option<AddSorted> {
    #[cfg(target_arch = "x86_64")]
    match level {
        Level::Avx512 => return Some(avx512::add_sorted),
        Level::Avx2 => return Some(avx2::add_sorted),
        Level::Base => (),
    }
    let _ = level;
    None
}

/// The loop of a level, which has these features.
#[cfg(target_arch = "x86_64")]
macro_rules! adds {
    ($level:ident $features:tt) => {
        mod $level {
            use super::super::vector::$level::*;
            use super::{Place, Sorted};
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm_sfence};
            use std::ops::Range;

            /// Elements of a vector, which are those of a line of memory too.
            const LANES: usize = 16;
            /// Vectors of a piece of a row, which stay in registers.
            const PIECE: usize = 4;
            /// How many updates ahead memory is asked for.
            const AHEAD: usize = 8;

            /// # Safety
            /// As [`AddSorted`](super::AddSorted) says; the processor has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn add_sorted(
                s: &Sorted<'_>,
                at: Place,
                some: Range<usize>,
                src: *const f32,
                (was, number): (*const f32, f32),
                out: *mut f32,
            ) -> Place {
                let row = s.row;
                let update = |k: usize| {
                    let at = s.which.map_or(k - some.start, |w| w[k] as usize);
                    src.wrapping_add(at * row)
                };
                let (mut open, mut k) = (at.open, some.start);
                let mut made = Place { row: s.ends.len(), open: false };
                for (r, end) in s.ends.iter().enumerate().skip(at.row) {
                    let end = *end as usize;
                    if k == some.end && end > k {
                        made = Place { row: r, open };
                        break;
                    }
                    let last = end.min(some.end);
                    let to = out.wrapping_add(r * row);
                    let from = if open { to.cast_const() } else { was.wrapping_add(r * row) };
                    let begin = if was.is_null() && !open { None } else { Some(from) };
                    if s.which.is_some() {
                        for ahead in (k + AHEAD..last + AHEAD).take_while(|ahead| *ahead < some.end) {
                            for line in (0..row.min(8 * LANES)).step_by(LANES) {
                                _mm_prefetch::<_MM_HINT_T0>(update(ahead).wrapping_add(line).cast());
                            }
                        }
                    }
                    if k < last || from != to.cast_const() {
                        let mut c = 0;
                        // SAFETY: the caller's: these elements are in the rows, and those of the last vector that are there
                        unsafe {
                            while c + PIECE * LANES <= row {
                                piece::<PIECE>(c, None, (begin, number), k..last, &update, to);
                                c += PIECE * LANES;
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
                        made = Place { row: r, open: true };
                        break;
                    }
                }
                _mm_sfence();
                made
            }

            /// So many vectors of a row from its element c on; or these elements of them.
            ///
            /// # Safety
            /// As for [`add_sorted`].
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
                // SAFETY: the caller's
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
        let forms: Vec<AddSorted> = Level::available().filter_map(form).collect();
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
                let mut want = if begins == 0 { vec![0.5; rows * row] } else { was.clone() };
                for (k, r) in places.iter().enumerate() {
                    (0..row).for_each(|i| want[r * row + i] += src[k * row + i]);
                }
                for add in &forms {
                    let mut out = if begins == 2 { was.clone() } else { vec![f32::NAN; rows * row] };
                    let from = [std::ptr::null(), was.as_ptr(), out.as_ptr()][begins];
                    let s = Sorted { ends: &ends, which: indirect.then_some(&which[..]), row };
                    let (mut at, mut k) = (Place::default(), 0);
                    while k < places.len() {
                        let end = (k + turn).min(places.len());
                        let rows = if indirect { src.as_ptr() } else { sorted[k * row..].as_ptr() };
                        // SAFETY: all rows are there, and so is what this processor needs
                        at = unsafe { add(&s, at, k..end, rows, (from, 0.5), out.as_mut_ptr()) };
                        k = end;
                    }
                    assert_eq!(at, Place { row: rows, open: false });
                    assert_eq!(out, want, "{row} {begins} {turn}");
                }
            }
        }
    }
}
