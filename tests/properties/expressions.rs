//! Expressions of weighted sums, products and row scalars, each part of which is used once.
//!
//! They are the bodies of stencils, polynomials and normalizations, whose operations are fused to
//! few instructions. They run and are differentiated at once and compiled.

use super::bits::bits;
use super::holds;
use atmesh::prelude::*;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

/// Builds an expression over `arrays` and `scalars` from bytes, which it consumes.
fn expression(
    code: &mut impl Iterator<Item = u8>,
    depth: usize,
    arrays: &[Array],
    scalars: &[Array],
) -> Array {
    let (kind, k) = (code.next().unwrap_or(0), code.next().unwrap_or(0) as usize);
    let leaf = || match kind % 3 {
        0 => scalars[k % scalars.len()].clone(),
        1 => arrays[k % arrays.len()].roll((k / 16) as i64 - 8, -1),
        _ => arrays[k % arrays.len()].clone(),
    };
    if depth == 0 {
        return leaf();
    }
    let factor = [0.5, -1.0, 1.7, 0.25, -0.3][k % 5];
    let first = expression(code, depth - 1, arrays, scalars);
    // most operands on the right are leaves, so that sums have many terms
    let mut other = || {
        let depth = if k % 4 == 0 { depth - 1 } else { 0 };
        expression(code, depth, arrays, scalars)
    };
    match kind / 3 % 16 {
        0..5 => first + other(),
        5..8 => first - other(),
        8 => first * factor + other(),
        9 => factor - first,
        10 | 11 => first * other(),
        12 => first * leaf(),
        13 => (first * 0.125).exp(),
        14 => first / 3.0,
        _ => first.maximum(other()),
    }
}

#[test]
fn expressions_have_one_result_and_one_gradient() {
    let shapes = select(vec![vec![24], vec![8, 8], vec![3, 130], vec![2, 600]]);
    let codes = vec(any::<u8>(), 256);
    holds(
        300,
        (shapes, codes, select(vec![F32, F32, F32, F64, BF16]), 2..10usize),
        |(shape, code, dtype, depth)| {
            let wrong = |what: &str, e: atmesh::Error| TestCaseError::fail(format!("{what}: {e}"));
            let n: usize = shape.iter().product();
            let of = |k: usize, shape: &[usize]| {
                let n: usize = shape.iter().product();
                Array::from((0..n).map(|i| ((i * 31 + k) as f32).sin()).collect::<Vec<_>>())
                    .astype(dtype)
                    .reshape(shape)
            };
            let inputs: Vec<Array> = (0..3).map(|k| of(k, &shape)).chain([of(7, &[]), of(9, &[])]).collect();
            let run = |x: &Vec<Array>| expression(&mut code.iter().copied(), depth, &x[..3], &x[3..]);
            let want = bits(&run(&inputs)).map_err(|e| wrong("at once", e))?;
            for engine in [Lockstep, Threads] {
                let got = jit(run).engine(engine).call(&inputs).and_then(|y| bits(&y));
                if got.map_err(|e| wrong("compiled", e))? != want {
                    return Err(TestCaseError::fail(format!("{engine}: other bits than at once")));
                }
            }
            let slope =
                |x: &Vec<Array>| grad(x, |x: Vec<Array>| run(&x).astype(F32).sum(..) * (1.0 / n as f32));
            let read = |y: Vec<Array>| -> Result<Vec<f64>> {
                let each = y.iter().map(|y| y.astype(F64).to_vec::<f64>()).collect::<Result<Vec<_>>>()?;
                Ok(each.concat())
            };
            let eager = read(slope(&inputs)).map_err(|e| wrong("the gradient at once", e))?;
            let compiled = jit(slope).call(&inputs).and_then(read).map_err(|e| wrong("the gradient", e))?;
            let tolerance = if dtype == BF16 { 3e-2 } else { 1e-4 };
            let most = eager.iter().fold(1e-3, |m: f64, x| m.max(x.abs()));
            let near = |(a, b): (&f64, &f64)| a == b || (a - b).abs() <= tolerance * most;
            if !eager.iter().zip(&compiled).all(near) {
                return Err(TestCaseError::fail(format!("the gradients are {eager:?} and {compiled:?}")));
            }
            Ok(())
        },
    );
}
