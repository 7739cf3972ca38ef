//! Weighted sums of many operands in one loop.
//!
//! A stencil, whose terms are neighbouring elements, then needs one loop instead of one for each
//! term, and partial sums stay in registers.

use super::elementwise::{KernelVariant, uninit_slice};
use super::float::FloatElement;
use crate::core::DType;
#[cfg(target_arch = "x86_64")]
use crate::kernels::cpu::IsaLevel;
use crate::kernels::cpu::for_each_isa;
use std::marker::PhantomData;
use std::slice::from_raw_parts;

/// The minimum number of terms. Shorter sums use a [`SliceKernel`](super::SliceKernel).
pub const MIN_TERMS: usize = 4;
/// The maximum number of terms.
pub const MAX_TERMS: usize = 8;

/// The constants of a weighted sum.
#[derive(Clone, Copy, Debug)]
pub struct TermFactors {
    /// The factor of each term.
    pub factors: [f64; MAX_TERMS],
    /// The factor of the sum of all terms except the last one.
    pub sum: f64,
}

/// A loop over `n` elements: `dst[i] = m·((k0·x0[i] + k1·x1[i]) + …) + k·x[i]`.
///
/// The last term is added to the scaled sum of the others. Each product and each sum is rounded, as
/// if it had a separate kernel.
///
/// The caller upholds: each term points to `n` elements of its type, contiguous and aligned to an
/// element; `dst` has space for `n` elements, and overlaps no term.
pub type WeightedSumKernel = unsafe fn(n: usize, dst: *mut u8, x: &[*const u8; MAX_TERMS], k: &TermFactors);

/// A weighted sum with a fixed number of terms and element type.
trait WeightedSumLoop: 'static {
    /// The size of an element, in bytes.
    #[cfg(target_arch = "x86_64")]
    const ELEMENT_BYTES: usize;
    /// Computes the `n` elements from `first` on, and writes them to `dst`.
    ///
    /// # Safety
    /// The caller upholds the contract of [`WeightedSumKernel`] for `first + n` elements of the
    /// terms, and `n` elements of `dst`.
    unsafe fn run(first: usize, n: usize, dst: *mut u8, x: &[*const u8; MAX_TERMS], k: &TermFactors);
}

struct TypedTerms<T, const N: usize>(PhantomData<T>);

impl<T: FloatElement, const N: usize> WeightedSumLoop for TypedTerms<T, N> {
    #[cfg(target_arch = "x86_64")]
    const ELEMENT_BYTES: usize = size_of::<T>();
    #[inline(always)]
    unsafe fn run(first: usize, n: usize, dst: *mut u8, x: &[*const u8; MAX_TERMS], k: &TermFactors) {
        // SAFETY: each term has `first + n` elements, and `dst` has space for `n`, apart from them
        // (caller contract).
        let (made, x): (_, [&[T]; N]) = unsafe {
            let of = |i: usize| from_raw_parts(x[i].cast::<T>().wrapping_add(first), n);
            (uninit_slice::<T>(dst, n), std::array::from_fn(of))
        };
        let (f, m): ([T; N], T) = (std::array::from_fn(|i| T::from_f64(k.factors[i])), T::from_f64(k.sum));
        for i in 0..n {
            let mut sum = x[0][i] * f[0];
            for t in 1..N - 1 {
                sum = sum + x[t][i] * f[t];
            }
            made[i].write(sum * m + x[N - 1][i] * f[N - 1]);
        }
    }
}

for_each_isa! {
    mod plain<K: WeightedSumLoop>(n: usize, dst: *mut u8, x: &[*const u8; MAX_TERMS], k: &TermFactors) at L
        => K::run(0, n, dst, x, k);
}

#[cfg(target_arch = "x86_64")]
mod stream {
    use super::*;
    use crate::kernels::elementwise::{PiecewiseLoop, run_streaming};

