//! Rows that are found by numbers, a batch at a time: where they are, and rows of elements copied or combined there.
//!
//! Rows are far apart, so that each is asked for some time before its turn: else the memory's answers would be waited for one by one.

use super::fold::Mix;
use crate::runtime::cpu::{Level, for_each_isa};
use crate::types::DType;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Rows of a batch, at most.
pub const BATCH: usize = 64;
/// How many rows ahead memory is asked for.
const AHEAD: usize = 8;
/// Bytes that come at once.
pub const LINE: usize = 64;

/// How numbers say where rows are.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Numbers are 0 to this; where it is negative nothing is anywhere.
    pub most: i64,
    /// What is added to a negative number.
    pub back: i64,
    /// Whether others mean the nearest; else nothing is there.
    pub clip: bool,
    /// Bytes from one number's row to the next one's.
    pub unit: i64,
    /// Of all rows only these are of interest: from the first on, to before the second.
    pub own: (i64, i64),
}

impl Reach {
    /// A number counted from the begin.
    #[inline(always)]
    pub fn counted(&self, number: i64) -> i64 {
        if on_a_page!() { number } else { number + ((number >> 63) & self.back) }
    }
}

/// Where rows of a batch begin, in bytes, and whether they are there.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Bytes to each.
    pub at: [i64; BATCH],
    /// Whether it is there.
    pub there: [bool; BATCH],
}

/// Adds to each of n rows the bytes that its number says, and strikes out those that are not there. Numbers are so many bytes apart.
///
/// The caller upholds: there are n numbers of the function's type, and n is at most [`BATCH`].
pub type Find = unsafe fn(n: usize, numbers: *const u8, step: isize, reach: &Reach, found: &mut Found);

/// Combines n rows of so many elements into those at `to[k]` bytes behind `dst`: with those `from[k]` bytes behind `src`, one after the other.
///
/// The caller upholds: all of these rows are in memory, and none of `dst` overlaps one of `src`.
pub type MixAt =
    unsafe fn(n: usize, row: usize, dst: *mut u8, to: *const i64, src: *const u8, from: *const i64);

/// Integers that say where.
pub(super) trait Whole: Copy {
    /// The same, or the nearest that 63 bits have.
    fn wide(self) -> i64;
}
macro_rules! wholes {
    ($($T:ident)*) => { $( impl Whole for $T {
        #[inline(always)]
        fn wide(self) -> i64 { i64::from(self) }
    } )* };
}
wholes!(i8 i16 i32 i64 u8 u16 u32);
impl Whole for u64 {
    #[inline(always)]
    fn wide(self) -> i64 {
        self.min(i64::MAX as u64) as i64
    }
}

/// # Safety
/// As [`Find`] says.
#[inline(always)]
unsafe fn find_body<T: Whole>(n: usize, numbers: *const u8, step: isize, r: &Reach, f: &mut Found) {
    let (lo, hi) = if r.most < 0 { (0, 0) } else { r.own };
    let (at, there) = (&mut f.at[..n], &mut f.there[..n]);
    let mut one = |k: usize, number: i64| {
        let number = r.counted(number);
        let place = number.min(r.most).max(0);
        at[k] += place * r.unit;
        there[k] &= (r.clip | (place == number)) & (place >= lo) & (place < hi);
    };
    if step == size_of::<T>() as isize {
        // SAFETY: the caller's: n numbers
        let numbers = unsafe { from_raw_parts(numbers.cast::<T>(), n) };
        for (k, x) in numbers.iter().enumerate() {
            one(k, x.wide());
        }
    } else {
        for k in 0..n {
            // SAFETY: the caller's: there is number k
            one(k, unsafe { *numbers.wrapping_offset(k as isize * step).cast::<T>() }.wide());
        }
    }
}

/// Asks for these bytes of memory, or the first of them.
#[inline(always)]
fn ask(at: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..bytes.min(8 * LINE)).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it is a hint, of any address
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line).cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (at, bytes, LINE);
}

