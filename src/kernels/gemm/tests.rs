//! Tests that products have the documented sums, bit for bit.
//!
//! They cover every size, stride and element type.

use super::*;
use crate::kernels::cpu::IsaLevel;

/// Returns pseudorandom numbers, which are the same on every machine.
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
/// Returns the strides of a matrix that is row-major, column-major or has gaps.
fn strides(form: usize, rows: usize, cols: usize) -> (isize, isize) {
    [(cols as isize, 1), (1, rows as isize), (2 * cols as isize + 3, 2)][form]
}

/// Returns true if this level has a fused multiply-add.
fn fused() -> bool {
    cfg!(target_arch = "aarch64") || cpu::level() > IsaLevel::Base
}
/// Returns the documented sum for an element of a product of matrices.
fn sum<T: GemmElement>(terms: &[(T, T)]) -> T {
    let fma = if fused() { T::fma::<1> } else { T::fma::<0> };
    let panels = terms.chunks(PANEL_TERMS).map(|p| p.iter().fold(T::ZERO, |sum, (x, y)| fma(*x, *y, sum)));
    panels.reduce(T::plus).unwrap_or(T::ZERO)
}

/// Returns memory for a matrix with these strides: its elements, and numbers in the gaps.
fn stored<T: Copy>(noise: &[T], elements: &[T], cols: usize, strides: (isize, isize)) -> Vec<T> {
    let mut memory = noise.to_vec();
    for (k, x) in elements.iter().enumerate() {
        memory[at(strides, k / cols, k % cols)] = *x;
    }
    memory
}
fn at(strides: (isize, isize), i: usize, j: usize) -> usize {
    (i as isize * strides.0 + j as isize * strides.1) as usize
}

/// Computes products of these sizes, for all or some combinations of strides.
///
/// `expect` gets the terms of an element, once for all combinations; `test` gets the element before
/// the call, the product, the accumulated result, and what `expect` returned.
fn each<T: GemmElement + PartialEq, E>(
    dtype: DType,
    of: impl Fn(f64) -> T,
    sizes: &[(usize, usize, usize)],
    step: usize,
    expect: impl Fn(&[(T, T)]) -> E,
    test: impl Fn(&str, T, T, T, &E),
) {
    for &(m, k, n) in sizes {
        let room = |r: usize, c: usize| (2 * r + 1) * (2 * c + 4) + 8;
        let [a, b, start]: [Vec<T>; 3] = [(m, k, 1), (k, n, 2), (m, n, 3)]
            .map(|(r, c, seed)| numbers(room(r, c), seed).into_iter().map(&of).collect());
        let expected: Vec<E> = (0..m * n)
            .map(|c| expect(&(0..k).map(|p| (a[c / n * k + p], b[p * n + c % n])).collect::<Vec<_>>()))
            .collect();
        for form in (0..27).step_by(step) {
            let (sa, sb, sc) =
                (strides(form % 3, m, k), strides(form / 3 % 3, k, n), strides(form / 9, m, n));
            let (a, b) = (stored(&a, &a[..m * k], k, sa), stored(&b, &b[..k * n], n, sb));
            let start = stored(&start, &start[..m * n], n, sc);
            let way = ProductKind::for_shape(m, n);
            // SAFETY: each matrix has space for the elements that the sizes and strides address.
            let run = |c: &mut Vec<T>, accumulate, by| unsafe {
                let (pa, pb, pc) = (a.as_ptr().cast(), b.as_ptr().cast(), c.as_mut_ptr().cast());
                gemm(dtype, way, m, k, n, pc, sc.0, sc.1, pa, sa.0, sa.1, pb, sb.0, sb.1, accumulate, by);
            };
            let (mut fresh, mut added) = (start.clone(), start.clone());
            run(&mut fresh, false, 1.0);
            run(&mut added, true, 1.0);
            let mut scaled = start.clone();
            if way == ProductKind::MatMat && k <= PANEL_TERMS && dtype.is_float() {
                run(&mut scaled, false, -0.3);
            } else {
                scaled.copy_from_slice(&fresh);
                scaled.iter_mut().for_each(|x| *x = x.times(-0.3));
            }
            let name = format!("{dtype} {m}×{k}×{n} form {form}");
            for (c, expected) in expected.iter().enumerate() {
                let c = at(sc, c / n, c % n);
                assert!(scaled[c] == fresh[c].times(-0.3), "{name}: not rounded, then multiplied");
                test(&name, start[c], fresh[c], added[c], expected);
            }
        }
    }
}

