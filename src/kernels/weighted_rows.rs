//! Sums of products of rows, such as a depthwise convolution, whose rows are parts of an image.
//!
//! The order is that of `combine_rows`: eight products at a time are added as a tree, the others
//! one after the other, and each product is rounded before it is added.

use super::cpu::IsaLevel;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Lanes, avx2_lanes, avx512_lanes};
use crate::core::DType;

/// Computes `n` elements: element `i` of the result is the sum over `terms` of `x[i]·w[i]`, where
/// the offsets of the terms are added to `x` and `w`, in bytes.
///
/// The caller upholds: the rows of `x` have `n` elements, and so have those of `w`, unless the
/// kernel is for equal factors; then they have one. `dst` has space for `n` elements, and overlaps
/// no row.
pub(crate) type WeightedRowsKernel =
    unsafe fn(n: usize, dst: *mut u8, x: *const u8, w: *const u8, terms: &[[isize; 2]]);

/// Computes the elements of `V` vectors, from element `at` on. Factors are equal if `S` is true.
///
/// # Safety
/// The caller upholds the contract of [`WeightedRowsKernel`]; the processor has the level.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn vectors<L: Lanes, const V: usize, const S: bool>(
    at: usize,
    dst: *mut L::Element,
    x: *const u8,
    w: *const u8,
    terms: &[[isize; 2]],
) {
    // SAFETY: the vectors are within the rows (caller contract).
    unsafe {
        let mut sums = [L::zero(); V];
        let row = |p: *const u8, offset: isize| p.wrapping_offset(offset).cast::<L::Element>();
        let factor = |t: &[isize; 2], v: usize| match S {
            true => L::splat(*row(w, t[1])),
            false => L::load(row(w, t[1]).wrapping_add(at + v * L::LEN)),
        };
        let product = |t: &[isize; 2], v: usize, k: L| {
            L::load(row(x, t[0]).wrapping_add(at + v * L::LEN)).mul(if S { k } else { factor(t, v) })
        };
        let mut eights = terms.chunks_exact(8);
        for t in &mut eights {
            let k: [L; 8] = std::array::from_fn(|i| if S { factor(&t[i], 0) } else { L::zero() });
            for (v, sum) in sums.iter_mut().enumerate() {
                let p = |i: usize| product(&t[i], v, k[i]);
                let (a, b) = (p(0).add(p(1)).add(p(2).add(p(3))), p(4).add(p(5)).add(p(6).add(p(7))));
                *sum = sum.add(a.add(b));
            }
        }
        for t in eights.remainder() {
            let k = if S { factor(t, 0) } else { L::zero() };
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add(product(t, v, k));
            }
        }
        for (v, sum) in sums.iter().enumerate() {
            sum.store(dst.add(at + v * L::LEN));
        }
    }
}

