//! Kernels for arrays with short rows: reads with several steps, and rows that become columns.

use super::SliceKernel;
use super::elementwise::{Constants, uninit_slice};
use super::float::FloatElement;
use crate::core::DType;
#[cfg(target_arch = "x86_64")]
use crate::kernels::cpu::IsaLevel;
use crate::kernels::cpu::{self, for_each_isa};

/// The elements of a flat row in another array: element `((i·a + j)·b + l)·c + m`, where `a`, `b`
/// and `c` are `sizes`, is at `i·steps[0] + j·steps[1] + l·steps[2] + m·steps[3]`, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpreadSteps {
    /// The numbers of indices of the inner loops.
    pub sizes: [u32; 3],
    /// The elements from one index of each loop to the next.
    pub steps: [i32; 4],
}

impl SpreadSteps {
    /// Returns the constants of [`spread_indices`] and [`spread_positions`]: the first position is
    /// `first`.
    pub fn constants(&self, first: i32) -> [f64; 4] {
        let ([a, b, c], [i, j, l, m]) = (self.sizes, self.steps.map(|s| s as u32));
        [(a, b), (c, i), (j, l), (m, first as u32)]
            .map(|(x, y)| f64::from_bits(u64::from(x) << 32 | u64::from(y)))
    }
    /// Returns the steps, and the first position, that these constants stand for.
    fn from_constants(k: &Constants) -> (SpreadSteps, i32) {
        let [(a, b), (c, i), (j, l), (m, first)] =
            k.map(|k| ((k.to_bits() >> 32) as u32, k.to_bits() as u32));
        (SpreadSteps { sizes: [a, b, c], steps: [i, j, l, m].map(|s| s as i32) }, first as i32)
    }
    /// Returns the position of an element.
    fn position(&self, at: u32) -> i32 {
        let ([a, b, c], [i, j, l, m]) = (self.sizes, self.steps);
        let at = [at / (a * b * c), at / (b * c) % a, at / c % b, at % c];
        at[0] as i32 * i + at[1] as i32 * j + at[2] as i32 * l + at[3] as i32 * m
    }
}

/// Writes the positions of the first `n` elements that [`SpreadSteps`] describes, as int32.
///
/// # Safety
/// `d` points to space for `n` int32 elements.
pub unsafe fn spread_indices(n: usize, d: *mut u8, _: *const u8, _: *const u8, _: *const u8, k: &Constants) {
    let (steps, first) = SpreadSteps::from_constants(k);
    // SAFETY: `d` points to space for `n` elements (caller contract).
    let d = unsafe { uninit_slice::<i32>(d, n) };
    for (at, d) in (0..).zip(d) {
        d.write(first + steps.position(at));
    }
}

/// Writes the positions of [`spread_indices`] as int64.
///
/// # Safety
/// `d` points to space for `n` int64 elements.
pub unsafe fn spread_positions(
    n: usize,
    d: *mut u8,
    _: *const u8,
    _: *const u8,
    _: *const u8,
    k: &Constants,
) {
    let (steps, first) = SpreadSteps::from_constants(k);
    // SAFETY: `d` points to space for `n` elements (caller contract).
    let d = unsafe { uninit_slice::<i64>(d, n) };
    for (at, d) in (0..).zip(d) {
        d.write(i64::from(first) + i64::from(steps.position(at)));
    }
}

/// Reads the elements at the int32 positions `c` of the array at `b`.
///
/// # Safety
/// The caller upholds the contract of `SliceKernel`, where `b` points to elements at all positions
/// and `c` to `n` int32 positions.
unsafe fn gather_at<T: Copy>(n: usize, d: *mut u8, _: *const u8, b: *const u8, c: *const u8, _: &Constants) {
    // SAFETY: there are `n` positions, each of an element, and space for `n` elements (caller
    // contract).
    unsafe {
        let (d, b, c) = (d.cast::<T>(), b.cast::<T>(), c.cast::<i32>());
        for i in 0..n {
            *d.add(i) = *b.offset(*c.add(i) as isize);
        }
    }
}

