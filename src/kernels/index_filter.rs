//! Index filters: select the indices of the rows that a task owns.
//!
//! If several tasks share a scatter, each task owns some of the rows. A filter processes a vector
//! of indices at a time.

use super::gather::IndexSpec;
use super::reduce::CombineOp;
use crate::core::DType;
use crate::kernels::cpu::IsaLevel;

/// The maximum number of indices that are selected at a time.
pub const MAX_PICKED_ROWS: usize = 256;

/// The selected indices, in order: their positions among all indices, and their rows.
#[derive(Clone, Copy, Debug)]
pub struct PickedRows {
    /// The number of selected indices.
    pub n: usize,
    /// The position of each selected index in the list of indices.
    pub positions: [u32; MAX_PICKED_ROWS],
    /// The row of each selected index.
    pub rows: [u32; MAX_PICKED_ROWS],
}

impl PickedRows {
    /// The empty selection.
    pub const NONE: PickedRows =
        PickedRows { n: 0, positions: [0; MAX_PICKED_ROWS], rows: [0; MAX_PICKED_ROWS] };
}

/// Combines the single elements of the selected rows with the updates at the selected positions.
///
/// The distances are in bytes: between the rows' elements at `dst`, and between the updates at
/// `src`.
///
/// The caller upholds: all selected elements and updates are in memory and initialized, the
/// elements are writable, and no element is an update.
pub type CombinePicked = unsafe fn(picked: &PickedRows, dst: (*mut u8, isize), src: (*const u8, isize));

/// Combines the single elements of the selected rows with the updates at the selected positions.
///
/// # Safety
/// The caller upholds the contract of [`CombinePicked`].
pub(super) unsafe fn combine_picked<M: CombineOp>(
    p: &PickedRows,
    (dst, unit): (*mut u8, isize),
    (src, step): (*const u8, isize),
) {
    let size = size_of::<M::M>() as isize;
    for (which, place) in p.positions[..p.n].iter().zip(&p.rows) {
        let (which, place) = (*which as isize, *place as isize);
        // SAFETY: the element of the row and the update at the position are in memory (caller
        // contract).
        unsafe {
            if (unit, step) == (size, size) {
                let d = dst.cast::<M::M>().wrapping_offset(place);
                *d = M::combine_stored(*d, *src.cast::<M::M>().wrapping_offset(which));
            } else {
                let d = dst.wrapping_offset(place * unit).cast::<M::M>();
                *d = M::combine_stored(*d, *src.wrapping_offset(which * step).cast::<M::M>());
            }
        }
    }
}

/// Selects indices from the range `some` until the selection is full or the range ends.
///
/// Returns the position to continue from.
///
/// The caller upholds: `numbers` points to the int32 indices of the range, of which there are at
/// most `i32::MAX`, and the owned rows are below `i32::MAX`.
pub type IndexFilter =
    unsafe fn(numbers: *const i32, some: (usize, usize), reach: &IndexSpec, picked: &mut PickedRows) -> usize;

/// Returns the filter for indices of this type, if the processor has one.
pub(super) fn index_filter(dtype: DType, level: IsaLevel) -> Option<IndexFilter> {
    #[cfg(target_arch = "x86_64")]
    if dtype == DType::I32 && is_x86_feature_detected!("popcnt") {
        match level {
            IsaLevel::Avx512 => return Some(x86::filter_avx512),
            IsaLevel::Avx2 => return Some(x86::filter_avx2),
            IsaLevel::Base => (),
        }
    }
    let _ = (dtype, level);
    None
}

