//! Tests that kernels are defined, and as accurate, as the table of scalar functions says.

use super::*;
use std::collections::BTreeMap;

/// Returns the distance in units of the last place of float32.
fn ulps32(got: f32, expected: f64) -> f64 {
    if got.is_nan() || expected.is_nan() {
        return if got.is_nan() == expected.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got as f64 == expected || got == expected as f32 {
        return 0.0;
    }
    if (expected as f32).is_infinite() && got.abs() == f32::MAX {
        return 1.0;
    }
    let exponent = (expected.abs().max(f32::MIN_POSITIVE as f64)).log2().floor() as i32;
    (got as f64 - expected).abs() / 2f64.powi(exponent - 23)
}
fn ulps64(got: f64, expected: f64) -> f64 {
    if got.is_nan() || expected.is_nan() {
        return if got.is_nan() == expected.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == expected {
        return 0.0;
    }
    let exponent = (expected.abs().max(f64::MIN_POSITIVE)).log2().floor() as i32;
    (got - expected).abs() / libm::scalbn(1.0, exponent - 52)
}

/// Tests that there is a kernel for exactly the functions and types that loop nests may use.
#[test]
fn every_function_is_defined_where_it_has_a_kernel() {
    for op in ScalarOp::ALL {
        for (from, to) in DType::all().flat_map(|from| DType::all().map(move |to| (from, to))) {
            // The caller chooses the result's type among those that the function can make.
            if op.info().result.for_operand(from.storage()).is_none_or(|result| result == to) {
                assert_eq!(
                    op.info().supports_dtypes(from, to),
                    select(*op, from, to).is_some(),
                    "{op:?} of {from}"
                );
            }
        }
    }
}

/// Returns the pairs of operands of a function: all of `x`, each with some other element.
fn operands<T: Copy>(op: ScalarOp, x: &[T]) -> [Vec<T>; 2] {
    let steps = if op.info().arity == 1 { 1 } else { 2 };
    let pair = |k: usize| (0..x.len()).map(move |i| (x[i], x[(i * 31 + k * 977) % x.len()]));
    let (a, b) = (0..steps).flat_map(pair).unzip();
    [a, b]
}

/// Tests that the errors of all functions on these operands are within the bounds of the table.
///
/// `call` runs the kernel of a function; `ulps` measures the distance of a result from the exact
/// value, and `bound` is the index of the bound.
fn check_bounds<T: Copy + Into<f64> + std::fmt::Debug>(
    x: &[T],
    bound: usize,
    call: impl Fn(ScalarOp, KernelVariant, &[T], &[T]) -> Vec<T>,
    ulps: fn(T, f64) -> f64,
) {
    let mut missed = BTreeMap::new();
    for op in ScalarOp::ALL {
        let max_ulps = op.info().max_ulps[bound];
        if op.info().exact_value(1.0, 1.0).is_none() {
            continue;
        }
        let [a, b] = operands(*op, x);
        for h in levels().filter(|h| !h.stream) {
            for ((y, a), b) in call(*op, h, &a, &b).into_iter().zip(&a).zip(&b) {
                let exact = op.info().exact_value((*a).into(), (*b).into()).expect("it is defined on floats");
                let error = ulps(y, exact);
                // (the exact value is itself rounded to float64)
                if error > max_ulps + 0.01 {
                    let worst = missed.entry(format!("{op:?} {}", h.level.name())).or_insert((0.0, *a, *b));
                    *worst = if error > worst.0 { (error, *a, *b) } else { *worst };
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn float32_functions_keep_their_bounds() {
    check_bounds(
        &samples(),
        0,
        |op, h, a, b| call(select_at(op, DType::F32, DType::F32, h).unwrap(), a, b, 0f32),
        ulps32,
    );
}

#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn float64_functions_keep_their_bounds() {
    let step = (1 << 49) + 12_345_678_901_235;
    let mut x: Vec<f64> = (0..=u64::MAX).step_by(step).map(f64::from_bits).collect();
    x.extend((0..4000).map(|i| (i as f64 - 2000.0) * 0.371));
    x.extend([0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, 709.78, 709.8, -745.1, -746.0]);
    check_bounds(
        &x,
        1,
        |op, h, a, b| call(select_at(op, DType::F64, DType::F64, h).unwrap(), a, b, 0f64),
        ulps64,
    );
}

/// Tests powers with finite results, and those of special values, with all exponents of the list.
#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn powers_keep_their_bounds_and_special_values() {
    let pow = |dtype, h| select_at(ScalarOp::Pow, dtype, dtype, h).unwrap();
    let [few, many] = [97, 9973].map(|step| {
        // exponents of up to 1.5 times that of the largest result, and bases near 1
        let power = |i: usize| (i % 3000) as f64 - 1500.0;
        let near = |i: usize| (i as f64 / 5000.0).powi(3) / 8.0;
        (0..10_000usize)
            .map(move |i| i * step % 10_000)
            .map(move |i| [1.0 + near(i) * 0.99, power(i * 7) / 3.0])
    });
    let wide = (0..20_000).map(|i| {
        let x = 2f64.powf((i % 290) as f64 - 149.0 + i as f64 * 0.37e-3);
        [x, (i as f64 * 0.731).fract() * 260.0 / x.log2() - 130.0 / x.log2()]
    });
    let special = [
        0.0,
        1.0,
        0.5,
        2.0,
        3.0,
        0.3,
        1e-45,
        1e20,
        16777215.0,
        16777218.0,
        8388607.5,
        1e-300,
        4503599627370495.5,
        9007199254740991.0,
        f64::INFINITY,
        f64::NAN,
    ];
    let special = special.into_iter().flat_map(|x| [x, -x]);
    let pairs: Vec<[f64; 2]> = special.clone().flat_map(|x| special.clone().map(move |y| [x, y])).collect();
    let pairs: Vec<[f64; 2]> = pairs.into_iter().chain(few).chain(many).chain(wide).collect();
    for h in levels().filter(|h| !h.stream) {
        let [a, b] = [0, 1].map(|k| pairs.iter().map(|p| p[k]).collect::<Vec<f64>>());
        for ((y, a), b) in call(pow(DType::F64, h), &a, &b, 0.0).into_iter().zip(&a).zip(&b) {
            let exact = a.powf(*b);
            assert!(ulps64(y, exact) <= 1.01 && (y != 0.0 || y.to_bits() == exact.to_bits()), "{a} {b} {y}");
        }
        let [a, b] = [a, b].map(|x| x.iter().map(|x| *x as f32).collect::<Vec<f32>>());
        for ((y, a), b) in call(pow(DType::F32, h), &a, &b, 0f32).into_iter().zip(&a).zip(&b) {
            let exact = (*a as f64).powf(*b as f64);
            let rounded = exact as f32;
            let sign = y.is_nan() || y.is_sign_negative() == rounded.is_sign_negative();
            assert!(ulps32(y, exact) <= 0.51 && sign, "{a} {b} {y} {exact}");
        }
    }
}
