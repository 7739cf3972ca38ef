//! Products of a matrix and a vector (gemv): loops that keep their sums in registers.
//!
//! The order of every sum depends on its length alone, so an element of the result does not depend
//! on the rows that it is computed with.

// an index runs over several small arrays at the same time, which are registers
#![allow(clippy::needless_range_loop)]

use super::{GemmElement, GemmProblem, MatMut, MatRef};

/// The number of partial sums (lanes) of a row before the last reduction.
pub(super) const LANES: usize = 16;
/// The number of rows whose lanes are reduced together.
const BLOCK_ROWS: usize = 16;
/// The maximum number of terms of a row with `LANES` partial sums.
/// Longer rows have four times as many.
const MAX_SHORT_TERMS: usize = 128;
/// The number of partial sums to which columns are added in rotation.
const NUM_PARTIAL_SUMS: usize = 4;
/// The size of a block of rows, in bytes.
/// With all its partial sums, a block fills the processor's registers.
const MAX_STRIP_BYTES: usize = 256;
/// The maximum number of columns that are added in order into a single sum.
const MAX_IN_ORDER_TERMS: usize = 16;

/// Returns the sum of each of 16 rows of lanes.
/// Lane j is added to lane j + 8, then to lane j + 4, and so on.
#[inline(always)]
pub(super) fn sum_lanes<T: GemmElement>(rows: &[[T; LANES]; BLOCK_ROWS]) -> [T; BLOCK_ROWS] {
    rows.map(|mut lanes| {
        let mut half = LANES / 2;
        while half > 0 {
            for j in 0..half {
                lanes[j] = lanes[j].plus(lanes[j + half]);
            }
            half /= 2;
        }
        lanes[0]
    })
}

/// Computes [`sum_lanes`] for float32 in 15 vector additions.
/// Each of them combines halves of the lanes of two rows.
///
/// # Safety
/// The processor has AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn sum_lanes_avx512(rows: &[[f32; LANES]; BLOCK_ROWS]) -> [f32; BLOCK_ROWS] {
    use std::arch::x86_64::*;
    // rows are ordered such that rows 4 apart become neighbours
    // SAFETY: a row has 16 elements, like a vector.
    let row = |i: usize| unsafe { _mm512_loadu_ps(rows[i % 4 * 4 + i / 4].as_ptr()) };
    let eighths = |a: __m512, b: __m512| {
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b))
    };
    let quarters = |a: __m512, b: __m512| {
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b))
    };
    let halves = |a: __m512, b: __m512| {
        _mm512_add_ps(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xee>(a, b))
    };
    let wholes = |a: __m512, b: __m512| {
        _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b))
    };
    let four = |i: usize| quarters(eighths(row(i), row(i + 1)), eighths(row(i + 2), row(i + 3)));
    let sums = wholes(halves(four(0), four(4)), halves(four(8), four(12)));
    let mut out = [0.0; BLOCK_ROWS];
    // SAFETY: `out` has 16 elements.
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

/// Multiplies `R` rows by the vector, each with `V·16` partial sums, which are reduced to 16.
///
/// # Safety
/// The caller upholds the contract of [`dots`]; the matrix has the `R` rows from `from` on.
#[inline(always)]
unsafe fn row_dots<T: GemmElement, const L: u8, const R: usize, const V: usize>(
    from: usize,
    k: usize,
    a: MatRef<T>,
    b: MatRef<T>,
    out: &mut [[T; LANES]],
) {
    let mut sums = [[[T::ZERO; LANES]; V]; R];
    // SAFETY: the rows are within the matrix, and each vector load is of 16 elements that are
    // within its row or, for the rest of the row, of a copy (caller contract).
    unsafe {
        let part = |p: *const T, at: usize| &*p.add(at).cast::<[T; LANES]>();
        let add = |at: usize, v: usize, sums: &mut [[[T; LANES]; V]; R]| {
            let x = part(b.ptr, at);
            for r in 0..R {
                let row = part(a.row(from + r), at);
                for j in 0..LANES {
                    sums[r][v][j] = row[j].fma::<L>(x[j], sums[r][v][j]);
                }
            }
        };
        let whole = k / (V * LANES) * (V * LANES);
        for p in (0..whole).step_by(V * LANES) {
            for v in 0..V {
                add(p + v * LANES, v, &mut sums);
            }
        }
        for v in 0..V {
            let at = whole + v * LANES;
            if at + LANES <= k {
                add(at, v, &mut sums);
            } else if at < k {
                // the rest of the row, padded with zeros
                let rest = |p: *const T| {
                    let mut filled = [T::ZERO; LANES];
                    std::ptr::copy_nonoverlapping(p.add(at), filled.as_mut_ptr(), k - at);
                    filled
                };
                let x = rest(b.ptr);
                for r in 0..R {
                    let row = rest(a.row(from + r));
                    for j in 0..LANES {
                        sums[r][v][j] = row[j].fma::<L>(x[j], sums[r][v][j]);
                    }
                }
            }
        }
    }
    for r in 0..R {
        let mut half = V / 2;
        while half > 0 {
            for v in 0..half {
                for j in 0..LANES {
                    sums[r][v][j] = sums[r][v][j].plus(sums[r][v + half][j]);
                }
            }
            half /= 2;
        }
        out[r] = sums[r][0];
    }
}

