//! Tests of factorisations, solutions and spectra, including matrices without a result.

use atmesh_linalg::{Real, Triangle};

/// Returns pseudo-random numbers of both signs.
fn numbers(n: usize, seed: u64) -> Vec<f64> {
    let one = |i: u64| {
        let h = (i + 1 + seed * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let h = (h ^ h >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (h >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n as u64).map(one).collect()
}

fn times(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
    (0..m * n).map(|p| at(p / n, p % n)).collect()
}

fn turned(a: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|p| a[(p % m) * n + p / m]).collect()
}

fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|p| f64::from(u8::from(p / n == p % n))).collect()
}

#[track_caller]
fn near(a: &[f64], b: &[f64], by: f64) {
    assert_eq!(a.len(), b.len());
    for (x, y) in a.iter().zip(b) {
        assert!((x - y).abs() <= by * (1.0 + y.abs()), "{x}, and {y}");
    }
}

/// Sizes below and above the limits at which the algorithms change.
const SIZES: [usize; 8] = [0, 1, 2, 5, 17, 40, 70, 150];

#[test]
fn factors_multiply_to_the_matrix() {
    for m in SIZES {
        for n in [m, m / 2, m + 3] {
            let a = numbers(m * n, (m + n) as u64);
            for full in [false, true] {
                let k = if full { m } else { m.min(n) };
                let (q, r) = f64::qr(&a, m, n, full);
                near(&times(&q, &r, [m, k, n]), &a, 1e-11);
                near(&times(&turned(&q, m, k), &q, [k, m, k]), &identity(k), 1e-11);
                let (u, s, vt) = f64::svd(&a, m, n, full);
                let (p, least) = (if full { m } else { m.min(n) }, m.min(n));
                let us: Vec<f64> =
                    (0..m * least).map(|at| u[at / least * p + at % least] * s[at % least]).collect();
                near(&times(&us, &vt[..least * n], [m, least, n]), &a, 1e-11);
                near(&times(&turned(&u, m, p), &u, [p, m, p]), &identity(p), 1e-11);
                assert!(s.windows(2).all(|w| w[0] >= w[1]) && s.iter().all(|s| *s >= 0.0));
                near(&s, &f64::svdvals(&a, m, n), 1e-11);
            }
            let lu = f64::lu(&a, m, n);
            let k = m.min(n);
            let l: Vec<f64> = (0..m * k)
                .map(|p| match (p / k).cmp(&(p % k)) {
                    std::cmp::Ordering::Less => 0.0,
                    std::cmp::Ordering::Equal => 1.0,
                    std::cmp::Ordering::Greater => lu.factors[p / k * n + p % k],
                })
                .collect();
            let u: Vec<f64> = (0..k * n).map(|p| if p / n <= p % n { lu.factors[p] } else { 0.0 }).collect();
            assert!(l.iter().all(|x| x.abs() <= 1.0));
            let permuted: Vec<f64> = lu.rows.iter().flat_map(|i| a[i * n..(i + 1) * n].to_vec()).collect();
            near(&times(&l, &u, [m, k, n]), &permuted, 1e-11);
            let mut order: Vec<usize> = (0..m).collect();
            lu.pivots.iter().enumerate().for_each(|(i, p)| order.swap(i, *p));
            assert_eq!(order, lu.rows);
        }
    }
}

#[test]
fn symmetric_matrices() {
    for n in SIZES {
        let x = numbers(n * n, 3);
        let mut a = times(&x, &turned(&x, n, n), [n, n, n]);
        (0..n).for_each(|i| a[i * n + i] += 1.0);
        let l = f64::cholesky(&a, n);
        near(&times(&l, &turned(&l, n, n), [n, n, n]), &a, 1e-11);
        let (w, v) = f64::eigh(&x, n);
        let half: Vec<f64> = x.iter().zip(turned(&x, n, n)).map(|(a, b)| 0.5 * (a + b)).collect();
        let vw: Vec<f64> = (0..n * n).map(|p| v[p] * w[p % n]).collect();
        near(&times(&half, &v, [n, n, n]), &vw, 1e-10);
        assert!(w.windows(2).all(|w| w[0] <= w[1]));
        near(&w, &f64::eigvalsh(&x, n), 1e-11);
    }
}