/// Computes all elements.
///
/// # Safety
/// The caller upholds the contract of [`WeightedRowsKernel`]; the processor has the level.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn rows<L: Lanes, const S: bool>(
    n: usize,
    dst: *mut u8,
    x: *const u8,
    w: *const u8,
    terms: &[[isize; 2]],
) {
    let (dst, mut at) = (dst.cast::<L::Element>(), 0);
    // SAFETY: all elements are before element `n`, and the caller upholds the contract.
    unsafe {
        while at + 4 * L::LEN <= n {
            vectors::<L, 4, S>(at, dst, x, w, terms);
            at += 4 * L::LEN;
        }
        while at + 2 * L::LEN <= n {
            vectors::<L, 2, S>(at, dst, x, w, terms);
            at += 2 * L::LEN;
        }
        while at + L::LEN <= n {
            vectors::<L, 1, S>(at, dst, x, w, terms);
            at += L::LEN;
        }
        if at < n && n >= L::LEN {
            // some elements are computed twice
            return vectors::<L, 1, S>(n - L::LEN, dst, x, w, terms);
        }
        for i in at..n {
            let part = |p: *const u8, offset: isize, i: usize| {
                *p.wrapping_offset(offset).cast::<L::Element>().wrapping_add(i)
            };
            let p = |t: &[isize; 2]| part(x, t[0], i) * part(w, t[1], if S { 0 } else { i });
            let mut sum = L::Element::default();
            let mut eights = terms.chunks_exact(8);
            for t in &mut eights {
                let (a, b) = (
                    (p(&t[0]) + p(&t[1])) + (p(&t[2]) + p(&t[3])),
                    (p(&t[4]) + p(&t[5])) + (p(&t[6]) + p(&t[7])),
                );
                sum = sum + (a + b);
            }
            for t in eights.remainder() {
                sum = sum + p(t);
            }
            *dst.add(i) = sum;
        }
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! at_level {
    ($name:ident $lanes:ident $features:literal) => {
        mod $name {
            use super::*;
            #[target_feature(enable = $features)]
            unsafe fn run<const WIDE: bool, const S: bool>(
                n: usize,
                dst: *mut u8,
                x: *const u8,
                w: *const u8,
                terms: &[[isize; 2]],
            ) {
                // SAFETY: the caller upholds the contract of `rows`, and the processor has the level.
                unsafe {
                    match WIDE {
                        false => rows::<$lanes::F32, S>(n, dst, x, w, terms),
                        true => rows::<$lanes::F64, S>(n, dst, x, w, terms),
                    }
                }
            }
            /// Returns the kernel for float64 or float32, and for equal or different factors.
            pub(super) fn pick(wide: bool, equal: bool) -> WeightedRowsKernel {
                match (wide, equal) {
                    (false, false) => run::<false, false>,
                    (false, true) => run::<false, true>,
                    (true, false) => run::<true, false>,
                    (true, true) => run::<true, true>,
                }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
at_level!(avx512 avx512_lanes "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2");
#[cfg(target_arch = "x86_64")]
at_level!(avx2 avx2_lanes "avx2,fma,bmi2");

/// Returns the kernel for a level; `equal` says that the factors of a row are equal.
/// Returns `None` if there is none for the element type or the level.
pub(crate) fn weighted_rows(dtype: DType, equal: bool, level: IsaLevel) -> Option<WeightedRowsKernel> {
    if !matches!(dtype, DType::F32 | DType::F64) {
        return None;
    }
    match level {
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx512 => Some(avx512::pick(dtype == DType::F64, equal)),
        #[cfg(target_arch = "x86_64")]
        IsaLevel::Avx2 => Some(avx2::pick(dtype == DType::F64, equal)),
        _ => {
            let _ = equal;
            None
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn products_are_added_as_combine_rows_adds() {
        let numbers = |salt: usize| -> Vec<f32> {
            (0..4000).map(|i| ((i * 7919 + salt) % 1013) as f32 / 311.0 - 1.6).collect()
        };
        let (x, w) = (numbers(1), numbers(2));
        for (n, count) in
            [1, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 150].into_iter().zip([1, 3, 8, 9, 16, 25].repeat(2))
        {
            let terms: Vec<[isize; 2]> = (0..count).map(|k| [k * 4 * 58 % 1000, k * 4 * 11]).collect();
            for (level, equal) in IsaLevel::available().flat_map(|l| [(l, false), (l, true)]) {
                let Some(kernel) = weighted_rows(DType::F32, equal, level) else { continue };
                let mut made = vec![0f32; n];
                // SAFETY: all rows are in the arrays.
                unsafe { kernel(n, made.as_mut_ptr().cast(), x.as_ptr().cast(), w.as_ptr().cast(), &terms) }
                for (i, made) in made.iter().enumerate() {
                    let p = |t: &[isize; 2]| {
                        x[t[0] as usize / 4 + i] * w[t[1] as usize / 4 + if equal { 0 } else { i }]
                    };
                    let sum = terms.chunks(8).fold(0.0, |sum, t| match t {
                        [a, b, c, d, e, f, g, h] => {
                            sum + (((p(a) + p(b)) + (p(c) + p(d))) + ((p(e) + p(f)) + (p(g) + p(h))))
                        }
                        _ => t.iter().fold(sum, |sum, t| sum + p(t)),
                    });
                    assert_eq!(made.to_bits(), sum.to_bits(), "{n} {count} {equal} {level:?} at {i}");
                }
            }
        }
        assert!(weighted_rows(DType::I32, true, IsaLevel::Base).is_none());
    }
}
