//! Sums of many scaled operands in one loop: a stencil's neighbours are read once, and no partial sum goes through memory.

use super::float::Float;
use super::run::{How, fresh};
#[cfg(target_arch = "x86_64")]
use crate::runtime::cpu::Level;
use crate::runtime::cpu::for_each_isa;
use crate::types::DType;
use std::marker::PhantomData;
use std::slice::from_raw_parts;

/// Fewest terms of a chain: of fewer a [`Kernel`](super::Kernel) takes care.
pub const FEWEST: usize = 4;
/// Most terms.
pub const TERMS: usize = 8;

/// The constants of a chain: each term's factor, and that of the sum of all terms but the last.
#[derive(Clone, Copy, Debug)]
pub struct Factors {
    /// Of each term.
    pub of: [f64; TERMS],
    /// Of the sum that the last term is added to.
    pub sum: f64,
}

/// n elements: `dst[i] = m·((k0·x0[i] + k1·x1[i]) + …) + k·x[i]`, where the last term is added to the scaled sum of the others; each
/// product and each sum is rounded, as if there were a kernel for each.
///
/// The caller upholds: each of the chain's terms is n elements of its type, contiguous and aligned to an element; `dst` has room for n
/// elements and overlaps none of them.
pub type Chain = unsafe fn(n: usize, dst: *mut u8, x: &[*const u8; TERMS], k: &Factors);

/// A number of terms of a type.
trait Links: 'static {
    /// Bytes of an element.
    #[cfg(target_arch = "x86_64")]
    const SIZE: usize;
    /// Elements `first` to before `first + n`, from `dst` on.
    ///
    /// # Safety
    /// As [`Chain`] says.
    unsafe fn run(first: usize, n: usize, dst: *mut u8, x: &[*const u8; TERMS], k: &Factors);
}

struct Of<T, const N: usize>(PhantomData<T>);

impl<T: Float, const N: usize> Links for Of<T, N> {
    #[cfg(target_arch = "x86_64")]
    const SIZE: usize = size_of::<T>();
    #[inline(always)]
    unsafe fn run(first: usize, n: usize, dst: *mut u8, x: &[*const u8; TERMS], k: &Factors) {
        // SAFETY: the caller's
        let (made, x): (_, [&[T]; N]) = unsafe {
            let of = |i: usize| from_raw_parts(x[i].cast::<T>().wrapping_add(first), n);
            (fresh::<T>(dst, n), std::array::from_fn(of))
        };
        let (f, m): ([T; N], T) = (std::array::from_fn(|i| T::of(k.of[i])), T::of(k.sum));
        for i in 0..n {
            let mut sum = x[0][i].mul(f[0]);
            for t in 1..N - 1 {
                sum = sum.add(x[t][i].mul(f[t]));
            }
            made[i].write(sum.mul(m).add(x[N - 1][i].mul(f[N - 1])));
        }
    }
}

for_each_isa! {
    mod plain<K: Links>(n: usize, dst: *mut u8, x: &[*const u8; TERMS], k: &Factors) at L
        => K::run(0, n, dst, x, k);
}

#[cfg(target_arch = "x86_64")]
mod stream {
    use super::*;
    use crate::runtime::kernels::run::{Pieces, past256, past512};

    struct Loop<'a, K>(&'a [*const u8; TERMS], &'a Factors, PhantomData<K>);
    impl<K: Links> Pieces for Loop<'_, K> {
        const SIZE: usize = K::SIZE;
        #[inline(always)]
        unsafe fn piece<const L: u8>(&self, first: usize, n: usize, to: *mut u8) {
            // SAFETY: the caller's
            unsafe { K::run(first, n, to, self.0, self.1) }
        }
    }
    /// # Safety
    /// As [`Chain`] says; the processor has these features.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma,bmi2")]
    pub(super) unsafe fn avx512<K: Links>(n: usize, dst: *mut u8, x: &[*const u8; TERMS], k: &Factors) {
        // SAFETY: the caller's
        unsafe { past512(n, dst, &Loop::<K>(x, k, PhantomData)) }
    }
    /// # Safety
    /// As [`Chain`] says; the processor has these features.
    #[target_feature(enable = "avx2,fma,bmi2")]
    pub(super) unsafe fn avx2<K: Links>(n: usize, dst: *mut u8, x: &[*const u8; TERMS], k: &Factors) {
        // SAFETY: the caller's
        unsafe { past256(n, dst, &Loop::<K>(x, k, PhantomData)) }
    }
}

fn pick<K: Links>(how: How) -> Chain {
    match (how.level, how.stream) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512, true) => stream::avx512::<K>,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2, true) => stream::avx2::<K>,
        (level, _) => plain::at::<K>(level),
    }
}

fn of<T: Float>(terms: usize, how: How) -> Option<Chain> {
    Some(match terms {
        4 => pick::<Of<T, 4>>(how),
        5 => pick::<Of<T, 5>>(how),
        6 => pick::<Of<T, 6>>(how),
        7 => pick::<Of<T, 7>>(how),
        8 => pick::<Of<T, 8>>(how),
        _ => return None,
    })
}

/// The chain of so many terms, from [`FEWEST`] to [`TERMS`]; `None` for other numbers of them and for types that have none.
pub(super) fn find(dtype: DType, terms: usize, how: How) -> Option<Chain> {
    match dtype {
        DType::F32 => of::<f32>(terms, how),
        DType::F64 => of::<f64>(terms, how),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::cpu::Level;

    #[test]
    fn a_chain_rounds_each_step() {
        let n = 700;
        let x: Vec<Vec<f32>> =
            (0..TERMS).map(|t| (0..n).map(|i| ((t * n + i) as f32).sin() * 3.7).collect()).collect();
        let of = std::array::from_fn(|t| [1.0, -4.0, 0.1, 1.7, 1.0, -0.3, 1e-3, 2.0][t]);
        for (sum, terms) in [1.0, 0.1].into_iter().flat_map(|m| (FEWEST..=TERMS).map(move |t| (m, t))) {
            let k = Factors { of, sum };
            let term = |t: usize, i: usize| x[t][i] * of[t] as f32;
            let want: Vec<u32> = (0..n)
                .map(|i| {
                    let sum = (1..terms - 1).fold(term(0, i), |s, t| s + term(t, i));
                    (sum * k.sum as f32 + term(terms - 1, i)).to_bits()
                })
                .collect();
            let at: [*const u8; TERMS] = std::array::from_fn(|t| x[t].as_ptr().cast());
            let mut made = vec![0f32; n];
            for (level, stream) in Level::available().flat_map(|l| [(l, false), (l, true)]) {
                made.fill(0.0);
                let chain = find(DType::F32, terms, How { level, stream }).unwrap();
                // SAFETY: n elements each
                unsafe { chain(n, made.as_mut_ptr().cast(), &at, &k) }
                assert!(
                    made.iter().map(|x| x.to_bits()).eq(want.iter().copied()),
                    "{terms} {level:?} {stream}"
                );
            }
        }
        assert!(find(DType::F32, 3, How { level: Level::Base, stream: false }).is_none());
        assert!(find(DType::F16, 4, How { level: Level::Base, stream: false }).is_none());
    }
}