#[test]
fn solutions_solve() {
    for n in SIZES {
        let (a, b) = (numbers(n * n, 1), numbers(n * 3, 2));
        let x = f64::solve(&a, n, false, &b, 3);
        near(&times(&a, &x, [n, n, 3]), &b, 1e-8);
        let x = f64::solve(&a, n, true, &b, 3);
        near(&times(&turned(&a, n, n), &x, [n, n, 3]), &b, 1e-8);
        near(&times(&a, &f64::inv(&a, n), [n, n, n]), &identity(n), 1e-8);
        let mut t = a.clone();
        (0..n).for_each(|i| t[i * n + i] += 20.0);
        for bits in 0..8 {
            let how = Triangle { lower: bits & 1 > 0, transposed: bits & 2 > 0, unit: bits & 4 > 0 };
            let by = if how.unit { 0.02 } else { 1.0 };
            let t: Vec<f64> = t.iter().map(|x| x * by).collect();
            let at = |i: usize, j: usize| match i.cmp(&j) {
                std::cmp::Ordering::Equal if how.unit => 1.0,
                std::cmp::Ordering::Less if how.lower => 0.0,
                std::cmp::Ordering::Greater if !how.lower => 0.0,
                _ => t[i * n + j],
            };
            let read: Vec<f64> = (0..n * n).map(|p| at(p / n, p % n)).collect();
            let read = if how.transposed { turned(&read, n, n) } else { read };
            let x = f64::triangular_solve(&t, n, how, false, &b, 3);
            near(&times(&read, &x, [n, n, 3]), &b, 1e-9);
            let x = f64::triangular_solve(&t, n, how, true, &b, 3);
            near(&times(&x, &read, [3, n, n]), &b, 1e-9);
        }
    }
}

#[test]
fn determinants_and_their_slopes() {
    assert_eq!(f64::det(&[], 0), 1.0);
    assert_eq!(f64::slogdet(&[], 0), (1.0, 0.0));
    assert_eq!(f64::det(&[1.0, 2.0, 3.0, 4.0], 2), -2.0);
    for n in [1, 2, 5, 9] {
        let a = numbers(n * n, 4);
        let (sign, log) = f64::slogdet(&a, n);
        near(&[sign * log.exp()], &[f64::det(&a, n)], 1e-12);
        let c = f64::cofactors(&a, n);
        for (k, c) in c.iter().enumerate() {
            let moved = |by: f64| {
                let mut a = a.clone();
                a[k] += by;
                f64::det(&a, n)
            };
            near(&[*c], &[(moved(1e-6) - moved(-1e-6)) / 2e-6], 1e-7);
        }
    }
    // matrices of rank 0, 1 and 2
    assert_eq!(f64::det(&[0.0; 9], 3), 0.0);
    assert_eq!(f64::slogdet(&[1.0; 9], 3), (0.0, f64::NEG_INFINITY));
    assert_eq!(f64::slogdet(&[f64::INFINITY], 1), (1.0, f64::INFINITY));
    near(&f64::cofactors(&[0.0; 9], 3), &[0.0; 9], 0.0);
    near(&f64::cofactors(&[1.0, 2.0, 2.0, 4.0], 2), &[4.0, -2.0, -2.0, 1.0], 1e-14);
    near(&f64::cofactors(&[5.0], 1), &[1.0], 0.0);
}

#[test]
fn inverses_of_what_has_none() {
    let a = [1.0, 2.0, 2.0, 4.0];
    assert!(f64::inv(&a, 2).iter().any(|x| !x.is_finite()));
    near(&f64::pinv(&a, 2, 2, 1e-12), &[0.04, 0.08, 0.08, 0.16], 1e-14);
    near(&f64::pinv(&[3.0, 4.0], 2, 1, 1e-12), &[0.12, 0.16], 1e-14);
    near(&f64::pinv(&[0.0; 6], 2, 3, 1e-12), &[0.0; 6], 0.0);
}