/// Returns the kernel that reads elements at positions; `size` is in bytes.
pub fn gather_at_of(size: usize) -> Option<SliceKernel> {
    Some(match size {
        1 => gather_at::<u8>,
        2 => gather_at::<u16>,
        4 => gather_at::<u32>,
        8 => gather_at::<u64>,
        16 => gather_at::<[u64; 2]>,
        _ => return None,
    })
}

/// A matrix in memory.
#[derive(Clone, Copy, Debug)]
pub struct StridedMatrix {
    /// The number of rows.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The elements from one row to the next.
    pub row_step: isize,
    /// The elements from one column to the next.
    pub column_step: isize,
    /// The elements from one column of the result to the next.
    pub to_step: usize,
}

/// Copies the columns of a matrix at `a` to `d`, each of them contiguous.
///
/// The caller upholds: the elements of the matrix are readable, and `d` has space for the columns,
/// which overlaps none of them.
pub type Unzip = unsafe fn(m: &StridedMatrix, d: *mut u8, a: *const u8);

/// Implements [`Unzip`] for elements of a type.
///
/// # Safety
/// The caller upholds the contract of [`Unzip`].
unsafe fn unzip<T: Copy>(m: &StridedMatrix, d: *mut u8, a: *const u8) {
    let (d, a) = (d.cast::<T>(), a.cast::<T>());
    for c in 0..m.columns {
        // SAFETY: the matrix has column `c`, and `d` has space for it (caller contract).
        unsafe {
            let (d, a) = (d.add(c * m.to_step), a.offset(c as isize * m.column_step));
            for r in 0..m.rows {
                *d.add(r) = *a.offset(r as isize * m.row_step);
            }
        }
    }
}

/// Returns the kernel that copies columns of elements of `size` bytes.
pub fn unzip_of(size: usize) -> Option<Unzip> {
    Some(match size {
        1 => unzip::<u8>,
        2 => unzip::<u16>,
        #[cfg(target_arch = "x86_64")]
        4 if cpu::level() == IsaLevel::Avx512 => wide::unzip,
        4 => unzip::<u32>,
        8 => unzip::<u64>,
        16 => unzip::<[u64; 2]>,
        _ => return None,
    })
}

/// Adds the squares of `k[0]·row + k[1]·scalar` to the sums at `d`, each step rounded.
///
/// The `rows` rows are at `a`, `step` bytes apart, and their scalars are consecutive at `scalars`.
/// Eight rows are added at a time, as a tree, and the rest one by one, as
/// [`CombineRows`](super::CombineRows) adds them.
///
/// The caller upholds: there are `n` elements in `d` and in each row, and a scalar for each row.
pub type AddSquares =
    unsafe fn(n: usize, d: *mut u8, a: *const u8, rows: usize, step: usize, scalars: *const u8, k: &[f64; 2]);

/// Implements [`AddSquares`].
///
/// # Safety
/// The caller upholds the contract of [`AddSquares`].
#[inline(always)]
unsafe fn add_squares<T: FloatElement>(
    n: usize,
    d: *mut u8,
    a: *const u8,
    rows: usize,
    step: usize,
    scalars: *const u8,
    k: &[f64; 2],
) {
    let (d, [p, q]) = (d.cast::<T>(), k.map(T::from_f64));
    // SAFETY: there are `rows` scalars and rows, and each row and `d` have `n` elements (caller
    // contract).
    unsafe {
        let row = |c: usize| (a.add(c * step).cast::<T>(), q * *scalars.cast::<T>().add(c));
        let square = |(y, x): (*const T, T), j: usize| {
            let v = p * *y.add(j) + x;
            v * v
        };
        let mut c = 0;
        while c + 8 <= rows {
            let r =
                [row(c), row(c + 1), row(c + 2), row(c + 3), row(c + 4), row(c + 5), row(c + 6), row(c + 7)];
            for j in 0..n {
                let left = (square(r[0], j) + square(r[1], j)) + (square(r[2], j) + square(r[3], j));
                let right = (square(r[4], j) + square(r[5], j)) + (square(r[6], j) + square(r[7], j));
                *d.add(j) = *d.add(j) + (left + right);
            }
            c += 8;
        }
        for r in (c..rows).map(row) {
            for j in 0..n {
                *d.add(j) = *d.add(j) + square(r, j);
            }
        }
    }
}

