//! Matrix products with few rows on the left, without packing the right operand.
//!
//! Each element of the right operand is used for a few terms only, so copying it, or reading it in
//! narrow strips, would take longer than the product. It is read row by row instead, two rows at a
//! time, while the sums of up to 1024 columns are in the first-level cache.
//!
//! The code is for float32 on AVX-512 only.

use super::{GemmSizes, MatMut, MatRef};
use crate::kernels::gather::prefetch;
use crate::kernels::simd_vec::avx512::{
    V as Vector, add, all, first, fma, load, load_some, store, store_some,
};
use std::mem::MaybeUninit;

/// The maximum number of rows.
const MAX_ROWS: usize = 8;
/// The minimum number of columns, and of elements from one row of the right operand to the next.
/// Operands with shorter rows are read well in strips, too.
const MIN_COLUMNS: usize = 256;
const MIN_ROW_STRIDE: usize = 1024;
/// The maximum number of columns in a strip.
const STRIP_COLUMNS: usize = 1024;
/// The number of elements in a vector.
const LANES: usize = 16;

/// Returns true if this code supports the layouts and is faster for these sizes.
/// The rows of the right operand and of the result must be contiguous.
pub(super) fn fits<T>(s: GemmSizes, c: MatMut<T>, b: MatRef<T>) -> bool {
    let far = b.rs >= MIN_ROW_STRIDE as isize;
    c.cs == 1 && b.cs == 1 && far && s.m <= MAX_ROWS && s.n >= MIN_COLUMNS
}

/// The sums of a strip: a row of [`STRIP_COLUMNS`] elements for each row of the result.
#[repr(align(64))]
struct StripSums([MaybeUninit<f32>; MAX_ROWS * STRIP_COLUMNS]);

/// Computes the product, adding the terms of each element in order by fused multiply-adds.
///
/// With `accumulate`, the sum is added to the element of `c`; otherwise it replaces the element.
///
/// # Safety
/// The caller upholds the contract of [`gemm`](super::gemm); the processor has AVX-512, and
/// [`fits`] is true.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
pub(super) unsafe fn product(s: GemmSizes, c: MatMut<f32>, a: MatRef<f32>, b: MatRef<f32>, accumulate: bool) {
    let mut memory = StripSums([MaybeUninit::uninit(); MAX_ROWS * STRIP_COLUMNS]);
    let sums = memory.0.as_mut_ptr().cast::<f32>();
    for from in (0..s.n).step_by(STRIP_COLUMNS) {
        let (n, b) = (STRIP_COLUMNS.min(s.n - from), b.offset(0, from));
        // SAFETY: the strip is within the right operand and the result (caller contract), and
        // `sums` has `MAX_ROWS` rows, which are written before they are read.
        unsafe {
            for i in 0..s.m {
                for j in (0..n).step_by(LANES) {
                    store(sums.add(i * STRIP_COLUMNS + j), all(0.0));
                }
            }
            for k in (0..s.k - s.k % 2).step_by(2) {
                add_terms::<2>((s.m, n), sums, a.offset(0, k), b.offset(k, 0));
            }
            if !s.k.is_multiple_of(2) {
                add_terms::<1>((s.m, n), sums, a.offset(0, s.k - 1), b.offset(s.k - 1, 0));
            }
            for i in 0..s.m {
                let row = c.ptr.wrapping_offset(i as isize * c.rs).wrapping_add(from);
                for j in (0..n).step_by(LANES) {
                    let (some, to) = (first(LANES.min(n - j)), row.wrapping_add(j));
                    let sum = load(sums.add(i * STRIP_COLUMNS + j));
                    store_some(to, some, if accumulate { add(load_some(to, some), sum) } else { sum });
                }
            }
        }
    }
}

/// Adds `K` terms to the sums of `m` rows.
///
/// # Safety
/// As for [`add_terms_of_rows`], for `m` rows.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn add_terms<const K: usize>((m, n): (usize, usize), sums: *mut f32, a: MatRef<f32>, b: MatRef<f32>) {
    let mut i = 0;
    while i < m {
        let (sums, a) = (sums.wrapping_add(i * STRIP_COLUMNS), a.offset(i, 0));
        // SAFETY: the rows are within the matrices (caller contract).
        i += unsafe {
            match m - i {
                8.. => add_terms_of_rows::<8, K>(n, sums, a, b),
                4.. => add_terms_of_rows::<4, K>(n, sums, a, b),
                2.. => add_terms_of_rows::<2, K>(n, sums, a, b),
                _ => add_terms_of_rows::<1, K>(n, sums, a, b),
            }
        };
    }
}

/// Adds `K` terms to the sums of `R` rows, and returns `R`.
///
/// # Safety
/// `a` has `R` rows and `K` columns, and `b` has `K` rows of `n` contiguous elements. `sums` points
/// to `R` rows of [`STRIP_COLUMNS`] elements, which are initialized up to the vector of the last
/// column. The processor has AVX-512.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn add_terms_of_rows<const R: usize, const K: usize>(
    n: usize,
    sums: *mut f32,
    a: MatRef<f32>,
    b: MatRef<f32>,
) -> usize {
    let mut x = [[all(0.0); K]; R];
    for (r, x) in x.iter_mut().enumerate() {
        for (k, x) in x.iter_mut().enumerate() {
            // SAFETY: the element is within the operand (caller contract).
            *x = all(unsafe { a.get(r, k) });
        }
    }
    for j in (0..n - n % LANES).step_by(LANES) {
        let mut y = [all(0.0); K];
        for (k, y) in y.iter_mut().enumerate() {
            // SAFETY: the vector is within row `k` of the operand (caller contract).
            *y = unsafe { load(b.row(k).add(j)) };
            prefetch(b.row(K + k).wrapping_add(j).cast(), size_of::<Vector>());
        }
        // SAFETY: the caller upholds the contract of `add_products`.
        unsafe { add_products(sums.add(j), &x, &y) }
    }
    if !n.is_multiple_of(LANES) {
        let (j, mut y) = (n - n % LANES, [all(0.0); K]);
        for (k, y) in y.iter_mut().enumerate() {
            // SAFETY: the elements in the mask are within row `k` of the operand (caller contract).
            *y = unsafe { load_some(b.row(k).add(j), first(n % LANES)) };
        }
        // SAFETY: the caller upholds the contract of `add_products`.
        unsafe { add_products(sums.add(j), &x, &y) }
    }
    R
}

/// Adds the products of `K` factors and `K` vectors to a vector of each of `R` rows.
///
/// # Safety
/// `sums` points to a vector of each row of sums. The processor has AVX-512.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
#[inline]
unsafe fn add_products<const R: usize, const K: usize>(
    sums: *mut f32,
    x: &[[Vector; K]; R],
    y: &[Vector; K],
) {
    for (r, x) in x.iter().enumerate() {
        // SAFETY: the vector is within row `r` of the sums (caller contract).
        unsafe {
            let at = sums.add(r * STRIP_COLUMNS);
            let mut sum = load(at);
            for (x, y) in x.iter().zip(y) {
                sum = fma(*x, *y, sum);
            }
            store(at, sum);
        }
    }
}
