//! Numbers that are picked by the rows that they say, a vector of them at a time: what a task of several looks for, which owns some rows.

#[cfg(not(target_family = "wasm"))]
use super::fold::Mix;
use super::rows::Reach;
use crate::runtime::cpu::Level;
use crate::types::DType;

/// How many numbers are picked at a time, at most.
pub const PICKS: usize = 256;

/// Numbers whose rows are of interest, in their order: which they are, and the rows that they say.
#[derive(Clone, Copy, Debug)]
pub struct Picked {
    /// How many.
    pub n: usize,
    /// Which numbers.
    pub which: [u32; PICKS],
    /// Their rows.
    pub place: [u32; PICKS],
}

impl Picked {
    /// None so far.
    pub const NONE: Picked = Picked { n: 0, which: [0; PICKS], place: [0; PICKS] };
}

/// Combines single elements that were picked: those so many bytes apart from one row to the next, each with one of those so many bytes apart.
///
/// The caller upholds: the elements are in memory, and none of the first is one of the second.
pub type PickedAt = unsafe fn(picked: &Picked, dst: (*mut u8, isize), src: (*const u8, isize));

/// # Safety
/// As [`PickedAt`] says.
#[cfg(not(target_family = "wasm"))]
pub(super) unsafe fn picked<M: Mix>(
    p: &Picked,
    (dst, unit): (*mut u8, isize),
    (src, step): (*const u8, isize),
) {
    let size = size_of::<M::M>() as isize;
    for (which, place) in p.which[..p.n].iter().zip(&p.place) {
        let (which, place) = (*which as isize, *place as isize);
        // SAFETY: the caller's: both elements are there
        unsafe {
            if (unit, step) == (size, size) {
                let d = dst.cast::<M::M>().wrapping_offset(place);
                *d = M::join(*d, *src.cast::<M::M>().wrapping_offset(which));
            } else {
                let d = dst.wrapping_offset(place * unit).cast::<M::M>();
                *d = M::join(*d, *src.wrapping_offset(which * step).cast::<M::M>());
            }
        }
    }
}

/// Picks numbers from the first of these on to before the second, until there is room for no more of them: the one to go on with.
///
/// The caller upholds: there are these int32, and at most `i32::MAX`; `own` is within as many rows.
pub type Pick =
    unsafe fn(numbers: *const i32, some: (usize, usize), reach: &Reach, picked: &mut Picked) -> usize;