    struct StreamedTerms<'a, K>(&'a [*const u8; MAX_TERMS], &'a TermFactors, PhantomData<K>);
    impl<K: WeightedSumLoop> PiecewiseLoop for StreamedTerms<'_, K> {
        const ELEMENT_BYTES: usize = K::ELEMENT_BYTES;
        #[inline(always)]
        unsafe fn piece<const L: u8>(&self, first: usize, n: usize, to: *mut u8) {
            // SAFETY: the terms have these elements, and `to` has space for them (contract of
            // `piece`).
            unsafe { K::run(first, n, to, self.0, self.1) }
        }
    }
    for_each_isa! {
        mod streamed<K: WeightedSumLoop>(n: usize, dst: *mut u8, x: &[*const u8; MAX_TERMS], k: &TermFactors) at L
            => run_streaming::<_, L>(n, dst, &StreamedTerms::<K>(x, k, PhantomData));
    }
    pub(super) use streamed::{avx2, avx512};
}

fn pick<K: WeightedSumLoop>(how: KernelVariant) -> WeightedSumKernel {
    match (how.level, how.stream) {
        #[cfg(target_arch = "x86_64")]
        (IsaLevel::Avx512, true) => stream::avx512::<K>,
        #[cfg(target_arch = "x86_64")]
        (IsaLevel::Avx2, true) => stream::avx2::<K>,
        (level, _) => plain::at::<K>(level),
    }
}

fn typed<T: FloatElement>(terms: usize, how: KernelVariant) -> Option<WeightedSumKernel> {
    Some(match terms {
        4 => pick::<TypedTerms<T, 4>>(how),
        5 => pick::<TypedTerms<T, 5>>(how),
        6 => pick::<TypedTerms<T, 6>>(how),
        7 => pick::<TypedTerms<T, 7>>(how),
        8 => pick::<TypedTerms<T, 8>>(how),
        _ => return None,
    })
}

/// Returns the kernel of a weighted sum of [`MIN_TERMS`] to [`MAX_TERMS`] terms.
///
/// Returns `None` for other numbers of terms, and for types other than float32 and float64.
pub(super) fn find(dtype: DType, terms: usize, how: KernelVariant) -> Option<WeightedSumKernel> {
    match dtype {
        DType::F32 => typed::<f32>(terms, how),
        DType::F64 => typed::<f64>(terms, how),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::cpu::IsaLevel;

    #[test]
    fn a_chain_rounds_each_step() {
        let n = 700;
        let x: Vec<Vec<f32>> =
            (0..MAX_TERMS).map(|t| (0..n).map(|i| ((t * n + i) as f32).sin() * 3.7).collect()).collect();
        let of = std::array::from_fn(|t| [1.0, -4.0, 0.1, 1.7, 1.0, -0.3, 1e-3, 2.0][t]);
        for (sum, terms) in [1.0, 0.1].into_iter().flat_map(|m| (MIN_TERMS..=MAX_TERMS).map(move |t| (m, t)))
        {
            let k = TermFactors { factors: of, sum };
            let term = |t: usize, i: usize| x[t][i] * of[t] as f32;
            let expected: Vec<u32> = (0..n)
                .map(|i| {
                    let sum = (1..terms - 1).fold(term(0, i), |s, t| s + term(t, i));
                    (sum * k.sum as f32 + term(terms - 1, i)).to_bits()
                })
                .collect();
            let at: [*const u8; MAX_TERMS] = std::array::from_fn(|t| x[t].as_ptr().cast());
            let mut made = vec![0f32; n];
            for (level, stream) in IsaLevel::available().flat_map(|l| [(l, false), (l, true)]) {
                made.fill(0.0);
                let chain = find(DType::F32, terms, KernelVariant { level, stream }).unwrap();
                // SAFETY: each term and the result have `n` elements.
                unsafe { chain(n, made.as_mut_ptr().cast(), &at, &k) }
                assert!(
                    made.iter().map(|x| x.to_bits()).eq(expected.iter().copied()),
                    "{terms} {level:?} {stream}"
                );
            }
        }
        assert!(find(DType::F32, 3, KernelVariant { level: IsaLevel::Base, stream: false }).is_none());
        assert!(find(DType::F16, 4, KernelVariant { level: IsaLevel::Base, stream: false }).is_none());
    }
}