/// Checks NaN, infinite, huge and tiny elements: there is no panic, and missing results are NaN.
/// Large matrices have NaN or huge elements, and others only in a soak.
#[test]
fn numbers_without_an_answer() {
    let not_definite = f64::cholesky(&[1.0, 2.0, 2.0, 1.0], 2);
    assert!(not_definite[0].is_nan() && not_definite[1] == 0.0 && not_definite[3].is_nan());
    let runs_all = std::env::var_os("ATMESH_SOAK").is_some();
    for (bad, is_large) in [(f64::NAN, true), (f64::INFINITY, false), (1e308, true), (1e-320, false)] {
        let sizes = |sizes: &'static [usize]| &sizes[..sizes.len() - usize::from(!is_large && !runs_all)];
        for &n in sizes(&[1, 2, 20, 140]) {
            let mut a = numbers(n * n, 5);
            a[n * n / 2] = bad;
            let gone = |x: &[f64]| assert!(bad.is_finite() || x.iter().all(|x| x.is_nan()), "{bad}: {x:?}");
            gone(&f64::svdvals(&a, n, n));
            gone(&f64::svd(&a, n, n, true).0);
            gone(&f64::qr(&a, n, n, true).0);
            gone(&f64::eigvalsh(&a, n));
            gone(&f64::eigh(&a, n).1);
            gone(&f64::pinv(&a, n, n, 0.0));
            gone(&f64::cofactors(&a, n));
            assert!(!bad.is_nan() || f64::det(&a, n).is_nan());
            assert!(!bad.is_nan() || f64::cholesky(&a, n)[0].is_nan());
            f64::solve(&a, n, false, &a, n);
            f64::lu(&a, n, n);
            f64::slogdet(&a, n);
        }
        for &n in sizes(&[2, 20, 140]) {
            let all = vec![bad; n * n];
            f64::svd(&all, n, n, false);
            f64::eigh(&all, n);
            f64::qr(&all, n, n, false);
        }
    }
    for n in [2, 20, 140] {
        let zeros = vec![0.0; n * n];
        assert_eq!(f64::svdvals(&zeros, n, n), vec![0.0; n]);
        assert_eq!(f64::eigh(&zeros, n).0, vec![0.0; n]);
        let ones = vec![1.0; n * n];
        near(&f64::eigvalsh(&ones, n)[n - 1..], &[n as f64], 1e-12);
        near(&f64::svdvals(&ones, n, n)[..1], &[n as f64], 1e-12);
    }
}

#[test]
fn single_precision() {
    assert_eq!(f32::cholesky(&[4.0, 2.0, 2.0, 5.0], 2), [2.0, 0.0, 1.0, 2.0]);
    let a: Vec<f32> = numbers(400, 6).iter().map(|x| *x as f32).collect();
    let wide: Vec<f64> = a.iter().map(|x| f64::from(*x)).collect();
    let s: Vec<f64> = f32::svdvals(&a, 20, 20).iter().map(|x| f64::from(*x)).collect();
    near(&s, &f64::svdvals(&wide, 20, 20), 1e-5);
}

/// Checks that the result bits do not depend on the addresses of the operands.
#[test]
fn the_same_bits_again() {
    let a = numbers(100 * 100, 8);
    let first = (f64::eigh(&a, 100), f64::svd(&a, 100, 100, true), f64::solve(&a, 100, false, &a, 100));
    let mut held = Vec::new();
    for i in 0..20 {
        held.push(vec![0u8; 8 * i + 3]);
        let shifted: Vec<f64> = std::iter::repeat_n(0.0, i).chain(a.iter().copied()).collect();
        let a = &shifted[i..];
        assert!(first == (f64::eigh(a, 100), f64::svd(a, 100, 100, true), f64::solve(a, 100, false, a, 100)));
    }
}