for_each_isa! {
    mod add_squares_at<T: FloatElement>(
        n: usize, d: *mut u8, a: *const u8, rows: usize, step: usize, scalars: *const u8, k: &[f64; 2],
    ) at L => add_squares::<T>(n, d, a, rows, step, scalars, k);
}

/// Returns the kernel that adds squares, for float32 and float64.
pub fn add_squares_of(dtype: DType) -> Option<AddSquares> {
    match dtype {
        DType::F32 => Some(add_squares_at::at::<f32>(cpu::level())),
        DType::F64 => Some(add_squares_at::at::<f64>(cpu::level())),
        _ => None,
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    //! The kernel for elements of 4 bytes on AVX-512.

    use super::StridedMatrix;
    use std::arch::x86_64::*;

    /// Implements [`super::Unzip`].
    ///
    /// # Safety
    /// The caller upholds the contract of [`super::Unzip`]; the processor has AVX-512.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
    pub(super) unsafe fn unzip(m: &StridedMatrix, d: *mut u8, a: *const u8) {
        let (d, a) = (d.cast::<u32>(), a.cast::<u32>());
        let dense = m.column_step == 1 && m.row_step == m.columns as isize;
        // SAFETY: the caller upholds the contract, and the rows of a dense matrix have no gaps.
        unsafe {
            match m.columns {
                2 if dense => permute::<2>(m.rows, m.to_step, d, a),
                3 if dense => permute::<3>(m.rows, m.to_step, d, a),
                4 if dense => permute::<4>(m.rows, m.to_step, d, a),
                _ => super::unzip::<u32>(m, d.cast(), a.cast()),
            }
        }
    }

    /// Copies the columns of a matrix without gaps.
    ///
    /// # Safety
    /// There are `n` rows of `K` elements at `a`, and `d` has space for the columns.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
    unsafe fn permute<const K: usize>(n: usize, to_step: usize, d: *mut u32, a: *const u32) {
        // lane r of column c is element r·K + c: of the first two vectors, or of the others
        let mut at = [[[0i32; 16]; 2]; K];
        let mut high = [0u16; K];
        for e in 0..16 * K {
            let (r, c) = (e / K, e % K);
            at[c][e / 32][r] = e as i32 % 32;
            high[c] |= ((e / 32) as u16) << r;
        }
        // SAFETY: 16 rows are K vectors; the last rows are copied one by one (caller contract).
        unsafe {
            let load = |p: *const i32| _mm512_loadu_si512(p.cast());
            let mut r = 0;
            while r + 16 <= n {
                let mut x = [_mm512_setzero_si512(); K];
                for (i, x) in x.iter_mut().enumerate() {
                    *x = load(a.add(r * K + 16 * i).cast());
                }
                for c in 0..K {
                    let mut v = _mm512_permutex2var_epi32(x[0], load(at[c][0].as_ptr()), x[1]);
                    if K > 2 {
                        let w = _mm512_permutex2var_epi32(x[2], load(at[c][1].as_ptr()), x[K - 1]);
                        v = _mm512_mask_blend_epi32(high[c], v, w);
                    }
                    _mm512_storeu_si512(d.add(c * to_step + r).cast(), v);
                }
                r += 16;
            }
            for r in r..n {
                for c in 0..K {
                    *d.add(c * to_step + r) = *a.add(r * K + c);
                }
            }
        }
    }
}