/// Multiplies a matrix with contiguous rows by a contiguous vector (n = 1).
///
/// # Safety
/// The caller upholds the contract of [`super::gemm`]; both strides along k are 1, and the
/// processor has level `L`.
#[inline(always)]
pub(super) unsafe fn dots<T: GemmElement, const L: u8>(p: GemmProblem<T>) {
    let GemmProblem { s, c, a, b, accumulate } = p;
    let mut block = [[T::ZERO; LANES]; BLOCK_ROWS];
    for from in (0..s.m).step_by(BLOCK_ROWS) {
        let rows = (s.m - from).min(BLOCK_ROWS);
        // SAFETY: the rows are within the matrix and the result (caller contract), and
        // `T::sum_lanes` gets the level of the processor.
        unsafe {
            let mut i = 0;
            while i < rows {
                let out = &mut block[i..];
                if s.k > MAX_SHORT_TERMS {
                    row_dots::<T, L, 1, 4>(from + i, s.k, a, b, out);
                    i += 1;
                } else if i + 4 <= rows {
                    row_dots::<T, L, 4, 1>(from + i, s.k, a, b, out);
                    i += 4;
                } else {
                    row_dots::<T, L, 1, 1>(from + i, s.k, a, b, out);
                    i += 1;
                }
            }
            put_rows(c, from, &T::sum_lanes::<L>(&block)[..rows], accumulate);
        }
    }
}

/// Writes elements of the result from row `from` on, or adds to them.
///
/// # Safety
/// The rows are within the result, and initialized with `accumulate`.
#[inline(always)]
unsafe fn put_rows<T: GemmElement>(c: MatMut<T>, from: usize, sums: &[T], accumulate: bool) {
    for (i, sum) in sums.iter().enumerate() {
        // SAFETY: the row is within the result (caller contract).
        unsafe { c.put(from + i, 0, *sum, accumulate) }
    }
}

/// Multiplies a matrix with contiguous columns by a vector (n = 1).
///
/// Few columns are added in order. If there are more, they are added to four sums in rotation.
///
/// # Safety
/// The caller upholds the contract of [`super::gemm`]; the stride along m is 1, and the processor
/// has level `L`.
#[inline(always)]
pub(super) unsafe fn columns<T: GemmElement, const L: u8>(p: GemmProblem<T>) {
    let mut from = 0;
    macro_rules! strips {
        ($($V:literal $N:expr;)*) => { $(
            while const { $V * $N == 1 || $V * $N * size_of::<T>() <= MAX_STRIP_BYTES } && from + $V * $N <= p.s.m {
                // SAFETY: the caller upholds the contract of `columns`, and the loop condition
                // keeps the rows within the matrix.
                unsafe { row_strip::<T, L, $V, { $N }>(from, p) }
                from += $V * $N;
            }
        )* };
    }
    strips! { 4 LANES; 2 LANES; 1 LANES; 1 LANES / 2; 1 LANES / 4; 1 1; }
}

/// Computes `V·N` rows of the result.
///
/// # Safety
/// The caller upholds the contract of [`columns`]; there are `V·N` rows from `from` on.
#[inline(always)]
unsafe fn row_strip<T: GemmElement, const L: u8, const V: usize, const N: usize>(
    from: usize,
    p: GemmProblem<T>,
) {
    let GemmProblem { s, c, a, b, accumulate } = p;
    let mut sums = [[[T::ZERO; N]; V]; NUM_PARTIAL_SUMS];
    // SAFETY: column `p` has `V·N` contiguous elements from row `from` on (caller contract).
    let add = |p: usize, sums: &mut [[T; N]; V]| unsafe {
        let (x, column) = (b.get(p, 0), a.row(from).offset(p as isize * a.cs));
        for v in 0..V {
            let y = &*column.add(v * N).cast::<[T; N]>();
            for j in 0..N {
                sums[v][j] = y[j].fma::<L>(x, sums[v][j]);
            }
        }
    };
    let whole = if s.k <= MAX_IN_ORDER_TERMS { 0 } else { s.k / NUM_PARTIAL_SUMS * NUM_PARTIAL_SUMS };
    for p in (0..whole).step_by(NUM_PARTIAL_SUMS) {
        for q in 0..NUM_PARTIAL_SUMS {
            add(p + q, &mut sums[q]);
        }
    }
    for p in whole..s.k {
        add(p, &mut sums[0]);
    }
    let [mut x, y, z, w] = sums;
    for v in 0..V {
        for j in 0..N {
            x[v][j] = x[v][j].plus(y[v][j]).plus(z[v][j].plus(w[v][j]));
        }
        // SAFETY: the rows are within the result (caller contract).
        unsafe { put_rows(c, from + v * N, &x[v], accumulate) }
    }
}
