//! A matrix by a vector: the loops that keep their sums in registers.
//!
//! The order of every sum depends on its length alone: an element of the result is the same whichever rows it is computed with.

// one index runs through several small arrays, which are registers
#![allow(clippy::needless_range_loop)]

use super::{Mat, Num, Out, Sizes};

/// Sums that a row is taken in, at last.
pub(super) const LANES: usize = 16;
/// Rows whose lanes are added up together.
const ROWS: usize = 16;
/// Up to this many terms a row is taken in `LANES` sums, above it in four times as many.
const SHORT: usize = 128;
/// Columns that are added apart from each other.
const APART: usize = 4;
/// Bytes of a strip of rows: with those that are added apart they are a processor's registers.
const STRIP: usize = if on_a_page!() { 0 } else { 256 };
/// Up to so many columns are added in order.
const FEW: usize = 16;

/// The sums of 16 rows of lanes: lane j and lane j + 8, of these j and j + 4, and so on.
#[inline(always)]
pub(super) fn halved<T: Num>(rows: &[[T; LANES]; ROWS]) -> [T; ROWS] {
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

/// What [`halved`] is for float32, in 15 additions of whole vectors: each takes one half of two rows' lanes from either side.
///
/// # Safety
/// The processor has AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn halved_avx512(rows: &[[f32; LANES]; ROWS]) -> [f32; ROWS] {
    use std::arch::x86_64::*;
    // rows so that those which are 4 apart end side by side
    // SAFETY: a row is 16 elements, as a vector is
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
    let mut out = [0.0; ROWS];
    // SAFETY: as above
    unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sums) };
    out
}

/// `R` rows from `from` on by the vector, each in `V` times 16 sums, then in 16.
///
/// # Safety
/// As for [`dots`]; there are so many rows.
#[inline(always)]
unsafe fn lanes<T: Num, const L: u8, const R: usize, const V: usize>(
    from: usize,
    k: usize,
    a: Mat<T>,
    b: Mat<T>,
    out: &mut [[T; LANES]],
) {
    let mut sums = [[[T::ZERO; LANES]; V]; R];
    // SAFETY: the caller's; there are sixteen elements behind each of these
    unsafe {
        let part = |p: *const T, at: usize| &*p.add(at).cast::<[T; LANES]>();
        let add = |at: usize, v: usize, sums: &mut [[[T; LANES]; V]; R]| {
            let x = part(b.at, at);
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
                // the rest, filled up with zeros
                let rest = |p: *const T| {
                    let mut filled = [T::ZERO; LANES];
                    std::ptr::copy_nonoverlapping(p.add(at), filled.as_mut_ptr(), k - at);
                    filled
                };
                let x = rest(b.at);
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

/// A matrix by a vector (n = 1) whose rows are contiguous, as the vector is.
///
/// # Safety
/// As for [`super::gemm`]; both strides along k are 1, and the processor has level `L`.
#[inline(always)]
pub(super) unsafe fn dots<T: Num, const L: u8>(s: Sizes, c: Out<T>, a: Mat<T>, b: Mat<T>, accumulate: bool) {
    let mut block = [[T::ZERO; LANES]; ROWS];
    for from in (0..s.m).step_by(ROWS) {
        let rows = (s.m - from).min(ROWS);
        // SAFETY: the caller's
        unsafe {
            let mut i = 0;
            while i < rows {
                let out = &mut block[i..];
                if s.k > SHORT {
                    lanes::<T, L, 1, 4>(from + i, s.k, a, b, out);
                    i += 1;
                } else if i + 4 <= rows {
                    lanes::<T, L, 4, 1>(from + i, s.k, a, b, out);
                    i += 4;
                } else {
                    lanes::<T, L, 1, 1>(from + i, s.k, a, b, out);
                    i += 1;
                }
            }
            put(c, from, &T::halved::<L>(&block)[..rows], accumulate);
        }
    }
}

/// Elements of a result from row `from` on.
///
/// # Safety
/// They are elements of the result.
#[inline(always)]
unsafe fn put<T: Num>(c: Out<T>, from: usize, sums: &[T], accumulate: bool) {
    for (i, sum) in sums.iter().enumerate() {
        // SAFETY: the caller's
        unsafe { c.put(from + i, 0, *sum, accumulate) }
    }
}

/// A matrix by a vector (n = 1) whose columns are contiguous: in order, or of more than a few every fourth in one sum.
///
/// # Safety
/// As for [`super::gemm`]; the stride along m is 1, and the processor has level `L`.
#[inline(always)]
pub(super) unsafe fn columns<T: Num, const L: u8>(
    s: Sizes,
    c: Out<T>,
    a: Mat<T>,
    b: Mat<T>,
    accumulate: bool,
) {
    let mut from = 0;
    macro_rules! strips {
        ($($V:literal $N:expr;)*) => { $(
            while const { $V * $N == 1 || $V * $N * size_of::<T>() <= STRIP } && from + $V * $N <= s.m {
                // SAFETY: the caller's; the strip is within the rows
                unsafe { strip::<T, L, $V, { $N }>(from, s, c, a, b, accumulate) }
                from += $V * $N;
            }
        )* };
    }
    strips! { 4 LANES; 2 LANES; 1 LANES; 1 LANES / 2; 1 LANES / 4; 1 1; }
}

/// `V` times `N` rows.
///
/// # Safety
/// As for [`columns`]; there are so many rows behind `from`.
#[inline(always)]
unsafe fn strip<T: Num, const L: u8, const V: usize, const N: usize>(
    from: usize,
    s: Sizes,
    c: Out<T>,
    a: Mat<T>,
    b: Mat<T>,
    accumulate: bool,
) {
    let mut sums = [[[T::ZERO; N]; V]; APART];
    // SAFETY: the caller's
    let add = |p: usize, sums: &mut [[T; N]; V]| unsafe {
        let (x, column) = (b.get(p, 0), a.row(from).offset(p as isize * a.cs));
        for v in 0..V {
            let y = &*column.add(v * N).cast::<[T; N]>();
            for j in 0..N {
                sums[v][j] = y[j].fma::<L>(x, sums[v][j]);
            }
        }
    };
    let whole = if s.k <= FEW { 0 } else { s.k / APART * APART };
    for p in (0..whole).step_by(APART) {
        for q in 0..APART {
            add(p + q, &mut sums[q]);
        }
    }
    for p in whole..s.k {
        add(p, &mut sums[0]);
    }
    let [x, y, z, w] = sums;
    for v in 0..V {
        // SAFETY: the caller's
        unsafe {
            let sums: [T; N] = std::array::from_fn(|j| x[v][j].plus(y[v][j]).plus(z[v][j].plus(w[v][j])));
            put(c, from + v * N, &sums, accumulate);
        }
    }
}
