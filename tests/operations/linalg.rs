//! Linear algebra: the same bits on every mesh and engine, shardings, errors, singular and empty
//! matrices, and derivatives.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{EngineKind, ErrorKind, PcastTo, Result, TriangularOptions};

const ENGINES: [EngineKind; 3] = [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference];

/// Returns elements of both signs.
fn numbers(dtype: DType, shape: &[usize]) -> Array {
    let n: usize = shape.iter().product();
    let one = |i: usize| {
        let h = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let h = (h ^ h >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (h >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    Array::from((0..n).map(one).collect::<Vec<_>>()).reshape(shape).astype(dtype)
}

fn bits(x: &Array) -> Vec<u64> {
    let x = x.astype(F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{e}"));
    // NaN payloads are unspecified.
    x.into_iter().map(|x| if x.is_nan() { u64::MAX } else { x.to_bits() }).collect()
}

fn near(x: &Array, y: &Array, by: f64) {
    let (x, y) = (x.astype(F64).to_vec::<f64>().unwrap(), y.astype(F64).to_vec::<f64>().unwrap());
    assert_eq!(x.len(), y.len());
    for (x, y) in x.iter().zip(&y) {
        assert!((x - y).abs() <= by * (1.0 + y.abs()), "{x}, and {y}");
    }
}

fn unit(dtype: DType, n: usize) -> Array {
    Array::eye(dtype.array_type([n, n]), 0)
}

/// Returns positive definite matrices.
fn definite(a: &Array) -> Array {
    let n = a.shape().unwrap()[2];
    a.matmul(a.swapaxes(-1, -2)) + unit(a.dtype().unwrap(), n)
}

/// Returns all functions of a batch of square matrices, and of a batch of positive definite ones.
fn all(a: &Array, spd: &Array) -> Vec<Array> {
    let mut list = vec![spd.cholesky(), spd.cholesky_upper(), a.solve(spd), a.inv(), a.det(), a.eigvalsh()];
    let how = TriangularOptions::default().lower();
    list.extend([(spd.triangular_solve(a, how)), a.svdvals(), a.pinv(None), a.matrix_rank(None)]);
    let (sign, log) = a.slogdet();
    let (lu, pivots, order) = a.lu();
    let ((q, r), (w, v), (u, s, vt)) = (a.qr(false), a.eigh(), a.svd(true));
    list.extend([sign, log, lu, pivots, order, q, r, w, v, u, s, vt]);
    list
}

#[test]
fn the_same_bits_wherever_matrices_are_placed() -> Result<()> {
    for (dtype, n) in [(F32, 3), (F64, 20), (BF16, 4)] {
        let a = numbers(dtype, &[4, n, n]);
        let spd = definite(&a).ready()?;
        let f = jit(|a: &Array, spd: &Array| all(a, spd));
        let wanted: Vec<_> = f.call((&a, &spd))?.iter().map(bits).collect();
        let at_once: Vec<_> = all(&a, &spd).iter().map(bits).collect();
        assert_eq!(wanted, at_once, "{dtype} at once");
        // One by one, and as a batch.
        for i in 0..4 {
            let one = |x: &Array| x.slice(ix![i as i64..i as i64 + 1]);
            for (k, y) in all(&one(&a), &one(&spd)).iter().enumerate() {
                let y = bits(y);
                assert_eq!(wanted[k][i * y.len()..(i + 1) * y.len()], y, "{dtype}: result {k} of matrix {i}");
            }
        }
        let pairs = |x: &Array| x.reshape([2, 2, n, n]);
        let examples = vmap((&pairs(&a), &pairs(&spd)), |(a, spd)| all(&a, &spd));
        for (k, y) in examples.iter().enumerate() {
            assert_eq!(wanted[k], bits(y), "{dtype}: result {k} of examples");
        }
        for engine in ENGINES {
            for mesh in [Mesh::new([("X", 4)])?, Mesh::auto([("X", 4)])?] {
                let split = (a.put(&mesh, p!["X"]), spd.put(&mesh, p!["X"]));
                let made =
                    jit(|a: &Array, spd: &Array| all(a, spd)).engine(engine).call((&split.0, &split.1))?;
                for (k, y) in made.iter().enumerate() {
                    assert_eq!(wanted[k], bits(y), "{dtype}: result {k} on {engine}");
                }
            }
        }
    }
    Ok(())
}

/// In auto mode, sharded matrices are gathered. A batch stays in place.
#[test]
fn what_is_communicated() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let a = numbers(F32, &[8, 12, 12]);
    for spec in [p!["X"], p![_, "X"], p![_, _, "X"]] {
        let split = a.put(&mesh, spec);
        let f = jit(|a: &Array| a.inv());
        assert_eq!(bits(&f.call(&split)?), bits(&a.inv()), "{spec}");
        let moved = f.lower(&split)?.collectives().total_bytes();
        assert_eq!(moved == 0, spec == p!["X"], "{spec}: {moved}");
    }
    Ok(())
}

#[test]
fn what_is_rejected_says_what_to_write() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let a = numbers(F32, &[2, 4, 4]);
    let split = a.put(&mesh, p![_, _, "X"]);
    for y in [
        split.cholesky(),
        split.inv(),
        split.det(),
        split.eigh().1,
        split.svd(true).0,
        split.lu().1,
        split.qr(true).1,
    ] {
        let e = y.ty().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Sharding);
        assert!(e.unquoted().contains(".reshard(p![_, _, _])"), "{e}");
    }
    assert_eq!(bits(&split.reshard(p![_, _, _]).inv()), bits(&a.inv()));
    // Batches with other shardings.
    let (x, y) = (a.put(&mesh, p!["X"]), a.put(&mesh, p![_, _, _]));
    let e = x.solve(&y).ty().unwrap_err();
    assert!(e.kind() == ErrorKind::Sharding && e.unquoted().contains("solve"), "{e}");
    let e = y.reshard(p![_, _, _; R: "X"]).inv().ty().unwrap_err();
    assert!(e.unquoted().contains("reduced over X") && e.unquoted().contains(".reshard("), "{e}");
    // Per device: a value that is reduced over a manual axis is cast to varying.
    let per_device = |varying: bool| {
        let body = move |a: &Array| {
            let a = a.pcast("X", PcastTo::Reduced);
            if varying { a.pvary("X").inv() } else { a.inv() }
        };
        shard_map(&mesh, p![], p!["X"], body).call(&a)
    };
    let e = per_device(false).unwrap_err();
    assert!(e.unquoted().contains("make it varying: `.pvary(\"X\")`, of operand 0"), "{e}");
    assert_eq!(bits(&per_device(true)?.slice(ix![..2])), bits(&a.inv()));
    // Shapes and element types.
    let wide = numbers(F32, &[2, 3, 4]);
    let shape =
        [wide.inv(), wide.cholesky(), wide.det(), wide.eigvalsh(), wide.matrix_power(2), wide.solve(&a)];
    let rank = [Array::from([1.0]).inv(), Array::from(1.0).svdvals(), Array::from([1.0]).matrix_power(2)];
    let unlike = [
        a.solve(&wide),
        a.solve(Array::ones([4])),
        numbers(F32, &[3, 4, 4]).solve(&a),
        a.slice(ix![0]).solve(&a),
    ];
    for y in shape.iter().chain(&rank).chain(&unlike) {
        assert_eq!(y.ty().unwrap_err().kind(), ErrorKind::Shape, "{:?}", y.ty());
    }
    assert!(wide.inv().ty().unwrap_err().unquoted().contains(".pinv(None)"));
    assert_eq!(wide.pinv(None).shape()?, [2, 4, 3]);
    for y in [Array::from([[1, 2], [3, 4]]).inv(), a.solve(a.astype(F64)), Array::from([[true]]).svdvals()] {
        assert_eq!(y.ty().unwrap_err().kind(), ErrorKind::Dtype);
    }
    Ok(())
}

/// Matrices without rows or columns, and empty batches.
#[test]
fn empty_matrices() -> Result<()> {
    for engine in ENGINES {
        let run = |shape: &[usize], f: fn(&Array) -> Array| {
            let y = jit(f).engine(engine).call(Array::zeros(F64.array_type(shape)))?;
            Ok::<_, atmesh::Error>((y.shape()?.to_vec(), y.astype(F64).to_vec::<f64>()?))
        };
        assert_eq!(run(&[0, 0], Array::det)?, (vec![], vec![1.0]));
        assert_eq!(run(&[2, 0, 0], |x| x.slogdet().1)?, (vec![2], vec![0.0; 2]));
        assert_eq!(run(&[0, 0], Array::cholesky)?.0, [0, 0]);
        assert_eq!(run(&[0, 3, 3], Array::inv)?.0, [0, 3, 3]);
        assert_eq!(run(&[2, 0], |x| x.qr(true).0)?, (vec![2, 2], vec![1.0, 0.0, 0.0, 1.0]));
        assert_eq!(run(&[0, 2], |x| x.svd(true).2)?, (vec![2, 2], vec![1.0, 0.0, 0.0, 1.0]));
        assert_eq!(run(&[0, 2], |x| x.lu().2)?.0, [0]);
        assert_eq!(run(&[3, 0], |x| x.pinv(None))?.0, [0, 3]);
        assert_eq!(run(&[3, 0], |x| x.matrix_rank(None))?, (vec![], vec![0.0]));
        assert_eq!(run(&[0, 0], |x| x.eigh().0)?.0, [0]);
        assert_eq!(run(&[0, 0], |x| x.solve(Array::zeros(F64.array_type([0, 3]))))?.0, [0, 3]);
        assert_eq!(run(&[2, 2], |x| x.solve(Array::zeros(F64.array_type([2, 0]))))?.0, [2, 0]);
    }
    Ok(())
}

#[test]
fn matrices_without_an_answer() -> Result<()> {
    let singular = Array::from([[1.0, 2.0], [2.0, 4.0]]);
    assert_eq!(singular.det().item::<f64>()?, 0.0);
    assert_eq!(singular.slogdet().1.item::<f64>()?, f64::NEG_INFINITY);
    assert!(!singular.inv().is_finite().all(..).item::<bool>()?);
    assert_eq!(singular.matrix_rank(None).item::<i32>()?, 1);
    let l = Array::from([[1.0, 2.0], [2.0, 1.0]]).cholesky().to_vec::<f64>()?;
    assert!(l[0].is_nan() && l[1] == 0.0 && l[3].is_nan());
    let nan = Array::from([[f64::NAN, 1.0], [1.0, f64::INFINITY]]);
    let nan = nan.reshape([1, 2, 2]);
    for y in all(&nan, &nan) {
        let _ = y.ready()?;
    }
    for y in [nan.svdvals(), nan.eigh().1, nan.qr(true).0, nan.pinv(None), nan.det()] {
        assert!(y.is_nan().all(..).item::<bool>()?);
    }
    Ok(())
}

#[test]
fn solutions_and_factors() -> Result<()> {
    let (a, b) = (numbers(F64, &[30, 30]), numbers(F64, &[30]));
    near(&a.dot(a.solve(&b)), &b, 1e-10);
    near(&a.dot(a.inv()), &unit(F64, 30), 1e-10);
    let tall = numbers(F64, &[30, 4]);
    let x = tall.lstsq(&b, None);
    // The residual is orthogonal to all columns.
    near(&tall.t().dot(&b - tall.dot(&x)), &Array::zeros(F64.array_type([4])), 1e-12);
    let half = numbers(F16, &[3, 3]) + unit(F16, 3) * 3.0;
    assert_eq!(type_of(half.inv()), "float16[3,3]");
    near(&half.inv(), &half.astype(F32).inv(), 1e-3);
    // Views are read without a copy.
    near(&a.t().inv(), &a.inv().t(), 1e-9);
    Ok(())
}

#[test]
fn derivatives_where_they_are_delicate() -> Result<()> {
    // Of rank 2, then of rank 1.
    let a = Array::from([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]);
    near(
        &grad(&a, |a| a.det()),
        &Array::from([[-3.0, 6.0, -3.0], [6.0, -12.0, 6.0], [-3.0, 6.0, -3.0]]),
        1e-12,
    );
    near(
        &grad(Array::ones(F64.array_type([3, 3])), |a| a.det()),
        &Array::zeros(F64.array_type([3, 3])),
        1e-12,
    );
    // The second derivative is undefined there, and is NaN.
    let second = |a: &Array| grad(a, |a| (grad(a, |a| a.det()) * numbers(F64, &[3, 3])).sum(..));
    assert!(second(&a).is_nan().any(..).item::<bool>()?);
    let b = &a + unit(F64, 3);
    let (h, t) = (1e-5, numbers(F64, &[3, 3]));
    let slope = |x: &Array| (grad(x, |a| a.det()) * numbers(F64, &[3, 3])).sum(..);
    let wanted = (slope(&(&b + &t * h)) - slope(&(&b - &t * h))) / (2.0 * h);
    near(&(second(&b) * &t).sum(..), &wanted, 1e-6);
    // The gradient of equal singular values exists, that of their vectors does not.
    near(&grad(unit(F64, 3), |a| a.svdvals().sum(..)), &unit(F64, 3), 1e-12);
    near(&grad(unit(F64, 3), |a| a.pinv(None).sum(..)), &-Array::ones(F64.array_type([3, 3])), 1e-12);
    // Wide matrices.
    let wide = numbers(F64, &[2, 3]);
    let f = |a: &Array| {
        (a.qr(true).1 * numbers(F64, &[2, 3])).sum(..)
            + a.lu().0.sum(..)
            + a.svd(false).2.square().cos().sum(..)
    };
    let t = numbers(F64, &[3, 2]).t();
    let wanted = (f(&(&wide + &t * h)) - f(&(&wide - &t * h))) / (2.0 * h);
    near(&(grad(&wide, |a| f(&a)) * &t).sum(..), &wanted, 1e-6);
    for rejected in [grad(wide.t(), |a| a.qr(true).0.sum(..)), grad(&wide, |a| a.svd(true).0.sum(..))] {
        let e = rejected.ty().unwrap_err();
        assert!(e.kind() == ErrorKind::Unsupported && e.unquoted().contains("(false)"), "{e}");
    }
    Ok(())
}

/// Linear algebra inside device code, loops and constraints, with derivatives.
#[test]
fn in_other_programs() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let a = numbers(F64, &[4, 3, 3]);
    let spd = definite(&a).ready()?;
    let f = |a: &Array, spd: &Array| {
        let (w, v) = spd.eigh();
        let (u, s, _) = a.svd(false);
        let sum = (spd.cholesky().sum(..) + w.sin().sum(..) + v.square().sin().sum(..))
            + (u.square().sin().sum(..) + s.sin().sum(..) + a.solve(spd).sin().sum(..))
            + (a.lu().0.sin().sum(..)
                + a.qr(false).1.square().sum(..)
                + a.det().sum(..)
                + a.slogdet().1.sum(..));
        sum + a.pinv(None).sum(..) + a.inv().sin().sum(..)
    };
    let wanted = grad((&a, &spd), |(a, spd)| f(&a, &spd));
    let blocks = shard_map(&mesh, (p!["X"], p!["X"]), (p!["X"], p!["X"]), |a: &Array, spd: &Array| {
        grad((a, spd), |(a, spd)| f(&a, &spd))
    });
    let got = blocks.call((&a, &spd))?;
    near(&got.0, &wanted.0, 1e-9);
    near(&got.1, &wanted.1, 1e-9);
    // A sum over devices inside, differentiated from outside.
    let total = shard_map(&mesh, (p!["X"], p!["X"]), p![], move |a: &Array, spd: &Array| f(a, spd).psum("X"));
    let got = grad((&a, &spd), |(a, spd)| total.call((&a, &spd)).unwrap_or_else(|e| panic!("{e}")));
    near(&got.0, &wanted.0, 1e-9);
    // Newton's method converges to the inverse.
    let step = |x: Array| &x * 2.0 - x.matmul(&a).matmul(&x);
    near(&fori_loop(0..3, a.inv(), |_, x| step(x)), &a.inv(), 1e-9);
    near(&fori_loop(0..2, a.clone(), |_, x| x.inv()), &a, 1e-9);
    // The result must be sharded.
    let auto = Mesh::auto([("X", 2)])?;
    let b = numbers(F64, &[3, 4, 4]).put(&auto, p![]);
    let split = jit(|b: &Array| b.inv().constrain(p![_, "X"])).call(&b)?;
    assert_eq!(bits(&split), bits(&b.inv()));
    Ok(())
}
