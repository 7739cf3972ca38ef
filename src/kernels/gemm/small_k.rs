//! Matrix products with small k, computed without packing the operands.
//!
//! Packing would take as long as the product itself. The gradient of a convolution with respect to
//! its filter is a series of such products, added to one result.
//!
//! The code is for float32 on AVX-512 only. A tile of 4 rows by 64 columns occupies sixteen
//! registers, and four vectors of a row of the right operand are loaded once for four rows.
//! Intrinsics are 1.3x faster than loops over local arrays, because the compiler does not keep
//! these arrays in registers.

use super::{GemmSizes, MatMut, MatRef};
use crate::kernels::simd_vec::avx512::{
    First, V as Vector, add, all, fma, load, load_some, store, store_some,
};

/// The maximum k: the number of terms of the sum in each element of the result.
pub(super) const MAX_TERMS: usize = 64;
/// The maximum number of elements in the result.
/// Such a result nearly fits in the first-level cache; larger results gain nothing.
const MAX_RESULT_ELEMENTS: usize = 1 << 14;
/// The number of rows in a tile, and the number of vectors in each of its rows.
const TILE_ROWS: usize = 4;
const TILE_VECTORS: usize = 4;
/// The number of elements in a vector.
const LANES: usize = 16;

/// The number of columns in a wide tile.
const STRIP_COLUMNS: usize = TILE_VECTORS * LANES;

/// Returns true if this code supports the layouts and is faster for these sizes.
/// The rows of the right operand and of the result must be contiguous.
pub(super) fn fits<T>(s: GemmSizes, c: MatMut<T>, b: MatRef<T>) -> bool {
    let few = s.k <= MAX_TERMS && s.m * s.n <= MAX_RESULT_ELEMENTS;
    few && c.cs == 1 && b.cs == 1 && s.m >= TILE_ROWS && s.n >= LANES
}

/// Computes the product, adding the terms of each element in order by fused multiply-adds.
///
/// With `accumulate`, the sum is added to the element of `c`; otherwise it replaces the element.
///
/// # Safety
/// The caller upholds the contract of [`gemm`](super::gemm); the processor has AVX-512, and
/// [`fits`] is true.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn product(s: GemmSizes, c: MatMut<f32>, a: MatRef<f32>, b: MatRef<f32>, accumulate: bool) {
    for from in (0..s.n).step_by(STRIP_COLUMNS) {
        let width = (s.n - from).min(STRIP_COLUMNS);
        let c = MatMut { ptr: c.ptr.wrapping_add(from), ..c };
        // SAFETY: the columns are within the right operand and the result, for which the caller
        // upholds the contract.
        unsafe { column_strip(GemmSizes { n: width, ..s }, c, a, b.offset(0, from), accumulate) }
    }
}

/// Computes at most 64 columns of the product.
///
/// # Safety
/// The caller upholds the contract of [`product`], and `s.n` is at most 64.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn column_strip(s: GemmSizes, c: MatMut<f32>, a: MatRef<f32>, b: MatRef<f32>, accumulate: bool) {
    let whole = s.m / TILE_ROWS * TILE_ROWS;
    let at = |i: usize, from: usize| (c.ptr.wrapping_offset(i as isize * c.rs).wrapping_add(from), c.rs);
    // SAFETY: the tiles are within the result, their rows and columns are within the operands, and
    // the mask excludes the columns after the last one.
    unsafe {
        if s.n == STRIP_COLUMNS {
            for i in (0..whole).step_by(TILE_ROWS) {
                tile::<TILE_ROWS, TILE_VECTORS>(s.k, at(i, 0), a.offset(i, 0), b, !0, accumulate);
            }
            for i in whole..s.m {
                tile::<1, TILE_VECTORS>(s.k, at(i, 0), a.offset(i, 0), b, !0, accumulate);
            }
            return;
        }
        for from in (0..s.n).step_by(LANES) {
            let (b, mask) = (b.offset(0, from), !0 >> (LANES - (s.n - from).min(LANES)));
            for i in (0..whole).step_by(TILE_ROWS) {
                tile::<TILE_ROWS, 1>(s.k, at(i, from), a.offset(i, 0), b, mask, accumulate);
            }
            for i in whole..s.m {
                tile::<1, 1>(s.k, at(i, from), a.offset(i, 0), b, mask, accumulate);
            }
        }
    }
}

/// Loads a vector: all lanes in a wide tile, otherwise only the lanes in the mask.
///
/// # Safety
/// The loaded lanes are readable memory.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn load_lanes<const V: usize>(at: *const f32, mask: First) -> Vector {
    // SAFETY: the loaded lanes are readable (caller contract).
    unsafe {
        match V {
            TILE_VECTORS => load(at),
            _ => load_some(at, mask),
        }
    }
}

/// Computes a tile of `R` rows of `V` vectors.
///
/// Lanes outside the mask are neither read nor written; a wide tile ignores the mask.
///
/// # Safety
/// The caller upholds the contract of [`product`]. `at` points to the first element of the tile,
/// whose rows are `step` elements apart; `a` starts at the tile's row, and `b` at its column.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn tile<const R: usize, const V: usize>(
    k: usize,
    (at, step): (*mut f32, isize),
    a: MatRef<f32>,
    b: MatRef<f32>,
    mask: First,
    accumulate: bool,
) {
    let mut sums = [[all(0.0); V]; R];
    let (mut left, mut right) = (a.ptr, b.ptr);
    for _ in 0..k {
        let mut row = [all(0.0); V];
        // SAFETY: vector `v` of a row of the right operand is readable, as far as the mask goes,
        // and row `r` of the tile is a row of the left operand (caller contract).
        unsafe {
            for (v, x) in row.iter_mut().enumerate() {
                *x = load_lanes::<V>(right.wrapping_add(LANES * v), mask);
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let x = all(*left.wrapping_offset(r as isize * a.rs));
                for (sum, y) in sums.iter_mut().zip(row) {
                    *sum = fma(x, y, *sum);
                }
            }
        }
        (left, right) = (left.wrapping_offset(a.cs), right.wrapping_offset(b.rs));
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            let to = at.wrapping_offset(r as isize * step).wrapping_add(LANES * v);
            // SAFETY: vector `v` of row `r` is within the tile, as far as the mask goes (caller
            // contract).
            unsafe {
                let made = if accumulate { add(load_lanes::<V>(to, mask), *sum) } else { *sum };
                match V {
                    TILE_VECTORS => store(to, made),
                    _ => store_some(to, mask, made),
                }
            }
        }
    }
}
