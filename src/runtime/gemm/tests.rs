//! Products of every size, stride and element type, against sums in order.

use super::*;

/// Numbers that repeat on every machine.
fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let mut s = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            (s >> 40) as f64 / (1u64 << 24) as f64 - 0.5
        })
        .collect()
}
/// Strides of a matrix of this many rows and columns: by rows, by columns, or with gaps.
fn strides(form: usize, rows: usize, cols: usize) -> (isize, isize) {
    [(cols as isize, 1), (1, rows as isize), (2 * cols as isize + 3, 2)][form]
}
fn check<T: Copy + PartialEq + std::fmt::Debug>(
    dtype: DType,
    of: impl Fn(f64) -> T,
    to: impl Fn(T) -> f64,
    plus: impl Fn(T, T) -> T,
    bound: f64,
) {
    let all = [
        (1, 1, 1),
        (3, 5, 4),
        (1, 70, 35),
        (85, 130, 1),
        (39, 33, 1),
        (9, 600, 7),
        (64, 2, 40),
        (0, 3, 3),
        (3, 0, 3),
    ];
    let few = [(3, 5, 4), (1, 9, 3), (5, 9, 1), (0, 3, 3), (3, 0, 3)];
    let (sizes, step) = if cfg!(miri) { (&few[..], 8) } else { (&all[..], 2) };
    for &(m, k, n) in sizes {
        for form in (0..27).step_by(step) {
            let room = |r: usize, c: usize| (2 * r + 1) * (2 * c + 4) + 8;
            let (sa, sb, sc) =
                (strides(form % 3, m, k), strides(form / 3 % 3, k, n), strides(form / 9, m, n));
            let a: Vec<T> = numbers(room(m, k), 1).into_iter().map(&of).collect();
            let b: Vec<T> = numbers(room(k, n), 2).into_iter().map(&of).collect();
            let start: Vec<T> = numbers(room(m, n), 3).into_iter().map(&of).collect();
            let at = |s: (isize, isize), i: usize, j: usize| (i as isize * s.0 + j as isize * s.1) as usize;
            // SAFETY: each matrix has room for the elements that these strides name
            let run = |c: &mut Vec<T>, accumulate| unsafe {
                let (pa, pb, pc) = (a.as_ptr().cast(), b.as_ptr().cast(), c.as_mut_ptr().cast());
                gemm(dtype, m, k, n, pc, sc.0, sc.1, pa, sa.0, sa.1, pb, sb.0, sb.1, accumulate);
            };
            let (mut fresh, mut added) = (start.clone(), start.clone());
            run(&mut fresh, false);
            run(&mut added, true);
            for i in 0..m {
                for j in 0..n {
                    let terms = (0..k).map(|p| to(a[at(sa, i, p)]) * to(b[at(sb, p, j)]));
                    let (sum, scale) = terms.fold((0.0, 1e-30), |(s, t), x| (s + x, t + x.abs()));
                    let got = to(fresh[at(sc, i, j)]);
                    assert!(
                        (got - sum).abs() <= bound * scale,
                        "{dtype} {m}×{k}×{n} form {form}: {got} for {sum}"
                    );
                    let want = plus(start[at(sc, i, j)], fresh[at(sc, i, j)]);
                    assert_eq!(
                        added[at(sc, i, j)],
                        want,
                        "{dtype} {m}×{k}×{n} form {form}: not dst + product"
                    );
                }
            }
        }
    }
}

/// What the crate does, and what stands in for it under Miri: above its threshold, with the sums that take a scratch.
#[test]
fn the_crate_and_its_twin_agree() {
    let (m, k, n) = (2, PANEL + 8, 4 + TINY / PANEL / 2);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let start = numbers(m * n, 3);
    let product = |whole: bool, accumulate: bool| {
        let mut c = start.clone();
        let s = Sizes { m, k, n };
        let out = Out { at: c.as_mut_ptr(), rs: n as isize, cs: 1 };
        let (a, b) =
            (Mat { at: a.as_ptr(), rs: k as isize, cs: 1 }, Mat { at: b.as_ptr(), rs: n as isize, cs: 1 });
        // SAFETY: the matrices have as many elements as the sizes say
        unsafe { if whole { floats(s, out, a, b, accumulate) } else { loops(s, out, a, b, accumulate) } }
        c
    };
    for accumulate in [false, true] {
        for (x, y) in product(true, accumulate).iter().zip(product(false, accumulate)) {
            assert!((x - y).abs() < 1e-12, "{x} {y}");
        }
    }
}

#[test]
fn products_of_every_size_and_stride() {
    check::<f32>(DType::F32, |x| x as f32, |x| x as f64, |a, b| a + b, 1e-6);
    check::<f64>(DType::F64, |x| x, |x| x, |a, b| a + b, 1e-14);
    check::<f16>(DType::F16, f16::from_f64, f16::to_f64, |a, b| f16::from_f32(a.to_f32() + b.to_f32()), 1e-3);
    check::<bf16>(
        DType::BF16,
        bf16::from_f64,
        bf16::to_f64,
        |a, b| bf16::from_f32(a.to_f32() + b.to_f32()),
        1e-2,
    );
    check::<i32>(DType::I32, |x| (x * 100.0) as i32, |x| x as f64, |a, b| a + b, 0.0);
    check::<i64>(DType::I64, |x| (x * 100.0) as i64, |x| x as f64, |a, b| a + b, 0.0);
    check::<u16>(DType::U16, |x| ((x + 0.5) * 4.0) as u16, |x| x as f64, |a, b| a + b, 0.0);
}
