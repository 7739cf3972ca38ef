//! Matrix products whose rows, columns and terms are anywhere in memory, such as convolutions.
//!
//! The rows and the columns of a convolution are not at equal distances in memory: one of the two
//! is windows of an image, and the terms are several loops. One side of the product, whose rows are
//! the *lanes*, fills vectors; elements of the other side are broadcast from where they are. If
//! the lanes are not contiguous, about 128 terms of them are copied at a time, which then stay in
//! the first-level cache. A convolution therefore needs no matrix of all its windows.
//!
//! Each element of the result is the sum that [`gemm`](super::gemm) computes: turn by turn of the
//! outer loops, and in each turn in panels of 512 terms, so no bit depends on the choice.

pub(crate) use super::gathered_sides::{ProductSide, ProductTerms};
#[cfg(target_arch = "x86_64")]
use super::gathered_vectors::{avx2, avx512};
#[cfg(target_arch = "x86_64")]
use crate::kernels::cpu::{self, IsaLevel};

/// Returns true if this processor and level have [`gathered`].
pub(crate) fn usable() -> bool {
    #[cfg(target_arch = "x86_64")]
    return cpu::level() > IsaLevel::Base;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Computes a product of float32 (if `size` is 4) or float64 elements.
///
/// `blocks` has the terms of each shard, whose sums are added in a tree; there is at least one.
///
/// # Safety
/// All terms of all rows and lanes are in memory, and initialized. All elements of the result at
/// `to` are writable, and are not elements of an operand. [`usable`] is true.
pub(crate) unsafe fn gathered(
    size: usize,
    to: *mut u8,
    rows: &ProductSide<'_>,
    lanes: &ProductSide<'_>,
    blocks: &[ProductTerms],
) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller upholds the contract, and the processor has its level.
    unsafe {
        match cpu::level() {
            IsaLevel::Avx512 => avx512(size, to, rows, lanes, blocks),
            _ => avx2(size, to, rows, lanes, blocks),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (size, to, rows, lanes, blocks);
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::super::{GemmElement, PANEL_TERMS};
    use super::*;
    use smallvec::SmallVec;

    /// Returns the sum of a block: turn by turn, and in each turn by panels.
    fn block_sum<T: GemmElement>(x: &[T], y: &[T], at: [isize; 2], b: &ProductTerms) -> T {
        let mut sum = None;
        let count: usize = b.outer.iter().map(|o| o.0).product();
        for turn in 0..count {
            let (mut i, mut at) = (turn, [at[0] + b.offsets[0], at[1] + b.offsets[1]]);
            for (size, strides) in b.outer.iter().rev() {
                at = [0, 1].map(|s| at[s] + (i % size) as isize * strides[s]);
                i /= size;
            }
            let term = |k: usize| [0, 1].map(|s| (at[s] + k as isize * b.strides[s]) as usize);
            let panel = |from: usize| {
                (from..b.size.min(from + PANEL_TERMS))
                    .map(term)
                    .fold(T::ZERO, |sum, [p, q]| x[p].fma::<1>(y[q], sum))
            };
            let panels: Vec<T> = (0..b.size).step_by(PANEL_TERMS).map(panel).collect();
            let made = panels.into_iter().reduce(T::plus).unwrap_or(T::ZERO);
            // (the panels of the first turn are added to the total one by one, to the same effect)
            sum = Some(sum.map_or(made, |sum: T| sum.plus(made)));
        }
        sum.unwrap_or(T::ZERO)
    }

    /// Compares products of these sizes with sums in the documented order, at both levels.
    fn check<T: GemmElement + PartialEq + std::fmt::Debug + Default>(of: impl Fn(f64) -> T) {
        let mut seed = 1u64;
        let mut next = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let sizes = [1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 15, 16, 17, 31, 33, 48, 63, 64, 65, 130, 515];
        for round in 0..48 {
            let (m, n) = (sizes[next(if round % 8 == 0 { 21 } else { 16 })], sizes[next(20)]);
            let outer: SmallVec<[usize; 2]> = (0..next(3)).map(|_| 1 + next(5)).collect();
            let size = if round % 12 == 0 { [511, 513, 1025][next(3)] } else { 1 + next(70) };
            let blocks = 1 + next(if round % 3 == 0 { 9 } else { 2 }) as isize;
            // positions are sums of the strides of rows, of turns and of terms
            let steps = |next: &mut dyn FnMut(usize) -> usize| [1, 2, 3, 7, n, n + 3][next(6)] as isize;
            let lane_step = steps(&mut next);
            let (row_step, strides) = (steps(&mut next), [steps(&mut next), steps(&mut next)]);
            let outer = outer.into_iter().map(|size| (size, [next(40) as isize, next(40) as isize]));
            let outer: SmallVec<[_; 2]> = outer.collect();
            let terms: Vec<ProductTerms> = (0..blocks)
                .map(|b| ProductTerms { offsets: [b, 2 * b], outer: outer.clone(), size, strides })
                .collect();
            let bent = |i: usize, step: isize| i as isize * step + (i as isize / 9) * 3;
            let rows: Vec<isize> = (0..m).map(|i| bent(i, row_step)).collect();
            let lanes: Vec<isize> = if round % 2 == 0 {
                (0..n as isize).map(|i| i * lane_step).collect()
            } else {
                (0..n).map(|i| bent(i, lane_step)).collect()
            };
            let room = (600 * (n + 3) + 1100 * (n + 3) + 2000) * 2;
            let numbers = |salt: usize| -> Vec<T> {
                (0..room).map(|i| of(((i * 7919 + salt) % 1013) as f64 / 1013.0 - 0.5)).collect()
            };
            let (x, y) = (numbers(1), numbers(2));
            let by_rows = round % 4 < 2;
            let (rs, ls) = if by_rows { (n as isize + 1, 1) } else { (1, m as isize + 1) };
            let [ro, lo] =
                [(m, rs), (n, ls)].map(|(n, s)| (0..n as isize).map(|i| i * s).collect::<Vec<_>>());
            let a = ProductSide { base: x.as_ptr().cast(), offsets: &rows, result_offsets: &ro };
            let b = ProductSide { base: y.as_ptr().cast(), offsets: &lanes, result_offsets: &lo };
            for level in IsaLevel::available().filter(|l| *l > IsaLevel::Base) {
                let mut made = vec![T::default(); (m + 1) * (n + 1)];
                let run = if level == IsaLevel::Avx512 { avx512 } else { avx2 };
                // SAFETY: all positions are in the arrays, and the processor has the level.
                unsafe { run(size_of::<T>(), made.as_mut_ptr().cast(), &a, &b, &terms) }
                for (i, j) in (0..m).flat_map(|i| [0, n / 2, n - 1].map(|j| (i, j))) {
                    let mut sums: Vec<T> = Vec::new();
                    for (k, block) in terms.iter().enumerate() {
                        sums.push(block_sum(&x, &y, [rows[i], lanes[j]], block));
                        let last = k + 1 == terms.len();
                        let merges = if last { sums.len() as u32 - 1 } else { (k + 1).trailing_zeros() };
                        for _ in 0..merges {
                            let top = sums.pop().unwrap();
                            let below = sums.pop().unwrap();
                            sums.push(below.plus(top));
                        }
                    }
                    let at = (ro[i] + lo[j]) as usize;
                    assert_eq!(made[at], sums[0], "{level:?} {m} {n} {size} {outer:?} {blocks} at {i} {j}");
                }
            }
        }
    }

    #[test]
    fn float32_sums_have_the_documented_order() {
        check(|x| x as f32);
    }
    #[test]
    fn float64_sums_have_the_documented_order() {
        check(|x| x);
    }
}