/// Vectors of int32 indices: 16 (AVX-512) or 8 (AVX2). Both modules have the same functions.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{IndexSpec, MAX_PICKED_ROWS, PickedRows};
    use crate::kernels::simd_vec::at_level;

    /// Defines the filter of a level with these features.
    macro_rules! filter {
        ($level:ident $name:ident $features:tt) => {
            /// Selects indices, a vector at a time.
            ///
            /// # Safety
            /// The caller upholds the contract of [`IndexFilter`](super::IndexFilter); the
            /// processor has these features.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(
                numbers: *const i32,
                (from, end): (usize, usize),
                r: &IndexSpec,
                picked: &mut PickedRows,
            ) -> usize {
                use $level::*;
                let (lo, hi) = (r.owned_rows.0.max(0), r.owned_rows.1.min(r.max_index.saturating_add(1)));
                let (mut k, mut n) = (from, 0);
                let (first, rows) = (splat(lo), splat((hi - lo).max(0)));
                let (back, most) =
                    (splat(r.negative_offset), splat(r.max_index.clamp(0, i64::from(i32::MAX))));
                let steps = iota();
                while k < end && n + LANES <= MAX_PICKED_ROWS {
                    let many = (end - k).min(LANES);
                    // SAFETY: the indices from `k` to `end` are readable (caller contract).
                    let mut place = add_where_negative(unsafe { load(numbers.add(k), many) }, back);
                    if r.clip {
                        place = clip(place, most);
                    }
                    let own = below(minus(place, first), rows) & ((1u32 << many) - 1);
                    // SAFETY: the loop condition leaves space for a vector in the selection.
                    unsafe {
                        compress_store(place, own, picked.rows.as_mut_ptr().add(n));
                        compress_store(
                            plus(splat(k as i64), steps),
                            own,
                            picked.positions.as_mut_ptr().add(n),
                        );
                    }
                    n += own.count_ones() as usize;
                    k += many;
                }
                picked.n = n;
                k
            }
        };
    }
    filter! { avx512 filter_avx512 "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2,popcnt" }
    filter! { avx2 filter_avx2 "avx2,fma,bmi2,popcnt" }

    mod avx512 {
        use super::at_level;
        use std::arch::x86_64::*;

        pub(super) const LANES: usize = 16;

        at_level! { "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2,popcnt"
            /// Returns a vector with `x` in all lanes.
            [fn splat](x: i64) -> __m512i { _mm512_set1_epi32(x as i32) }
            /// Returns the vector with the lanes 0, 1, 2 and so on.
            [fn iota]() -> __m512i { _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) }
            /// Loads the first `n` indices, and fills the other lanes with 0.
            ///
            /// # Safety
            /// `at` points to `n` indices.
            [unsafe fn load](at: *const i32, n: usize) -> __m512i {
                let some = if n < LANES { ((1u32 << n) - 1) as __mmask16 } else { !0 };
                // SAFETY: the lanes in the mask are among the `n` indices (caller contract).
                unsafe { _mm512_maskz_loadu_epi32(some, at) }
            }
            [fn plus](x: __m512i, y: __m512i) -> __m512i { _mm512_add_epi32(x, y) }
            [fn minus](x: __m512i, y: __m512i) -> __m512i { _mm512_sub_epi32(x, y) }
            /// Returns `x + y` in the lanes where `x` is negative, and `x` in the others.
            [fn add_where_negative](x: __m512i, y: __m512i) -> __m512i { _mm512_mask_add_epi32(x, _mm512_movepi32_mask(x), x, y) }
            /// Clamps each lane to `0..=most`.
            [fn clip](x: __m512i, most: __m512i) -> __m512i { _mm512_max_epi32(_mm512_min_epi32(x, most), splat(0)) }
            /// Returns a bit for each lane, which is set if the lane of `x` is below that of `y`.
            /// The comparison is unsigned.
            [fn below](x: __m512i, y: __m512i) -> u32 { _mm512_cmplt_epu32_mask(x, y).into() }
            /// Stores the lanes whose bits are set one after the other. A full vector is written.
            ///
            /// # Safety
            /// `to` points to space for a vector.
            [unsafe fn compress_store](x: __m512i, lanes: u32, to: *mut u32) {
                // SAFETY: `to` has space for a vector (caller contract).
                unsafe { _mm512_storeu_epi32(to.cast(), _mm512_maskz_compress_epi32(lanes as __mmask16, x)) }
            }
        }
    }

    mod avx2 {
        use super::at_level;
        use std::arch::x86_64::*;

        pub(super) const LANES: usize = 8;

        /// The indices of the lanes in each set of eight lanes, as one byte per lane.
        static LANE_INDICES: [u64; 256] = {
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

        at_level! { "avx2,fma,bmi2,popcnt"
            [fn splat](x: i64) -> __m256i { _mm256_set1_epi32(x as i32) }
            [fn iota]() -> __m256i { _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7) }
            /// Loads the first `n` indices, and fills the other lanes with 0.
            ///
            /// # Safety
            /// `at` points to `n` indices.
            [unsafe fn load](at: *const i32, n: usize) -> __m256i {
                // SAFETY: `n` indices are readable (caller contract); other lanes are masked.
                unsafe {
                    if n >= LANES {
                        return _mm256_loadu_si256(at.cast());
                    }
                    _mm256_maskload_epi32(at, _mm256_cmpgt_epi32(splat(n as i64), iota()))
                }
            }
            [fn plus](x: __m256i, y: __m256i) -> __m256i { _mm256_add_epi32(x, y) }
            [fn minus](x: __m256i, y: __m256i) -> __m256i { _mm256_sub_epi32(x, y) }
            [fn add_where_negative](x: __m256i, y: __m256i) -> __m256i { plus(x, _mm256_and_si256(_mm256_srai_epi32::<31>(x), y)) }
            [fn clip](x: __m256i, most: __m256i) -> __m256i { _mm256_max_epi32(_mm256_min_epi32(x, most), splat(0)) }
            [fn below](x: __m256i, y: __m256i) -> u32 {
                // the unsigned comparison is a signed one with the first bits inverted
                let turn = splat(i32::MIN.into());
                let below = _mm256_cmpgt_epi32(_mm256_xor_si256(y, turn), _mm256_xor_si256(x, turn));
                _mm256_movemask_ps(_mm256_castsi256_ps(below)) as u32
            }
            /// Stores the lanes whose bits are set one after the other. A full vector is written.
            ///
            /// # Safety
            /// `to` points to space for a vector.
            [unsafe fn compress_store](x: __m256i, lanes: u32, to: *mut u32) {
                let which = _mm_cvtsi64_si128(LANE_INDICES[lanes as u8 as usize] as i64);
                let first = _mm256_permutevar8x32_epi32(x, _mm256_cvtepu8_epi32(which));
                // SAFETY: `to` has space for a vector (caller contract).
                unsafe { _mm256_storeu_si256(to.cast(), first) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reduce::Add;

    #[test]
    fn numbers_are_picked_in_their_order() {
        let picks: Vec<IndexFilter> =
            IsaLevel::available().filter_map(|l| index_filter(DType::I32, l)).collect();
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
            let reach =
                IndexSpec { max_index: most, negative_offset: back, clip, row_stride: 1, owned_rows: own };
            let mut expected = Vec::new();
            for (k, number) in numbers.iter().enumerate() {
                let n = i64::from(*number) + if *number < 0 { back } else { 0 };
                let index = if clip { n.min(most).max(0) } else { n };
                if (0..=most).contains(&index) && (own.0..own.1).contains(&index) {
                    expected.push((k as u32, index as u32));
                }
            }
            for pick in &picks {
                let (mut made, mut k, mut picked) = (Vec::new(), 0, PickedRows::NONE);
                while k < numbers.len() {
                    // SAFETY: `numbers` has the indices from `k` to its length.
                    k = unsafe { pick(numbers.as_ptr(), (k, numbers.len()), &reach, &mut picked) };
                    made.extend((0..picked.n).map(|i| (picked.positions[i], picked.rows[i])));
                }
                assert_eq!(made, expected, "{reach:?}");
            }
        }
    }

    #[test]
    fn picked_elements_are_combined_in_their_order() {
        let mut p = PickedRows::NONE;
        p.n = 3;
        p.positions[..3].copy_from_slice(&[0, 2, 5]);
        p.rows[..3].copy_from_slice(&[1, 4, 1]);
        for (unit, step) in [(1, 1), (2, 1), (1, 3)] {
            let src: Vec<f32> = (0..18).map(|k| (1 << k) as f32).collect();
            let (mut made, mut expected) = ([0.5f32; 10], [0.5f32; 10]);
            for k in 0..3 {
                expected[p.rows[k] as usize * unit] += src[p.positions[k] as usize * step];
            }
            let (unit, step) = (unit as isize * 4, step as isize * 4);
            // SAFETY: the selected elements are among ten, and the updates among eighteen.
            unsafe {
                combine_picked::<Add<f32>>(&p, (made.as_mut_ptr().cast(), unit), (src.as_ptr().cast(), step))
            }
            assert_eq!(made, expected);
        }
    }
}