/// Asks for a line of memory that is wanted some time later: into the second cache.
#[inline(always)]
pub fn ask_later(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: it is a hint, of any address
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

/// # Safety
/// As [`MixAt`] says.
#[inline(always)]
unsafe fn mix_at_body<M: Mix>(
    n: usize,
    row: usize,
    dst: *mut u8,
    to: *const i64,
    src: *const u8,
    from: *const i64,
) {
    // SAFETY: the caller's: n offsets each; the rows are in memory, and those of dst overlap none of src
    unsafe {
        let (to, from) = (from_raw_parts(to, n), from_raw_parts(from, n));
        let at = |k: usize| dst.wrapping_offset(to[k] as isize).cast::<M::M>();
        let with = |k: usize| src.wrapping_offset(from[k] as isize).cast::<M::M>();
        if row == 1 {
            for k in 0..n {
                let d = at(k);
                *d = M::join(*d, *with(k));
            }
            return;
        }
        let bytes = row * size_of::<M::M>();
        (0..n.min(AHEAD)).for_each(|k| ask(at(k).cast(), bytes));
        for k in 0..n {
            if k + AHEAD < n {
                ask(at(k + AHEAD).cast(), bytes);
            }
            let (d, s) = (from_raw_parts_mut(at(k), row), from_raw_parts(with(k), row));
            for (d, s) in d.iter_mut().zip(s) {
                *d = M::join(*d, *s);
            }
        }
    }
}

/// Combines n single elements, each with the one that its number says: the first at `dst` and `src`, the next ones `to` and `from` bytes on.
/// Numbers are so many bytes apart.
///
/// The caller upholds: there are n numbers of the function's type; elements that are there are in memory, and none of `dst` is one of `src`.
pub type OneAt = unsafe fn(
    n: usize,
    numbers: (*const u8, isize),
    reach: &Reach,
    dst: (*mut u8, isize),
    src: (*const u8, isize),
);

/// Finding and combining in one loop, whose branch a processor foresees where (nearly) all elements are there. It takes them one by one, so
/// that wide vectors are of no use.
///
/// # Safety
/// As [`OneAt`] says.
unsafe fn one_body<T: Whole, M: Mix>(
    n: usize,
    (numbers, step): (*const u8, isize),
    r: &Reach,
    (dst, to): (*mut u8, isize),
    (src, from): (*const u8, isize),
) {
    let (lo, hi) = if r.most < 0 { (0, 0) } else { r.own };
    let (lo, hi) = (lo.max(0), hi.min(r.most.saturating_add(1)));
    let (unit, some) = (r.unit as isize, hi.saturating_sub(lo).max(0) as u64);
    let size = size_of::<M::M>() as isize;
    if step == size_of::<T>() as isize && (unit, to, from, r.clip) == (size, 0, size, false) {
        // all of it follows one another: half of the instructions
        // SAFETY: the caller's: n numbers, and as many elements to combine with
        let (numbers, src) =
            unsafe { (from_raw_parts(numbers.cast::<T>(), n), from_raw_parts(src.cast::<M::M>(), n)) };
        let first = dst.wrapping_offset(lo as isize * size).cast::<M::M>();
        for (number, with) in numbers.iter().zip(src) {
            let place = r.counted(number.wide()).wrapping_sub(lo);
            if (place as u64) < some {
                let d = first.wrapping_offset(place as isize);
                // SAFETY: the caller's: the element is there
                unsafe { *d = M::join(*d, *with) }
            }
        }
        return;
    }
    let (mut dst, mut src) = (dst, src);
    let mut one = |number: i64| {
        let number = r.counted(number);
        let place = if r.clip { number.min(r.most).max(0) } else { number };
        if (place.wrapping_sub(lo) as u64) < some {
            let d = dst.wrapping_offset(place as isize * unit).cast::<M::M>();
            // SAFETY: the caller's: the element is there
            unsafe { *d = M::join(*d, *src.cast::<M::M>()) }
        }
        (dst, src) = (dst.wrapping_offset(to), src.wrapping_offset(from));
    };
    if step == size_of::<T>() as isize {
        // SAFETY: the caller's: n numbers
        unsafe { from_raw_parts(numbers.cast::<T>(), n) }.iter().for_each(|x| one(x.wide()));
    } else {
        for k in 0..n as isize {
            // SAFETY: the caller's: there is number k
            one(unsafe { *numbers.wrapping_offset(k * step).cast::<T>() }.wide());
        }
    }
}

for_each_isa! {
    mod find_at<T: Whole>(n: usize, numbers: *const u8, step: isize, r: &Reach, f: &mut Found) at L
        => find_body::<T>(n, numbers, step, r, f);
    mod mix_at<M: Mix>(n: usize, row: usize, dst: *mut u8, to: *const i64, src: *const u8, from: *const i64) at L
        => mix_at_body::<M>(n, row, dst, to, src, from);
}

/// Places that numbers of this type say.
pub(super) fn find<T: Whole>(level: Level) -> Find {
    find_at::at::<T>(level)
}
/// Rows combined at places.
pub(super) fn mix<M: Mix>(level: Level) -> MixAt {
    mix_at::at::<M>(level)
}
/// Single elements combined where numbers of this type say; nothing: rare types go by [`find`] and [`mix`].
pub(super) fn one<M: Mix>(dtype: DType) -> Option<OneAt> {
    match dtype {
        _ if on_a_page!() => None,
        DType::I32 => Some(one_body::<i32, M>),
        DType::I64 => Some(one_body::<i64, M>),
        _ => None,
    }
}

/// Copies n rows of so many elements: from `from[k]` bytes behind `src` to `to[k]` bytes behind `dst`, one after the other.
///
/// # Safety
/// As [`MixAt`] says, but that there may be anything at `dst`.
pub unsafe fn copy_at<T: Copy>(row: usize, dst: *mut u8, to: &[i64], src: *const u8, from: &[i64]) {
    let at = |k: usize| dst.wrapping_offset(to[k] as isize).cast::<T>();
    let with = |k: usize| src.wrapping_offset(from[k] as isize).cast::<T>();
    let n = to.len().min(from.len());
    // SAFETY: the caller's
    unsafe {
        if row == 1 {
            for k in 0..n {
                *at(k) = *with(k);
            }
            return;
        }
        let bytes = row * size_of::<T>();
        (0..n.min(AHEAD)).for_each(|k| ask(with(k).cast(), bytes));
        for k in 0..n {
            if k + AHEAD < n {
                ask(with(k + AHEAD).cast(), bytes);
            }
            std::ptr::copy_nonoverlapping(with(k), at(k), row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::sentence::Combine;
    use crate::runtime::kernels::{find_places, mix_at};
    use crate::types::DType;

    #[test]
    fn numbers_say_where() {
        let numbers = [3i32, -1, 0, 9, 2, 7];
        let all = (0, i64::MAX);
        let at = |reach: &Reach| {
            let mut found = Found { at: [100; BATCH], there: [true; BATCH] };
            // SAFETY: six numbers
            unsafe { find_places(DType::I32)(6, numbers.as_ptr().cast(), 4, reach, &mut found) }
            (found.at[..6].to_vec(), found.there[..6].to_vec())
        };
        let reach = Reach { most: 7, back: 0, clip: false, unit: 10, own: all };
        let (found, there) = at(&reach);
        assert_eq!(found, [130, 100, 100, 170, 120, 170]);
        assert_eq!(there, [true, false, true, false, true, true]);
        assert_eq!(at(&Reach { clip: true, ..reach }).1, [true; 6]);
        assert_eq!(at(&Reach { own: (2, 4), ..reach }).1, [true, false, false, false, true, false]);
        assert_eq!(at(&Reach { most: -1, clip: true, ..reach }).1, [false; 6]);
        let (found, there) = at(&Reach { back: 8, ..reach });
        assert_eq!((found[1], there), (170, vec![true, true, true, false, true, true]));
        // every second one, as any type, on every level
        let mut found = Found { at: [0; BATCH], there: [true; BATCH] };
        let wide = [5u64, 0, u64::MAX, 0];
        for level in Level::available() {
            found.at = [0; BATCH];
            // SAFETY: two numbers, 16 bytes apart
            unsafe { find::<u64>(level)(2, wide.as_ptr().cast(), 16, &reach, &mut found) }
            assert_eq!((&found.at[..2], &found.there[..2]), (&[50, 70][..], &[true, false][..]));
        }
    }

    #[test]
    fn rows_are_combined_one_after_the_other() {
        for row in [1, 2, 7, 40] {
            let n = 21;
            let src: Vec<f32> = (0..n * row).map(|k| k as f32).collect();
            let mut dst = vec![0.5f32; 4 * row];
            let mut want = dst.clone();
            let (mut to, mut from) = (Vec::new(), Vec::new());
            for k in 0..n {
                let place = k * k % 4;
                to.push((place * row * 4) as i64);
                from.push((k * row * 4) as i64);
                for j in 0..row {
                    want[place * row + j] += src[k * row + j];
                }
            }
            let mix = mix_at(Combine::Add, DType::F32).unwrap();
            let (d, s) = (dst.as_mut_ptr().cast(), src.as_ptr().cast());
            // SAFETY: the rows are in both
            unsafe { mix(n, row, d, to.as_ptr(), s, from.as_ptr()) }
            assert_eq!(dst, want, "{row}");
            // SAFETY: as above
            unsafe { copy_at::<u32>(row, dst.as_mut_ptr().cast(), &to, s, &from) }
            assert_eq!(dst[..row], src[20 * row..], "{row}");
        }
    }

    #[test]
    fn single_elements_are_found_and_combined_in_one_loop() {
        let numbers: [i64; 9] = [3, -1, 3, 9, i64::MAX, 7, 0, i64::MIN, 7];
        let narrow: Vec<i32> = numbers.iter().map(|n| (*n).clamp(-9, 99) as i32).collect();
        let src: Vec<f32> = (0..18).map(|k| (1 << k) as f32).collect();
        let all = Reach { most: 7, back: 0, clip: false, unit: 4, own: (0, i64::MAX) };
        let few = Reach { own: (2, 7), back: 8, ..all };
        for reach in
            [all, few, Reach { clip: true, ..all }, Reach { clip: true, ..few }, Reach { most: -1, ..all }]
        {
            let mut want = [0.5f32; 8];
            for (k, n) in numbers.iter().enumerate() {
                let n = if *n < 0 { *n + reach.back } else { *n };
                let place = if reach.clip { n.clamp(0, 7) } else { n };
                if (0..=reach.most).contains(&place) && (reach.own.0..reach.own.1).contains(&place) {
                    want[place as usize] += src[2 * k];
                }
            }
            for wide in [true, false] {
                let dtype = if wide { DType::I64 } else { DType::I32 };
                let one = crate::runtime::kernels::one_at(Combine::Add, DType::F32, dtype).unwrap();
                let (numbers, step) =
                    if wide { (numbers.as_ptr().cast(), 8) } else { (narrow.as_ptr().cast(), 4) };
                let every: Vec<f32> = src.iter().step_by(2).copied().collect();
                for (src, from) in [(&src, 8), (&every, 4)] {
                    let mut made = [0.5f32; 8];
                    // SAFETY: nine numbers, nine of these elements, and eight that are combined with
                    unsafe {
                        let dst = made.as_mut_ptr().cast();
                        one(9, (numbers, step), &reach, (dst, 0), (src.as_ptr().cast(), from));
                    }
                    assert_eq!(made, want, "{reach:?}");
                }
            }
        }
    }
}
