//! Products of few terms, where operands are read as they are: to pack them would take as long as the product. The gradient of a convolution by
//! its filter is many of these, added to one result.
//!
//! Only for float32 on AVX-512, where a tile of four rows by 64 columns is in sixteen registers: four vectors of a row of the right side are read
//! once for four rows. (Written as loops over arrays it took a third longer: the compiler keeps such arrays in memory.)

use super::{Mat, Out, Sizes};
use std::arch::x86_64::*;

/// So many terms are few.
pub(super) const FEW: usize = 64;
/// Elements of a result that stays in the first-level cache, nearly. (Larger ones gain nothing.)
const SMALL: usize = 1 << 14;
/// Rows and vectors of a tile.
const ROWS: usize = 4;
const WIDE: usize = 4;
/// Elements of a vector.
const LANES: usize = 16;

/// Columns of a strip.
const STRIP: usize = WIDE * LANES;

/// Whether rows of the right side and of the result are elements that follow one another, and the product is worth it.
pub(super) fn fits<T>(s: Sizes, c: Out<T>, b: Mat<T>) -> bool {
    let few = s.k <= FEW && s.m * s.n <= SMALL;
    few && c.cs == 1 && b.cs == 1 && s.m >= ROWS && s.n >= LANES
}

/// The product: each element's terms in order, by fused multiply-adds; with `accumulate` their sum is added to what is there.
///
/// # Safety
/// As [`gemm`](super::gemm) says; the processor has level AVX-512, and [`fits`] holds.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn product(s: Sizes, c: Out<f32>, a: Mat<f32>, b: Mat<f32>, accumulate: bool) {
    for from in (0..s.n).step_by(STRIP) {
        let width = (s.n - from).min(STRIP);
        let c = Out { at: c.at.wrapping_add(from), ..c };
        // SAFETY: the caller's: the columns are of the right side and of the result
        unsafe { strip(Sizes { n: width, ..s }, c, a, b.from(0, from), accumulate) }
    }
}

/// At most 64 columns.
///
/// # Safety
/// As for [`product`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn strip(s: Sizes, c: Out<f32>, a: Mat<f32>, b: Mat<f32>, accumulate: bool) {
    let whole = s.m / ROWS * ROWS;
    let at = |i: usize, from: usize| (c.at.wrapping_offset(i as isize * c.rs).wrapping_add(from), c.rs);
    // SAFETY: the caller's: the tiles are in the result, their rows and columns are of the operands
    unsafe {
        if s.n == STRIP {
            for i in (0..whole).step_by(ROWS) {
                tile::<ROWS, WIDE>(s.k, at(i, 0), a.from(i, 0), b, !0, accumulate);
            }
            for i in whole..s.m {
                tile::<1, WIDE>(s.k, at(i, 0), a.from(i, 0), b, !0, accumulate);
            }
            return;
        }
        for from in (0..s.n).step_by(LANES) {
            let (b, mask) = (b.from(0, from), !0 >> (LANES - (s.n - from).min(LANES)));
            for i in (0..whole).step_by(ROWS) {
                tile::<ROWS, 1>(s.k, at(i, from), a.from(i, 0), b, mask, accumulate);
            }
            for i in whole..s.m {
                tile::<1, 1>(s.k, at(i, from), a.from(i, 0), b, mask, accumulate);
            }
        }
    }
}

/// A vector: whole in a wide tile, else the lanes that the mask names.
///
/// # Safety
/// There are these lanes.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn load<const V: usize>(at: *const f32, mask: __mmask16) -> __m512 {
    // SAFETY: the caller's
    unsafe {
        match V {
            WIDE => _mm512_loadu_ps(at),
            _ => _mm512_maskz_loadu_ps(mask, at),
        }
    }
}

/// R rows of V vectors. Lanes that the mask does not name are neither read nor written; a wide tile has all.
///
/// # Safety
/// As for [`product`]: `at` is the first element of the tile, whose rows are `step` apart; `a` and `b` begin at its row and column.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn tile<const R: usize, const V: usize>(
    k: usize,
    (at, step): (*mut f32, isize),
    a: Mat<f32>,
    b: Mat<f32>,
    mask: __mmask16,
    accumulate: bool,
) {
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    let (mut left, mut right) = (a.at, b.at);
    for _ in 0..k {
        let mut row = [_mm512_setzero_ps(); V];
        for (v, x) in row.iter_mut().enumerate() {
            // SAFETY: the caller's: vector v of a row of the right side, as far as the mask says
            *x = unsafe { load::<V>(right.wrapping_add(LANES * v), mask) };
        }
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's: an element of the left side
            let x = _mm512_set1_ps(unsafe { *left.wrapping_offset(r as isize * a.rs) });
            for (sum, y) in sums.iter_mut().zip(row) {
                *sum = _mm512_fmadd_ps(x, y, *sum);
            }
        }
        (left, right) = (left.wrapping_offset(a.cs), right.wrapping_offset(b.rs));
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            let to = at.wrapping_offset(r as isize * step).wrapping_add(LANES * v);
            // SAFETY: the caller's: vector v of row r of the tile, as far as the mask says
            unsafe {
                let made = if accumulate { _mm512_add_ps(load::<V>(to, mask), *sum) } else { *sum };
                match V {
                    WIDE => _mm512_storeu_ps(to, made),
                    _ => _mm512_mask_storeu_ps(to, mask, made),
                }
            }
        }
    }
}