#[test]
fn products_of_matrices_add_in_one_order() {
    let all = [
        (3, 5, 4),
        (33, 3, 40),
        (9, 600, 7),
        (64, 2, 40),
        (17, 513, 16),
        (70, 514, 66),
        (2, 1100, 65),
        (130, 40, 3),
        (18, 28, 83),
        (66, 20, 70),
        (13, 257, 33),
        (4, 300, 66),
        (8, 71, 1100),
        (3, 515, 1030),
        (0, 3, 3),
        (3, 0, 3),
    ];
    let few = [(3, 5, 4), (2, PANEL_TERMS + 3, 2), (0, 3, 3), (3, 0, 3)];
    let (sizes, step) = if cfg!(miri) { (&few[..], 8) } else { (&all[..], 2) };
    fn test<T: GemmElement + PartialEq + std::fmt::Debug>(
        name: &str,
        was: T,
        got: T,
        added: T,
        expected: &T,
    ) {
        assert_eq!(got, *expected, "{name}");
        assert_eq!(added, was.plus(*expected), "{name}: not dst + product");
    }
    each::<f32, _>(DType::F32, |x| x as f32, sizes, step, sum, test);
    each::<f64, _>(DType::F64, |x| x, sizes, step, sum, test);
    each::<u8, _>(DType::I8, |x| (x * 100.0) as i8 as u8, sizes, step, sum, test);
    each::<u16, _>(DType::U16, |x| ((x + 0.5) * 4.0) as u16, sizes, step, sum, test);
    each::<u32, _>(DType::I32, |x| (x * 3e9) as i32 as u32, sizes, step, sum, test);
    each::<u64, _>(DType::I64, |x| (x * 1e19) as i64 as u64, sizes, step, sum, test);
}

#[test]
fn products_with_vectors_are_near() {
    let all =
        [(1, 1, 1), (1, 70, 35), (85, 130, 1), (39, 33, 1), (1, 600, 7), (5, 9, 1), (0, 3, 1), (1, 0, 3)];
    let (sizes, step) = if cfg!(miri) { (&all[4..], 8) } else { (&all[..], 2) };
    each::<f32, _>(
        DType::F32,
        |x| x as f32,
        sizes,
        step,
        |terms| {
            let exact: f64 = terms.iter().map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            let scale: f64 = terms.iter().map(|(x, y)| f64::from(x * y).abs()).sum();
            (exact, scale)
        },
        |name, was, got, added, &(exact, scale)| {
            assert!((f64::from(got) - exact).abs() <= 1e-6 * scale + 1e-30, "{name}: {got} for {exact}");
            assert_eq!(added, was + got, "{name}: not dst + product");
        },
    );
    each::<u16, _>(
        DType::I16,
        |x| (x * 100.0) as i16 as u16,
        sizes,
        step,
        sum,
        |name, was, got, added, expected| {
            assert_eq!(got, *expected, "{name}");
            assert_eq!(added, was.wrapping_add(got), "{name}");
        },
    );
}

/// Tests that an element does not depend on the tile that it was computed with.
#[test]
fn a_tile_is_a_part_of_the_whole() {
    let (m, k, n) = if cfg!(miri) { (5, 40, 3) } else { (66, 700, 35) };
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let tile = |way: ProductKind, (lo, m): (usize, usize), (from, n_here): (usize, usize)| {
        let mut c = vec![0.0; m * n_here];
        let (rs, brs) = (k as isize, n as isize);
        // SAFETY: the rows and columns of the tile are within the matrices.
        unsafe {
            let (a, b) = (a.as_ptr().add(lo * k).cast(), b.as_ptr().add(from).cast());
            let to = c.as_mut_ptr().cast();
            gemm(DType::F64, way, m, k, n_here, to, n_here as isize, 1, a, rs, 1, b, brs, 1, false, 1.0);
        }
        c
    };
    let whole = tile(ProductKind::MatMat, (0, m), (0, n));
    for (lo, rows) in [(0, 1), (m - 1, 1), (1, 2), (2, m - 2)] {
        for (from, columns) in [(0, 1), (n - 1, 1), (1, 2), (0, n)] {
            let part = tile(ProductKind::MatMat, (lo, rows), (from, columns));
            for (i, row) in part.chunks(columns).enumerate() {
                let at = (lo + i) * n + from;
                assert_eq!(row, &whole[at..at + columns], "{rows} rows and {columns} columns");
            }
        }
    }
    for columns in [ProductKind::MatVec, ProductKind::VecMat] {
        let ((m, n), one) = if columns == ProductKind::MatVec { ((m, 1), (0, 1)) } else { ((1, n), (0, 1)) };
        let whole = tile(columns, (0, m), (0, n));
        let last = if columns == ProductKind::MatVec {
            tile(columns, (m - 1, 1), one)
        } else {
            tile(columns, one, (n - 1, 1))
        };
        assert_eq!(last[0], whole[whole.len() - 1], "{columns:?}");
    }
}
