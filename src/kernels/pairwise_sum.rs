//! Pairwise combination of partial values, in the fixed tree order that all collectives use.

use crate::core::{DType, Reducer};
use crate::kernels;

/// The number of elements that are combined at a time, in total over all operands.
const CHUNK_ELEMENTS: usize = 1024;
/// The maximum depth of the tree, which is enough for any number of devices.
const MAX_LEVELS: usize = 40;

/// Combines the operands, of `n` elements each, into `dst`.
///
/// The order for eight operands is ((0+1)+(2+3))+((4+5)+(6+7)). For other numbers of operands it is
/// that of a binary counter: results that combine equal numbers of operands are merged. A sum of
/// floats also adds 0, like all sums, so that the sum of −0s is 0. Returns false if the reducer is
/// not defined for elements of this type.
///
/// # Safety
/// There is at least one operand. Each operand and `dst` point to `n` aligned elements of `dtype`;
/// `dst` is writable, and overlaps no operand, except that it may be operand 0.
pub(crate) unsafe fn pairwise_combine(
    reducer: Reducer,
    dtype: DType,
    operands: &[*const u8],
    n: usize,
    dst: *mut u8,
) -> bool {
    let Some(mix) = kernels::combine(reducer, dtype) else { return false };
    let size = dtype.size();
    let begins = reducer == Reducer::Add && dtype.is_inexact();
    // all bits of 0 are 0 in every float and complex type
    let zeros = [0u128; CHUNK_ELEMENTS];
    // SAFETY: operands and `dst` have `n` elements (caller contract); each scratch row has space
    // for a chunk, whose elements have at most 16 bytes each.
    unsafe {
        let begin = |at: usize, m: usize| {
            let to = dst.add(at * size);
            mix(m, to, to, zeros.as_ptr().cast(), to, &[0.0; 4]);
        };
        if let [one] = operands {
            std::ptr::copy(*one, dst, n * size);
            (0..n)
                .step_by(CHUNK_ELEMENTS)
                .filter(|_| begins)
                .for_each(|at| begin(at, (n - at).min(CHUNK_ELEMENTS)));
            return true;
        }
        let levels = (usize::BITS - operands.len().leading_zeros()) as usize + 1;
        let mut scratch = vec![0u128; levels * CHUNK_ELEMENTS];
        let rows: [*mut u8; MAX_LEVELS] = std::array::from_fn(|l| {
            scratch.as_mut_ptr().wrapping_add(l.min(levels - 1) * CHUNK_ELEMENTS).cast()
        });
        for at in (0..n).step_by(CHUNK_ELEMENTS) {
            let m = (n - at).min(CHUNK_ELEMENTS);
            let mut stack = [std::ptr::null::<u8>(); MAX_LEVELS];
            let mut depth = 0;
            let merge = |stack: &mut [*const u8; MAX_LEVELS], depth: usize, last: bool| {
                let (a, b) = (stack[depth - 2], stack[depth - 1]);
                let to = if last && depth == 2 { dst.add(at * size) } else { rows[depth - 2] };
                mix(m, to, a, b, b, &[0.0; 4]);
                stack[depth - 2] = to;
                depth - 1
            };
            for (k, part) in operands.iter().enumerate() {
                stack[depth] = part.add(at * size);
                depth += 1;
                let mut count = k + 1;
                while count % 2 == 0 {
                    depth = merge(&mut stack, depth, k + 1 == operands.len());
                    count /= 2;
                }
            }
            while depth > 1 {
                depth = merge(&mut stack, depth, true);
            }
            if begins {
                begin(at, m);
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(parts: &[Vec<f32>]) -> Vec<f32> {
        let at: Vec<*const u8> = parts.iter().map(|p| p.as_ptr().cast()).collect();
        let mut out = vec![0f32; parts[0].len()];
        // SAFETY: all operands and the result have the same length.
        assert!(unsafe {
            pairwise_combine(Reducer::Add, DType::F32, &at, out.len(), out.as_mut_ptr().cast())
        });
        out
    }

    #[test]
    fn the_order_is_the_documented_one() {
        const N: usize = if cfg!(miri) { CHUNK_ELEMENTS + 5 } else { 2500 };
        let x = |k: usize| -> Vec<f32> { (0..N).map(|i| ((i * 31 + k * 977) as f32).sin() * 1e3).collect() };
        let all = [3, 7, 1, 2, 4, 5, 6, 8, 9, 16, 23];
        for &n in if cfg!(miri) { &all[..2] } else { &all } {
            let parts: Vec<_> = (0..n).map(x).collect();
            let got = add(&parts);
            for i in [0, 1, 1023, 1024, N - 1] {
                let p = |k: usize| parts[k][i];
                let expected = match n {
                    1 => p(0),
                    2 => p(0) + p(1),
                    3 => (p(0) + p(1)) + p(2),
                    4 => (p(0) + p(1)) + (p(2) + p(3)),
                    6 => ((p(0) + p(1)) + (p(2) + p(3))) + (p(4) + p(5)),
                    7 => ((p(0) + p(1)) + (p(2) + p(3))) + ((p(4) + p(5)) + p(6)),
                    8 => ((p(0) + p(1)) + (p(2) + p(3))) + ((p(4) + p(5)) + (p(6) + p(7))),
                    _ => continue,
                };
                assert_eq!(got[i].to_bits(), expected.to_bits(), "{n} parts");
            }
            let exact: f64 = parts.iter().map(|p| p[77] as f64).sum();
            assert!((got[77] as f64 - exact).abs() < 1e-2);
        }
    }
}
