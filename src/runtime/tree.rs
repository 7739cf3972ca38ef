//! The fixed tree in which collectives combine the parts of devices.

use super::kernels;
use crate::program::sentence::Combine;
use crate::types::DType;

/// Elements that are combined at a time, over all parts.
const RUN: usize = 1024;
/// Levels of the tree: more than any number of devices needs.
const LEVELS: usize = 40;

/// Combines the parts, n elements each, into `dst`: ((0+1)+(2+3))+((4+5)+(6+7)), and so on for any number, as a binary counter goes. A sum of
/// floats begins with 0, as all sums do: that of −0s is 0. False where elements of this type are not combined so.
///
/// # Safety
/// Each part and `dst` are n elements of the type, aligned; `dst` overlaps no part but may be part 0; there is at least one part.
pub(crate) unsafe fn tree(
    combine: Combine,
    dtype: DType,
    parts: &[*const u8],
    n: usize,
    dst: *mut u8,
) -> bool {
    let Some(mix) = kernels::combine(combine, dtype) else { return false };
    let size = dtype.size();
    let begins = combine == Combine::Add && dtype.is_inexact();
    // (all its bits are those of 0 in every type of floats and of complex numbers)
    let zeros = [0u128; RUN];
    // SAFETY: the caller's; scratch rows hold RUN elements of at most 16 bytes each
    unsafe {
        let begin = |at: usize, m: usize| {
            let to = dst.add(at * size);
            mix(m, to, to, zeros.as_ptr().cast(), to, &[0.0; 4]);
        };
        if let [one] = parts {
            std::ptr::copy(*one, dst, n * size);
            (0..n).step_by(RUN).filter(|_| begins).for_each(|at| begin(at, (n - at).min(RUN)));
            return true;
        }
        let levels = (usize::BITS - parts.len().leading_zeros()) as usize + 1;
        let mut scratch = vec![0u128; levels * RUN];
        let rows: [*mut u8; LEVELS] =
            std::array::from_fn(|l| scratch.as_mut_ptr().wrapping_add(l.min(levels - 1) * RUN).cast());
        for at in (0..n).step_by(RUN) {
            let m = (n - at).min(RUN);
            let mut stack = [std::ptr::null::<u8>(); LEVELS];
            let mut depth = 0;
            let merge = |stack: &mut [*const u8; LEVELS], depth: usize, last: bool| {
                let (a, b) = (stack[depth - 2], stack[depth - 1]);
                let to = if last && depth == 2 { dst.add(at * size) } else { rows[depth - 2] };
                mix(m, to, a, b, b, &[0.0; 4]);
                stack[depth - 2] = to;
                depth - 1
            };
            for (k, part) in parts.iter().enumerate() {
                stack[depth] = part.add(at * size);
                depth += 1;
                let mut count = k + 1;
                while count % 2 == 0 {
                    depth = merge(&mut stack, depth, k + 1 == parts.len());
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
        // SAFETY: all of one length
        assert!(unsafe { tree(Combine::Add, DType::F32, &at, out.len(), out.as_mut_ptr().cast()) });
        out
    }

    #[test]
    fn the_order_is_the_documented_one() {
        const N: usize = if cfg!(miri) { RUN + 5 } else { 2500 };
        let x = |k: usize| -> Vec<f32> { (0..N).map(|i| ((i * 31 + k * 977) as f32).sin() * 1e3).collect() };
        let all = [3, 7, 1, 2, 4, 5, 6, 8, 9, 16, 23];
        for &n in if cfg!(miri) { &all[..2] } else { &all } {
            let parts: Vec<_> = (0..n).map(x).collect();
            let got = add(&parts);
            for i in [0, 1, 1023, 1024, N - 1] {
                let p = |k: usize| parts[k][i];
                let want = match n {
                    1 => p(0),
                    2 => p(0) + p(1),
                    3 => (p(0) + p(1)) + p(2),
                    4 => (p(0) + p(1)) + (p(2) + p(3)),
                    6 => ((p(0) + p(1)) + (p(2) + p(3))) + (p(4) + p(5)),
                    7 => ((p(0) + p(1)) + (p(2) + p(3))) + ((p(4) + p(5)) + p(6)),
                    8 => ((p(0) + p(1)) + (p(2) + p(3))) + ((p(4) + p(5)) + (p(6) + p(7))),
                    _ => continue,
                };
                assert_eq!(got[i].to_bits(), want.to_bits(), "{n} parts");
            }
            let exact: f64 = parts.iter().map(|p| p[77] as f64).sum();
            assert!((got[77] as f64 - exact).abs() < 1e-2);
        }
    }
}