/// How numbers of this type are picked many at a time, if this machine knows how.
pub(super) fn pick(dtype: DType, level: Level) -> Option<Pick> {
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::I32 && is_x86_feature_detected!("popcnt") {
        match level {
            Level::Avx512 => return Some(x86::of_16),
            Level::Avx2 => return Some(x86::of_8),
            Level::Base => (),
        }
    }
    let _ = (dtype, level);
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{PICKS, Picked, Reach};
    use std::arch::x86_64::*;

    /// A vector of int32.
    ///
    /// # Safety
    /// Of all that it does: the processor has its instructions.
    trait Numbers: Copy {
        const LANES: usize;
        /// The same number in all lanes.
        unsafe fn all(x: i64) -> Self;
        /// 0, 1, 2, …
        unsafe fn steps() -> Self;
        /// The first n of these numbers, 0 behind them; nothing behind them is read.
        unsafe fn load(at: *const i32, n: usize) -> Self;
        unsafe fn plus(self, x: Self) -> Self;
        unsafe fn minus(self, x: Self) -> Self;
        /// `self + x` where it is negative.
        unsafe fn counted(self, x: Self) -> Self;
        /// The nearest from 0 to `most`.
        unsafe fn clipped(self, most: Self) -> Self;
        /// A bit for each lane: whether it is below `x`, without sign.
        unsafe fn below(self, x: Self) -> u32;
        /// Puts those lanes one after the other, and something behind them.
        unsafe fn put(self, lanes: u32, to: *mut u32);
    }

    impl Numbers for __m512i {
        const LANES: usize = 16;
        #[inline(always)]
        unsafe fn all(x: i64) -> Self {
            // SAFETY: the caller's, as in all that follow
            unsafe { _mm512_set1_epi32(x as i32) }
        }
        #[inline(always)]
        unsafe fn steps() -> Self {
            // SAFETY: as above
            unsafe { _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) }
        }
        #[inline(always)]
        unsafe fn load(at: *const i32, n: usize) -> Self {
            let some = if n < Self::LANES { ((1u32 << n) - 1) as __mmask16 } else { !0 };
            // SAFETY: as above
            unsafe { _mm512_maskz_loadu_epi32(some, at) }
        }
        #[inline(always)]
        unsafe fn plus(self, x: Self) -> Self {
            // SAFETY: as above
            unsafe { _mm512_add_epi32(self, x) }
        }
        #[inline(always)]
        unsafe fn minus(self, x: Self) -> Self {
            // SAFETY: as above
            unsafe { _mm512_sub_epi32(self, x) }
        }
        #[inline(always)]
        unsafe fn counted(self, x: Self) -> Self {
            // SAFETY: as above
            unsafe { _mm512_mask_add_epi32(self, _mm512_movepi32_mask(self), self, x) }
        }
        #[inline(always)]
        unsafe fn clipped(self, most: Self) -> Self {
            // SAFETY: as above
            unsafe { _mm512_max_epi32(_mm512_min_epi32(self, most), Self::all(0)) }
        }
        #[inline(always)]
        unsafe fn below(self, x: Self) -> u32 {
            // SAFETY: as above
            unsafe { _mm512_cmplt_epu32_mask(self, x) }.into()
        }
        #[inline(always)]
        unsafe fn put(self, lanes: u32, to: *mut u32) {
            // SAFETY: as above
            unsafe { _mm512_storeu_epi32(to.cast(), _mm512_maskz_compress_epi32(lanes as __mmask16, self)) }
        }
    }

    /// For each set of eight lanes which these are, one byte a lane.
    static LANES_OF: [u64; 256] = {
        let (mut all, mut set) = ([0; 256], 0);
        while set < 256 {
            let (mut lane, mut n) = (0, 0);
            while lane < 8 {
                if set >> lane & 1 == 1 {
                    all[set] |= lane << (8 * n);
                    n += 1;
                }
                lane += 1;
            }
            set += 1;
        }
        all
    };

    impl Numbers for __m256i {
        const LANES: usize = 8;
        #[inline(always)]
        unsafe fn all(x: i64) -> Self {
            // SAFETY: as above
            unsafe { _mm256_set1_epi32(x as i32) }
        }
        #[inline(always)]
        unsafe fn steps() -> Self {
            // SAFETY: as above
            unsafe { _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) }
        }
        #[inline(always)]
        unsafe fn load(at: *const i32, n: usize) -> Self {
            // SAFETY: as above
            unsafe {
                if n >= Self::LANES {
                    return _mm256_loadu_si256(at.cast());
                }
                _mm256_maskload_epi32(at, _mm256_cmpgt_epi32(Self::all(n as i64), Self::steps()))
            }
        }
        #[inline(always)]
        unsafe fn plus(self, x: Self) -> Self {
            // SAFETY: as above
            unsafe { _mm256_add_epi32(self, x) }
        }
        #[inline(always)]
        unsafe fn minus(self, x: Self) -> Self {
            // SAFETY: as above
            unsafe { _mm256_sub_epi32(self, x) }
        }
        #[inline(always)]
        unsafe fn counted(self, x: Self) -> Self {
            // SAFETY: as above
            unsafe { self.plus(_mm256_and_si256(_mm256_srai_epi32::<31>(self), x)) }
        }
        #[inline(always)]
        unsafe fn clipped(self, most: Self) -> Self {
            // SAFETY: as above
            unsafe { _mm256_max_epi32(_mm256_min_epi32(self, most), Self::all(0)) }
        }
        #[inline(always)]
        unsafe fn below(self, x: Self) -> u32 {
            // SAFETY: as above; less without sign is less with the first bits turned
            unsafe {
                let turn = Self::all(i32::MIN.into());
                let below = _mm256_cmpgt_epi32(_mm256_xor_si256(x, turn), _mm256_xor_si256(self, turn));
                _mm256_movemask_ps(_mm256_castsi256_ps(below)) as u32
            }
        }
        #[inline(always)]
        unsafe fn put(self, lanes: u32, to: *mut u32) {
            // SAFETY: as above
            unsafe {
                let which = _mm_cvtsi64_si128(LANES_OF[lanes as u8 as usize] as i64);
                let first = _mm256_permutevar8x32_epi32(self, _mm256_cvtepu8_epi32(which));
                _mm256_storeu_si256(to.cast(), first);
            }
        }
    }

    /// # Safety
    /// As [`Pick`](super::Pick) says; the processor has the vector's instructions.
    #[inline(always)]
    unsafe fn picked_by<V: Numbers>(
        numbers: *const i32,
        (from, end): (usize, usize),
        r: &Reach,
        picked: &mut Picked,
    ) -> usize {
        let (lo, hi) = (r.own.0.max(0), r.own.1.min(r.most.saturating_add(1)));
        let (mut k, mut n) = (from, 0);
        // SAFETY: the caller's: there are these numbers; and there is room for a vector more
        unsafe {
            let (first, rows) = (V::all(lo), V::all((hi - lo).max(0)));
            let (back, most) = (V::all(r.back), V::all(r.most.clamp(0, i64::from(i32::MAX))));
            let steps = V::steps();
            while k < end && n + V::LANES <= PICKS {
                let many = (end - k).min(V::LANES);
                let mut place = V::load(numbers.add(k), many).counted(back);
                if r.clip {
                    place = place.clipped(most);
                }
                let own = place.minus(first).below(rows) & ((1u32 << many) - 1);
                place.put(own, picked.place.as_mut_ptr().add(n));
                V::all(k as i64).plus(steps).put(own, picked.which.as_mut_ptr().add(n));
                n += own.count_ones() as usize;
                k += many;
            }
        }
        picked.n = n;
        k
    }

    /// # Safety
    /// As [`Pick`](super::Pick) says; the processor has these features.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2,popcnt")]
    pub(super) unsafe fn of_16(
        numbers: *const i32,
        some: (usize, usize),
        r: &Reach,
        p: &mut Picked,
    ) -> usize {
        // SAFETY: the caller's
        unsafe { picked_by::<__m512i>(numbers, some, r, p) }
    }

    /// # Safety
    /// As [`Pick`](super::Pick) says; the processor has these features.
    #[target_feature(enable = "avx2,fma,bmi2,popcnt")]
    pub(super) unsafe fn of_8(numbers: *const i32, some: (usize, usize), r: &Reach, p: &mut Picked) -> usize {
        // SAFETY: the caller's
        unsafe { picked_by::<__m256i>(numbers, some, r, p) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::kernels::fold::Add;

    #[test]
    fn numbers_are_picked_in_their_order() {
        let picks: Vec<Pick> = Level::available().filter_map(|l| pick(DType::I32, l)).collect();
        let numbers: Vec<i32> = (0..1000)
            .map(|k| [k * 37 % 80 - 20, i32::MIN, i32::MAX][(k % 7 / 5 * (k % 3)) as usize])
            .collect();
        for (own, back, clip, most) in [
            ((0, i64::MAX), 0, false, 59),
            ((10, 20), 60, false, 59),
            ((0, 1), 0, true, 59),
            ((50, 60), 60, true, 59),
            ((0, i64::MAX), 0, true, -1),
            ((0, 60), 60, true, i64::from(i32::MAX) + 7),
        ] {
            let reach = Reach { most, back, clip, unit: 1, own };
            let mut want = Vec::new();
            for (k, number) in numbers.iter().enumerate() {
                let n = i64::from(*number) + if *number < 0 { back } else { 0 };
                let place = if clip { n.min(most).max(0) } else { n };
                if (0..=most).contains(&place) && (own.0..own.1).contains(&place) {
                    want.push((k as u32, place as u32));
                }
            }
            for pick in &picks {
                let (mut made, mut k, mut picked) = (Vec::new(), 0, Picked::NONE);
                while k < numbers.len() {
                    // SAFETY: these are the numbers
                    k = unsafe { pick(numbers.as_ptr(), (k, numbers.len()), &reach, &mut picked) };
                    made.extend((0..picked.n).map(|i| (picked.which[i], picked.place[i])));
                }
                assert_eq!(made, want, "{reach:?}");
            }
        }
    }

    #[test]
    fn picked_elements_are_combined_in_their_order() {
        let mut p = Picked::NONE;
        p.n = 3;
        p.which[..3].copy_from_slice(&[0, 2, 5]);
        p.place[..3].copy_from_slice(&[1, 4, 1]);
        for (unit, step) in [(1, 1), (2, 1), (1, 3)] {
            let src: Vec<f32> = (0..18).map(|k| (1 << k) as f32).collect();
            let (mut made, mut want) = ([0.5f32; 10], [0.5f32; 10]);
            for k in 0..3 {
                want[p.place[k] as usize * unit] += src[p.which[k] as usize * step];
            }
            let (unit, step) = (unit as isize * 4, step as isize * 4);
            // SAFETY: ten elements, and eighteen
            unsafe { picked::<Add<f32>>(&p, (made.as_mut_ptr().cast(), unit), (src.as_ptr().cast(), step)) }
            assert_eq!(made, want);
        }
    }
}
