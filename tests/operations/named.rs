//! Functions that users of numpy and JAX look for: results are compared with plain loops, for
//! unsharded and sharded operands, on both engines.

use crate::error_checks::Unquoted as _;
use atmesh::array::GridIndexing;
use atmesh::prelude::*;
use atmesh::{ErrorKind, map, meshgrid};

fn mesh() -> Mesh {
    Mesh::new([("X", 2), ("Y", 2)]).unwrap()
}

/// Returns integers of both signs, whose sums are exact.
fn filled(shape: &[usize]) -> Array {
    let n: usize = shape.iter().product();
    Array::from((0..n).map(|i| ((i * 7) % 11) as f32 - 4.0).collect::<Vec<_>>()).reshape(shape)
}

/// Applies `f` to operands with these shapes and shardings. Asserts that the result equals that for
/// unsharded operands, eagerly and compiled, on both engines; returns its type and its elements.
fn apply(operands: &[(&[usize], Spec)], f: impl Fn(&[Array]) -> Array) -> (String, Vec<f64>) {
    let plain: Vec<Array> = operands.iter().map(|(shape, _)| filled(shape)).collect();
    let sharded: Vec<Array> =
        plain.iter().zip(operands).map(|(x, (_, spec))| x.put(&mesh(), *spec)).collect();
    let numbers = |x: &Array| x.astype(F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{e}"));
    let want = numbers(&f(&plain));
    let at_once = f(&sharded);
    // Sums are rounded in the order of their blocks.
    let near = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-6 * b.abs();
    let same = |got: &[f64]| {
        assert!(
            got.len() == want.len() && got.iter().zip(&want).all(|(a, b)| near(*a, *b)),
            "{got:?} {want:?}"
        );
    };
    same(&numbers(&at_once));
    for engine in [Lockstep, Threads, EngineKind::Reference] {
        let compiled = jit(|xs: &Vec<Array>| f(xs)).engine(engine).call(&sharded).unwrap();
        assert_eq!(type_of(&compiled), type_of(&at_once));
        same(&numbers(&compiled));
    }
    (type_of(&at_once).to_string(), want)
}

/// Returns the kind and the text of an error.
fn rejected(x: &Array) -> (ErrorKind, String) {
    let e = x.ty().unwrap_err();
    (e.kind(), e.unquoted())
}

#[test]
fn dimensions_move_with_their_shardings() {
    let x: &[(&[usize], Spec)] = &[(&[2, 3, 4], p!["X", _, "Y"])];
    let (ty, n) = apply(x, |x| x[0].swapaxes(0, 2));
    assert_eq!((ty.as_str(), n[..2].to_vec()), ("float32[4@Y,3,2@X]", vec![-4.0, 3.0]));
    assert_eq!(apply(x, |x| x[0].moveaxis(0, -1)).0, "float32[3,4@Y,2@X]");
    assert_eq!(apply(x, |x| x[0].moveaxis([-1, 0], [0, 1])).0, "float32[4@Y,2@X,3]");
    let y = filled(&[2, 3]);
    assert_eq!(rejected(&y.swapaxes(0, 2)).0, ErrorKind::Shape);
    assert!(rejected(&y.moveaxis([0, 1], 0)).1.contains("moves 2 dimensions to 1 positions"));
    assert!(rejected(&y.moveaxis([0, 0], [0, 1])).1.contains("named twice"));
}

#[test]
fn elements_are_repeated_in_place() {
    let (ty, n) = apply(&[(&[4, 2], p!["X"])], |x| x[0].repeat(2, 0));
    assert_eq!((ty.as_str(), n.len()), ("float32[8@X,2]", 16));
    assert_eq!(n[..6], [-4.0, 3.0, -4.0, 3.0, -1.0, 6.0]);
    assert_eq!(apply(&[(&[2, 4], p![_, "Y"])], |x| x[0].repeat(3, -1)).0, "float32[2,12@Y]");
    assert_eq!(filled(&[3]).repeat(0, 0).shape().unwrap(), [0]);
    assert_eq!(rejected(&filled(&[3]).repeat(2, 1)).0, ErrorKind::Shape);
    assert_eq!(rejected(&filled(&[3]).repeat(usize::MAX, 0)).0, ErrorKind::Shape);
}

#[test]
fn neighbours_differ() {
    let (ty, n) = apply(&[(&[4, 3], p!["X"])], |x| x[0].diff(1, 1));
    assert_eq!((ty.as_str(), n[..2].to_vec()), ("float32[4@X,2]", vec![7.0, -4.0]));
    assert_eq!(filled(&[3]).diff(5, 0).shape().unwrap(), [0]);
    assert_eq!(filled(&[3]).diff(0, 0).to_vec::<f32>().unwrap(), [-4.0, 3.0, -1.0]);
    assert_eq!(Array::from([true, false, false]).diff(1, 0).to_vec::<bool>().unwrap(), [true, false]);
    assert_eq!(rejected(&filled(&[4]).put(&mesh(), p!["X"]).diff(1, 0)).0, ErrorKind::Sharding);
}

#[test]
fn grids_and_indices_are_coordinates() {
    let (x, y) = (Array::arange(0..4).put(&mesh(), p!["X"]), Array::arange(0..2).put(&mesh(), p!["Y"]));
    let both = meshgrid([&x, &y], GridIndexing::Xy);
    assert_eq!(
        both.iter().map(|a| type_of(a).to_string()).collect::<Vec<_>>(),
        ["int32[2,4@X]", "int32[2@Y,4]"]
    );
    assert_eq!(both[1].to_vec::<i32>().unwrap(), [0, 0, 0, 0, 1, 1, 1, 1]);
    let both = meshgrid([&x, &y], GridIndexing::Ij);
    assert_eq!(both[0].to_vec::<i32>().unwrap(), [0, 0, 1, 1, 2, 2, 3, 3]);
    assert!(meshgrid::<Array>([], GridIndexing::Ij).is_empty());
    assert_eq!(meshgrid([&x], GridIndexing::Xy)[0].shape().unwrap(), [4]);
    assert!(rejected(&meshgrid([&x, &filled(&[2, 2])], GridIndexing::Xy)[1]).1.contains("made of vectors"));
    assert_eq!(Array::indices([2, 3]).to_vec::<i32>().unwrap(), [0, 0, 0, 1, 1, 1, 0, 1, 2, 0, 1, 2]);
    assert_eq!(Array::indices([0usize; 0]).shape().unwrap(), [0]);
    assert!(Array::indices([usize::MAX, 2]).ty().is_err());
}

#[test]
fn diagonals_are_taken_and_made() {
    let x: &[(&[usize], Spec)] = &[(&[4, 4], p!["X", "Y"])];
    let (ty, n) = apply(x, |x| x[0].diagonal(0));
    let plain = filled(&[4, 4]).to_vec::<f32>().unwrap();
    let want: Vec<f64> = (0..4).map(|i| f64::from(plain[i * 5])).collect();
    assert_eq!((ty.as_str(), &n), ("float32[4@Y]", &want));
    let (ty, n) = apply(x, |x| x[0].trace(1));
    assert_eq!((ty.as_str(), n[0]), ("float32[]", f64::from(plain[1] + plain[6] + plain[11])));
    assert_eq!(apply(&[(&[2, 3, 5], p!["X"])], |x| x[0].diagonal(2)).0, "float32[2@X,3]");
    assert_eq!(filled(&[2, 5]).diagonal(-1).to_vec::<f32>().unwrap(), [-2.0]);
    assert_eq!(filled(&[2, 5]).diagonal(9).shape().unwrap(), [0]);
    assert_eq!(filled(&[2, 5]).diagonal(i64::MIN).shape().unwrap(), [0]);
    for k in [-2, 0, 1] {
        // Only a divisible size is sharded.
        let (ty, n) = apply(&[(&[4], if k == 1 { p![] } else { p!["X"] })], |x| x[0].diag(k));
        let size = 4 + k.unsigned_abs() as usize;
        if k == 0 {
            assert_eq!(ty, "float32[4,4@X]");
        }
        assert_eq!(
            Array::from(n).reshape([size, size]).diag(k).to_vec::<f64>().unwrap(),
            [-4.0, 3.0, -1.0, 6.0]
        );
    }
    let summed = jit(|x: &Array| grad(x, |x| x.diagonal(1).sum(..))).call(filled(&[2, 3])).unwrap();
    assert_eq!(summed.to_vec::<f32>().unwrap(), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(
        Array::tri([3, 3], -1).to_vec::<f32>().unwrap(),
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    );
    assert_eq!(
        Array::tri(Bool.array_type([2, 2]).on(&mesh(), p!["X"]), 0).count_nonzero(..).item::<i32>().unwrap(),
        3
    );
    for bad in
        [filled(&[4]).trace(0), filled(&[2, 2, 2]).diag(0), Array::tri([3], 0), filled(&[2]).diag(i64::MAX)]
    {
        assert_eq!(rejected(&bad).0, ErrorKind::Shape);
    }
}

#[test]
fn products_have_other_names() {
    let a: &[(&[usize], Spec)] = &[(&[4, 2, 3], p!["X"]), (&[2, 3, 4], p![_, _, "Y"])];
    let (ty, n) = apply(a, |x| x[0].tensordot(&x[1], 2));
    assert_eq!(ty, "float32[4@X,4@Y]");
    assert_eq!(n, apply(a, |x| einsum("ijk,jkl->il", [&x[0], &x[1]])).1);
    assert_eq!(apply(a, |x| x[0].tensordot(x[1].slice(ix![0, 0]), 0)).0, "float32[4@X,2,3,4@Y]");
    let b: &[(&[usize], Spec)] = &[(&[4, 2], p!["X"]), (&[2, 2], p!["Y"])];
    let (ty, n) = apply(b, |x| x[0].inner(&x[1]));
    assert_eq!((ty.as_str(), n), ("float32[4@X,2@Y]", apply(b, |x| x[0].dot(x[1].t())).1));
    let c: &[(&[usize], Spec)] = &[(&[4, 2], p!["X", "Y"]), (&[4, 2], p!["X", "Y"])];
    let (ty, n) = apply(c, |x| {
        if x[0].sharding().is_ok_and(|s| s.is_some()) { x[0].vdot_to(&x[1], p![]) } else { x[0].vdot(&x[1]) }
    });
    assert_eq!(
        (ty.as_str(), n[0]),
        ("float32[]", filled(&[8]).square().sum(..).item::<f32>().unwrap().into())
    );
    let x = filled(&[4]).put(&mesh(), p!["X"]);
    let choice = rejected(&x.vdot(&x)).1;
    assert!(choice.contains("x.vdot_to(&w, p![])"), "{choice}");
    assert_eq!(type_of(x.vdot_to(&x, p![; U: "X"])), "float32[]{U:X}");
    let d: &[(&[usize], Spec)] = &[(&[4], p!["X"]), (&[2], p!["Y"])];
    let (ty, n) = apply(d, |x| x[0].outer(&x[1]));
    assert_eq!((ty.as_str(), n[..4].to_vec()), ("float32[4@X,2@Y]", vec![16.0, -12.0, -12.0, 9.0]));
    assert_eq!(rejected(&x.outer(&x)).0, ErrorKind::Sharding);
    let e: &[(&[usize], Spec)] = &[(&[4, 2], p!["X"]), (&[3], p![])];
    let (ty, n) = apply(e, |x| x[0].kron(&x[1]));
    assert_eq!((ty.as_str(), n[..6].to_vec()), ("float32[4@X,6]", vec![16.0, -12.0, 4.0, -12.0, 9.0, -3.0]));
    for bad in [
        x.tensordot(&x, 2),
        filled(&[2]).inner(filled(&[3])),
        x.inner(Array::from(2.0f32)),
        x.vdot(filled(&[2, 2])),
    ] {
        assert_eq!(rejected(&bad).0, ErrorKind::Shape);
    }
}

#[test]
fn what_is_no_number_is_passed_over() {
    let x: &[(&[usize], Spec)] = &[(&[4, 4], p!["X", "Y"])];
    // Elements equal to −4 or 3, and those of the first column, become NaN.
    let holes = |x: &Array| {
        let first = Array::iota(I32.array_type([4, 4]), 1).eq(0);
        let bad = x.eq(-4.0)
            | x.eq(3.0)
            | if x.sharding().unwrap().is_some() { first.put(&mesh(), p!["X", "Y"]) } else { first };
        bad.select(f64::NAN, x)
    };
    let plain: Vec<f64> = filled(&[4, 4]).astype(F64).to_vec().unwrap();
    let column = |j: usize| -> Vec<f64> {
        (0..4).map(|i| plain[i * 4 + j]).filter(|v| j > 0 && *v != -4.0 && *v != 3.0).collect()
    };
    let (ty, n) = apply(x, |x| holes(&x[0]).nansum(0));
    assert_eq!((ty.as_str(), n), ("float32[4@Y]", (0..4).map(|j| column(j).iter().sum::<f64>()).collect()));
    let means = apply(x, |x| holes(&x[0]).nanmean(0)).1;
    for (j, mean) in means.iter().enumerate() {
        let c = column(j);
        assert!(j == 0 && mean.is_nan() || (mean - c.iter().sum::<f64>() / c.len() as f64).abs() < 1e-6);
    }
    let most = apply(x, |x| holes(&x[0]).nanmax(0)).1;
    assert!(
        most[0].is_nan() && (1..4).all(|j| most[j] == column(j).iter().copied().fold(f64::MIN, f64::max))
    );
    let least = apply(x, |x| holes(&x[0]).nanmin(Dims::keep(0)));
    assert!(
        least.0 == "float32[1,4@Y]"
            && (1..4).all(|j| least.1[j] == column(j).iter().copied().fold(f64::MAX, f64::min))
    );
    let products = apply(x, |x| holes(&x[0]).nanprod(0)).1;
    assert!((0..4).all(|j| products[j] == column(j).iter().product::<f64>()));
    let spread = apply(x, |x| holes(&x[0]).nanvar(0)).1;
    let var = |c: &[f64]| {
        let mean = c.iter().sum::<f64>() / c.len() as f64;
        c.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / c.len() as f64
    };
    assert!(spread[0].is_nan() && (1..4).all(|j| (spread[j] - var(&column(j))).abs() < 1e-4));
    let of_ints = Array::from([1, 2, 6]);
    assert_eq!(of_ints.nanmax(..).item::<i32>().unwrap(), 6);
    assert_eq!(of_ints.nansum(..).item::<i32>().unwrap(), 9);
    assert_eq!(of_ints.nanmean(..).item::<f32>().unwrap(), 3.0);
    assert_eq!(of_ints.nanstd(..).item::<f32>().unwrap(), of_ints.std(..).item::<f32>().unwrap());
    assert_eq!(of_ints.is_inf().to_vec::<bool>().unwrap(), [false; 3]);
    let dx = jit(|x: &Array| grad(x, |x| x.nanmean(..))).call(Array::from([1.0f32, f32::NAN])).unwrap();
    assert_eq!(dx.to_vec::<f32>().unwrap(), [1.0, 0.0]);
    assert_eq!(rejected(&filled(&[0]).nanmax(..)).0, ErrorKind::Shape);
    assert_eq!(rejected(&filled(&[2]).nansum(1)).0, ErrorKind::Shape);
    // An infinite mean does not count as a missing value.
    assert!(Array::from([f32::INFINITY, 1.0]).nanvar(..).item::<f32>().unwrap().is_nan());
}

#[test]
fn statistics_are_those_of_plain_loops() {
    let x: &[(&[usize], Spec)] = &[(&[4, 4], p!["X", "Y"])];
    let plain: Vec<f64> = filled(&[4, 4]).astype(F64).to_vec().unwrap();
    let (ty, n) = apply(x, |x| x[0].count_nonzero(1));
    let want: Vec<f64> = plain.chunks(4).map(|r| r.iter().filter(|v| **v != 0.0).count() as f64).collect();
    assert_eq!((ty.as_str(), n), ("int32[4@X]", want));
    let (ty, n) = apply(x, |x| x[0].norm(..));
    assert!(ty == "float32[]" && (n[0] - plain.iter().map(|v| v * v).sum::<f64>().sqrt()).abs() < 1e-5);
    assert_eq!(Array::from([3, 4]).norm(0).item::<f32>().unwrap(), 5.0);
    let weighted: &[(&[usize], Spec)] = &[(&[4, 2], p!["X", "Y"]), (&[2], p!["Y"])];
    let (ty, n) = apply(weighted, |x| x[0].average(x[1].abs(), 1));
    assert_eq!(ty, "float32[4@X]");
    let w = [4.0, 3.0];
    let rows: Vec<f64> = filled(&[4, 2]).astype(F64).to_vec().unwrap();
    assert!(n.iter().zip(rows.chunks(2)).all(|(a, r)| (a - (r[0] * w[0] + r[1] * w[1]) / 7.0).abs() < 1e-6));
    let whole: &[(&[usize], Spec)] = &[(&[4, 2], p!["X"]), (&[4, 2], p!["X"])];
    assert_eq!(apply(whole, |x| x[0].average(&x[1], Dims::keep(0))).0, "float32[1,2]");
    let (ty, n) = apply(&[(&[2, 4], p![])], |x| x[0].cov());
    let mean = |r: &[f64]| r.iter().sum::<f64>() / 4.0;
    let off: Vec<Vec<f64>> = plain[..8].chunks(4).map(|r| r.iter().map(|v| v - mean(r)).collect()).collect();
    let both: f64 = off[0].iter().zip(&off[1]).map(|(a, b)| a * b).sum::<f64>() / 3.0;
    assert!(ty == "float32[2,2]" && (n[1] - both).abs() < 1e-5);
    let rows = filled(&[2, 4]).put(&mesh(), p![_, "X"]);
    let choice = rejected(&rows.cov()).1;
    assert!(choice.contains("x.cov_to(p!["), "{choice}");
    assert!(rows.cov_to(p!["X"]).allclose(&filled(&[2, 4]).cov()).unwrap());
    assert_eq!(rejected(&filled(&[2, 4]).put(&mesh(), p!["X"]).cov()).0, ErrorKind::Sharding);
    assert_eq!(filled(&[4]).cov().shape().unwrap(), [0usize; 0]);
    let (ty, n) = apply(&[(&[4, 4], p!["X", "Y"]), (&[3], p![])], |x| x[0].isin(&x[1]));
    let want: Vec<f64> = plain.iter().map(|v| f64::from(u8::from([-4.0, 3.0, -1.0].contains(v)))).collect();
    assert_eq!((ty.as_str(), n), ("bool[4@X,4@Y]", want));
    assert_eq!(filled(&[2]).isin(Array::from(3.0f32)).to_vec::<bool>().unwrap(), [false, true]);
    assert_eq!(filled(&[2]).isin(filled(&[0])).to_vec::<bool>().unwrap(), [false; 2]);
    for bad in [
        filled(&[4, 2]).average(filled(&[3]), 1),
        filled(&[4, 2]).average(filled(&[2]), ..),
        filled(&[2, 2, 2]).cov(),
    ] {
        assert_eq!(rejected(&bad).0, ErrorKind::Shape);
    }
    assert_eq!(rejected(&filled(&[2]).isin(Array::from([1, 2]))).0, ErrorKind::Dtype);
}

#[test]
fn a_map_takes_slice_after_slice() {
    let (ty, n) = apply(&[(&[3, 4], p![_, "X"])], |x| map(&x[0], |row| row.square() + 1.0));
    let want: Vec<f64> =
        filled(&[3, 4]).astype(F64).to_vec::<f64>().unwrap().iter().map(|v| v * v + 1.0).collect();
    assert_eq!((ty.as_str(), n), ("float32[3,4@X]", want));
    let (x, y) = (filled(&[3]), filled(&[3, 2]));
    let (sum, twice) = map((&x, &y), |(x, y)| (y.sum(..) + &x, x * 2.0));
    assert_eq!((sum.shape().unwrap().to_vec(), twice.shape().unwrap().to_vec()), (vec![3], vec![3]));
    assert_eq!(rejected(&map(Array::from(1.0f32), |x| x)).0, ErrorKind::Shape);
    assert_eq!(rejected(&map(filled(&[4]).put(&mesh(), p!["X"]), |x| x)).0, ErrorKind::Sharding);
}

#[test]
fn values_between_points() {
    let points =
        || (Array::from([-3.0f32, -1.0, -1.0, 2.0, 6.0]), Array::from([1.0f32, 5.0, -5.0, 4.0, 0.0]));
    for spec in [p![], p!["X"], p!["X", "Y"]] {
        let (ty, y) = apply(&[(&[4, 6], spec)], |x| {
            let (xs, ys) = points();
            x[0].interp(&xs, &ys)
        });
        let (xs, ys) = ([-3.0, -1.0, -1.0, 2.0, 6.0], [1.0, 5.0, -5.0, 4.0, 0.0]);
        let want = |x: f64| match x {
            x if x < xs[0] => ys[0],
            x if x > xs[4] => ys[4],
            x => {
                let k = xs.iter().rposition(|a| *a <= x).unwrap().min(3);
                ys[k] + (x - xs[k]) / (xs[k + 1] - xs[k]) * (ys[k + 1] - ys[k])
            }
        };
        let x = filled(&[4, 6]).astype(F64).to_vec::<f64>().unwrap();
        assert!(x.iter().zip(&y).all(|(x, y)| (want(*x) - y).abs() < 1e-5), "{y:?}");
        assert_eq!(
            ty,
            format!(
                "float32[4{},6{}]",
                ["", "@X"][usize::from(spec != p![])],
                ["", "@Y"][usize::from(spec == p!["X", "Y"])]
            )
        );
    }
    let (xs, ys) = (Array::from([2.0]), Array::from([7.0]));
    assert_eq!(Array::from([1.0, 2.0, 3.0]).interp(&xs, &ys).to_vec::<f64>().unwrap(), [7.0; 3]);
    assert!(Array::from([f64::NAN]).interp(&xs, &ys).to_vec::<f64>().unwrap()[0].is_nan());
    // The gradients with respect to both.
    let (xs, ys) = points();
    let at = Array::from([-2.0f32, 0.5]);
    let g = grad((&at, &xs, &ys), |(x, xs, ys)| (x.interp(&xs, &ys) * Array::from([1.0f32, 10.0])).sum(..));
    assert_eq!(g.0.to_vec::<f32>().unwrap(), [2.0, 30.0]);
    assert_eq!(g.2.to_vec::<f32>().unwrap(), [0.5, 0.5, 5.0, 5.0, 0.0]);
    let error_of = |y: Array| y.ty().unwrap_err();
    assert_eq!(error_of(at.interp(&xs, &at)).kind(), ErrorKind::Shape);
    assert_eq!(error_of(at.interp(&xs.astype(F64), &ys)).kind(), ErrorKind::Dtype);
    let split = Array::ones([4]).put(&mesh(), p!["X"]);
    let e = error_of(at.interp(&split, &split));
    assert!(e.unquoted().contains("`.reshard(p![_])`"), "{e}");
}

#[test]
fn searches_may_be_sharded() {
    let steps = Array::from([-3.0f32, -1.0, -1.0, 2.0, f32::NAN]);
    for right in [false, true] {
        let (ty, y) = apply(&[(&[4, 6], p!["X", "Y"])], |x| steps.searchsorted(&x[0], right));
        assert_eq!(ty, "int32[4@X,6@Y]");
        let x = filled(&[24]).to_vec::<f32>().unwrap();
        let count = |x: f32| [-3.0, -1.0, -1.0, 2.0].iter().filter(|s| **s < x || right && **s == x).count();
        assert!(x.iter().zip(&y).all(|(x, y)| count(*x) as f64 == *y), "{y:?}");
    }
    let nan = Array::from([f32::NAN, f32::INFINITY]);
    assert_eq!(steps.searchsorted(&nan, false).to_vec::<i32>().unwrap(), [4, 4]);
    assert_eq!(steps.searchsorted(&nan, true).to_vec::<i32>().unwrap(), [5, 4]);
    assert_eq!(Array::zeros([0]).searchsorted(&nan, true).to_vec::<i32>().unwrap(), [0, 0]);
    assert_eq!(steps.searchsorted(&Array::from(0), true).ty().unwrap_err().kind(), ErrorKind::Dtype);
    // A sorted table of every size.
    for n in 1..20 {
        let steps = Array::arange(0..n) * 2;
        let x = Array::arange(-1..2 * n + 1);
        let want: Vec<i32> = (-1..2 * n + 1).map(|x| ((x + 1) / 2).clamp(0, n)).collect();
        assert_eq!(steps.searchsorted(&x, false).to_vec::<i32>().unwrap(), want, "{n}");
    }
}

#[test]
fn positions_of_what_is_not_zero() {
    let x = filled(&[4, 6]);
    let at: Vec<i32> = x
        .to_vec::<f32>()
        .unwrap()
        .iter()
        .enumerate()
        .filter(|(_, x)| **x != 0.0)
        .map(|(i, _)| i as i32)
        .collect();
    for size in [0, 3, at.len(), 30] {
        let mut want = at.clone();
        want.resize(want.len().max(size), 24);
        want.truncate(size);
        assert_eq!(x.flatnonzero(size).to_vec::<i32>().unwrap(), want);
    }
    assert_eq!(
        x.ravel().take(&x.flatnonzero(24), 0).is_nan().count_nonzero(..).item::<i32>().unwrap(),
        24 - at.len() as i32
    );
    let auto = Mesh::auto([("X", 4)]).unwrap();
    assert_eq!(
        x.put(&auto, p!["X"]).flatnonzero(20).to_vec::<i32>().unwrap(),
        x.flatnonzero(20).to_vec::<i32>().unwrap()
    );
    assert_eq!(Array::from([1.0, 2.0, 4.0]).percentile(50.0, 0).item::<f64>().unwrap(), 2.0);
    assert_eq!(Array::from([1.0]).percentile(101.0, 0).ty().unwrap_err().kind(), ErrorKind::Shape);
}

/// The forms with XLA's parameters agree with the shorter ones.
#[test]
fn windows_at_index_vectors() {
    use atmesh::GatherDims;
    let x = filled(&[5, 4]);
    let ids = Array::from([[4], [0], [4]]);
    let rows = GatherDims {
        start_index_map: vec![0],
        collapsed_dims: vec![0],
        offset_dims: vec![1],
        ..GatherDims::default()
    };
    let numbers = |x: &Array| x.to_vec::<f32>().unwrap();
    let flat = ids.ravel();
    assert_eq!(numbers(&x.gather(&ids, &rows, [1, 4])), numbers(&x.take(&flat, 0)));
    let u = filled(&[3, 4]);
    assert_eq!(numbers(&x.scatter(&ids, &u, &rows)), numbers(&x.at(ix![&flat]).set(&u)));
    assert_eq!(numbers(&x.scatter_add(&ids, &u, &rows)), numbers(&x.at(ix![&flat]).add(&u)));
    assert_eq!(numbers(&x.scatter_mul(&ids, &u, &rows)), numbers(&x.at(ix![&flat]).mul(&u)));
    assert_eq!(numbers(&x.scatter_max(&ids, &u, &rows)), numbers(&x.at(ix![&flat]).max(&u)));
    assert_eq!(numbers(&x.scatter_min(&ids, &u, &rows)), numbers(&x.at(ix![&flat]).min(&u)));
    let mesh = mesh();
    let (split, u) = (x.slice(ix![..4]).put(&mesh, p!["X"]), u.put(&mesh, p![]));
    let ids = Array::from([[3], [0], [3]]);
    let y = split.gather_to(&ids, &rows, [1, 4], p![]);
    assert_eq!(numbers(&y), numbers(&x.take(&ids.ravel(), 0)));
    let e = split.gather(&ids, &rows, [1, 4]).ty().unwrap_err();
    assert!(e.unquoted().contains("gather_to(&indices, &dims, sizes, "), "{e}");
    assert_eq!(type_of(split.scatter_add_to(&ids, &u, &rows, p!["X"])), "float32[4@X,4]");
}
