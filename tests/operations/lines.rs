//! Operations on 1-D slices (sorts, scans, transforms): the same bits with all shardings, and the
//! bytes that are communicated.

use crate::error_checks::Unquoted as _;
use crate::soak::{part, runs_all};
use atmesh::diagnostic::Fault;
use atmesh::prelude::*;
use atmesh::program::loop_nest::{Access, Compute, LoopNest, RowKernelCall};
use atmesh::program::{
    BatchedOp, Dim, Factors, JvpArgs, Linearity, Primitive, RowInput, RowKernel, RowOutputs, Tangents,
    TransposeArgs, TypedOperand, VmapArgs,
};
use atmesh::types::Shape;
use atmesh::{CollectiveKind, EngineKind, ErrorKind, Spec, sort_by_keys};
use std::sync::Arc;

const ENGINES: [EngineKind; 3] = [EngineKind::Reference, EngineKind::Lockstep, EngineKind::Threads];

/// Returns the bits of all elements, with one pattern for every NaN.
fn bits(x: &Array) -> Vec<u64> {
    if !x.ty().unwrap().dtype.is_float() {
        return x.astype(I64).to_vec::<i64>().unwrap().into_iter().map(|x| x as u64).collect();
    }
    let bits = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    x.astype(F64).to_vec::<f64>().unwrap().into_iter().map(bits).collect()
}

/// Returns elements of a type with repetitions and, for floats, zeros of both signs and NaN.
fn numbers(dtype: DType, shape: &[usize]) -> Array {
    let n: usize = shape.iter().product();
    let x: Vec<f64> = (0..n).map(|i| ((i * 37 + 11) % 23) as f64 / 4.0 - 2.0).collect();
    let special = |(i, x): (usize, f64)| match i % 13 {
        4 => -0.0,
        9 => 0.0,
        12 if i % 5 == 0 => f64::NAN,
        _ => x,
    };
    let x = match dtype {
        d if d.is_float() => x.into_iter().enumerate().map(special).collect(),
        _ => x.into_iter().map(|x| (4.0 * x).abs()).collect::<Vec<f64>>(),
    };
    let x = Array::from(x);
    if dtype == Bool { x.gt(2.0).reshape(shape) } else { x.astype(dtype).reshape(shape) }
}

/// Asserts that `f` gives the same bits eagerly and on each mesh, with each sharding of the
/// operand, on each engine.
fn everywhere(x: &Array, what: &str, f: impl Fn(&Array) -> Vec<Array> + Clone + 'static) {
    compare(x, what, f, |got, wanted| got.iter().map(bits).eq(wanted.iter().map(bits)));
}

/// Runs the same cases, but allows rounding differences where blocks of a slice are combined.
fn nearly_everywhere(x: &Array, what: &str, f: impl Fn(&Array) -> Vec<Array> + Clone + 'static) {
    let tolerance = if x.ty().unwrap().dtype.size() == 2 { 0.02 } else { 1e-5 };
    compare(x, what, f, move |got, wanted| {
        got.iter().zip(wanted).all(|(a, b)| {
            let numbers = |x: &Array| x.astype(F64).to_vec::<f64>().unwrap();
            let near = |a: f64, b: f64| {
                a == b || (a - b).abs() <= tolerance * (1.0 + b.abs()) || a.is_nan() && b.is_nan()
            };
            numbers(a).into_iter().zip(numbers(b)).all(|(a, b)| near(a, b))
        })
    });
}

fn compare(
    x: &Array,
    what: &str,
    f: impl Fn(&Array) -> Vec<Array> + Clone + 'static,
    alike: impl Fn(&[Array], &[Array]) -> bool,
) {
    let wanted = f(x);
    let rank = x.shape().unwrap().len();
    // Partitioning does not depend on the element type: one type runs with all shardings, the
    // others with some of them.
    let sizes: &[usize] = match (x.ty().unwrap().dtype, runs_all()) {
        (F32, true) => &[1, 2, 4, 5, 8],
        (F32, false) => &[5],
        (_, true) => &[2, 5],
        (_, false) => &[5],
    };
    for &n in sizes {
        let mesh = Mesh::auto([("X", n), ("Y", 2)]).unwrap();
        let step = if x.ty().unwrap().dtype == F32 && n == 5 { 2 } else { 4 };
        for spec in part(layouts(rank).into_iter().rev(), step) {
            let y = x.put(&mesh, spec);
            if y.ty().is_err() {
                continue;
            }
            let mut first: Option<Vec<Vec<u64>>> = None;
            for engine in ENGINES {
                let g = f.clone();
                let got = jit(move |x: &Array| g(x)).engine(engine).call(&y);
                let got = got.unwrap_or_else(|e| panic!("{what} on {n}, {spec}, {engine}: {e}"));
                assert!(alike(&got, &wanted), "{what} of {x} on {n} devices, {spec}, {engine}: {got:?}");
                let got: Vec<Vec<u64>> = got.iter().map(bits).collect();
                assert_eq!(first.get_or_insert_with(|| got.clone()), &got, "{what}: engines differ");
            }
        }
    }
}

fn layouts(rank: usize) -> Vec<Spec> {
    match rank {
        1 => vec![p![], p!["X"]],
        3 => vec![p![_, "X"], p![_, "X", _], p!["Y", "X"]],
        _ => vec![p![], p!["X"], p![_, "X"], p!["X", "Y"], p!["Y", "X"], p![("X", "Y")]],
    }
}

#[test]
fn running_results_are_the_same_bits_wherever_rows_are_placed() {
    for dtype in part([F32, F64, BF16, F16, I8, I32, U64, Bool], 3) {
        for shape in [&[40][..], &[8, 20], &[40, 8], &[0, 8], &[8, 0], &[2, 1]] {
            let x = numbers(dtype, shape);
            for d in 0..shape.len() as i32 {
                everywhere(&x, "extremes", move |x| vec![x.cummax(d), x.cummin_reverse(d)]);
                if dtype != Bool {
                    let sums = move |x: &Array| {
                        let mut sums = vec![x.cumsum(d), x.cumprod(d), x.cumsum_reverse(d)];
                        sums.extend(dtype.is_float().then(|| x.cumlogsumexp(d)));
                        sums
                    };
                    match dtype.is_float() {
                        true => nearly_everywhere(&x, "sums", sums),
                        false => everywhere(&x, "sums", sums),
                    }
                    everywhere(&x, "recurrence", move |x| vec![x.recurrence(&(x * x), d)]);
                }
            }
        }
    }
}

#[test]
fn sorts_are_the_same_bits_wherever_rows_are_placed() {
    for dtype in part([F32, F64, BF16, F16, I8, I32, U64, Bool], 3) {
        for shape in [&[40][..], &[8, 20], &[40, 8], &[0, 8], &[8, 0], &[2, 1]] {
            let x = numbers(dtype, shape);
            for d in 0..shape.len() as i32 {
                let k = shape[d as usize] / 3;
                everywhere(&x, "sorts", move |x| {
                    let (best, at) = x.top_k(k, d);
                    let mut all = sort_by_keys([x, &x.astype(F32), &x.argsort(d)], 1, d);
                    all.extend([x.sort(d), x.argsort(d), best, at]);
                    all
                });
            }
        }
    }
}

#[test]
fn the_best_of_blocks_have_the_same_bits() {
    for dtype in part([F32, F64, BF16, I32, U64, Bool], 2) {
        for (shape, d) in
            [(&[4, 120][..], 1), (&[120, 4], 0), (&[120], 0), (&[2, 160, 3], 1), (&[2, 3, 131], 2)]
        {
            let x = numbers(dtype, shape);
            everywhere(&x, "best", move |x| {
                let ((a, b), (c, d)) = (x.top_k(3, d), x.top_k(1, d));
                vec![a, b, c, d]
            });
        }
    }
}

#[test]
fn sorts_are_stable_and_put_nan_last() {
    let x = Array::from([f32::NAN, 1.0, -0.0, -1.0, 0.0, f32::INFINITY, -0.0, f32::NEG_INFINITY]);
    let sorted = x.sort(0).to_vec::<f32>().unwrap();
    assert_eq!(sorted[..7], [f32::NEG_INFINITY, -1.0, -0.0, 0.0, -0.0, 1.0, f32::INFINITY]);
    assert!(sorted[7].is_nan());
    assert_eq!(sorted[2..5].iter().map(|x| x.is_sign_negative()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(x.argsort(0).to_vec::<i32>().unwrap(), [7, 3, 2, 4, 6, 1, 5, 0]);
    let (best, at) = x.top_k(4, 0);
    assert!(best.to_vec::<f32>().unwrap()[0].is_nan());
    assert_eq!(at.to_vec::<i32>().unwrap(), [0, 5, 1, 2]);
    // By two keys.
    let (a, b) = (Array::from([2, 1, 2, 1]), Array::from([true, true, false, false]));
    let place = Array::arange(0..4);
    let by = |keys| sort_by_keys([&a, &b, &place], keys, 0)[2].to_vec::<i32>().unwrap();
    assert_eq!((by(1), by(2)), (vec![1, 3, 0, 2], vec![3, 1, 2, 0]));
}

#[test]
fn a_sort_of_many_is_that_of_the_standard_library() {
    for n in [1000, 200_000] {
        let x = Key::new(3).normal([n]);
        let mut wanted = x.to_vec::<f32>().unwrap();
        wanted.sort_by(f32::total_cmp);
        assert_eq!(x.sort(0).to_vec::<f32>().unwrap(), wanted);
        let from = x.argsort(0).to_vec::<i32>().unwrap();
        let x = x.to_vec::<f32>().unwrap();
        assert!(from.iter().zip(&wanted).all(|(i, y)| x[*i as usize] == *y));
    }
}

#[test]
fn derivatives_of_sorts_go_to_where_elements_come_from() {
    let x = numbers(F64, &[3, 7]).square() + Array::arange(0..21).reshape([3, 7]).astype(F64) * 0.37;
    let w = Array::arange(0..21).reshape([3, 7]).astype(F64);
    let g = grad(&x, |x| (x.sort(1) * &w).sum(..));
    let wanted = sort_by_keys([&x.argsort(1), &w], 1, 1).swap_remove(1);
    assert_eq!(bits(&g), bits(&wanted));
    let g = grad(&x, |x| (x.top_k(2, 1).0 * Array::from([1.0, 10.0])).sum(..));
    let at = x.top_k(2, 1).1.to_vec::<i32>().unwrap();
    let g = g.to_vec::<f64>().unwrap();
    for r in 0..3 {
        assert_eq!((g[r * 7 + at[2 * r] as usize], g[r * 7 + at[2 * r + 1] as usize]), (1.0, 10.0));
        assert_eq!(g[r * 7..][..7].iter().sum::<f64>(), 11.0);
    }
    // With respect to an operand that is sorted by the keys of another one.
    let g = grad(&(&w + 1.0), |w| sort_by_keys([&x, &(&w * &w)], 1, 0).swap_remove(1).slice(ix![0]).sum(..));
    assert_eq!(g.to_vec::<f64>().unwrap().iter().filter(|g| **g != 0.0).count(), 7);
    // The shared sort is computed once.
    let f = jit(|x: &Array| (x.sort(1), x.argsort(1)));
    let report = f.lower(&x).unwrap().compile().unwrap().report().to_string();
    assert_eq!(report.matches("row kernel %").count(), 1, "{report}");
}

#[test]
fn places_among_sorted_elements_are_counts() {
    let steps = (numbers(I32, &[50]) * 3).sort(0);
    let x = Array::arange(-2..40).reshape([6, 7]);
    let (s, v) = (steps.to_vec::<i32>().unwrap(), x.to_vec::<i32>().unwrap());
    let counts = |f: fn(i32, i32) -> bool| -> Vec<i32> {
        v.iter().map(|x| s.iter().filter(|s| f(**s, *x)).count() as i32).collect()
    };
    assert_eq!(steps.searchsorted(&x, false).to_vec::<i32>().unwrap(), counts(|s, x| s < x));
    assert_eq!(steps.searchsorted(&x, true).to_vec::<i32>().unwrap(), counts(|s, x| s <= x));
    assert_eq!(steps.searchsorted(&x, true).shape().unwrap(), [6, 7]);
}

#[test]
fn different_elements_are_each_there_once() {
    let x = numbers(F32, &[60]);
    let found = x.unique(60).to_vec::<f32>().unwrap();
    let mut wanted = x.to_vec::<f32>().unwrap();
    wanted.retain(|x| !x.is_nan());
    wanted.sort_by(f32::total_cmp);
    wanted.dedup();
    assert_eq!(found[..wanted.len()], wanted);
    assert!(found[wanted.len()].is_nan(), "every NaN is one");
    assert!(found[wanted.len() + 1..].iter().all(|x| *x == wanted[0]));
    assert_eq!(Array::from([2, 2]).unique(3).to_vec::<i32>().unwrap(), [2, 2, 2]);
    assert_eq!(Array::zeros([0]).unique(1).ty().unwrap_err().kind(), ErrorKind::Shape);
}

#[test]
fn quantiles_are_between_sorted_elements() {
    let x = Array::from([[4.0, 1.0, 3.0, 2.0], [8.0, f64::NAN, 0.0, 1.0]]);
    let m = x.median(1).to_vec::<f64>().unwrap();
    assert!(m[0] == 2.5 && m[1].is_nan());
    assert_eq!(x.median(0).to_vec::<f64>().unwrap()[2..], [1.5, 1.5]);
    assert_eq!(x.slice(ix![0]).quantile(1.0, 0).item::<f64>().unwrap(), 4.0);
    assert_eq!(x.quantile(1.5, 0).ty().unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(Array::from([1]).median(0).ty().unwrap_err().kind(), ErrorKind::Dtype);
}

#[test]
fn a_random_order_has_all_elements() {
    let x = Array::arange(0..300);
    let (a, b) = (Key::new(0).permutation(&x, 0), Key::new(1).permutation(&x, 0));
    assert_eq!(bits(&a.sort(0)), bits(&x));
    assert_ne!(bits(&a), bits(&b));
    let columns = Key::new(2).permutation(&Array::arange(0..12).reshape([2, 6]), 1);
    assert_eq!(columns.sort(1).to_vec::<i32>().unwrap(), (0..12).collect::<Vec<i32>>());
    let rows = columns.unstack(0);
    assert_eq!(bits(&(&rows[1] - &rows[0])), [6; 6], "columns stay together");
}

#[test]
fn a_long_line_is_the_same_bits_in_any_company() {
    let x = Key::new(7).normal([3, (1 << 16) + 77]);
    let wanted = bits(&x.cumsum(1));
    let columns = jit(|x: &Array| x.transpose([1, 0]).cumsum(0).transpose([1, 0]));
    assert_eq!(bits(&columns.call(&x).unwrap()), wanted);
    let rows: Vec<u64> = x.unstack(0).iter().flat_map(|x| bits(&x.cumsum(0))).collect();
    assert_eq!(rows, wanted);
    for engine in [EngineKind::Reference, EngineKind::Threads] {
        let y = jit(|x: &Array| x.cumsum(1)).engine(engine).call(&x).unwrap();
        assert_eq!(bits(&y), wanted, "{engine}");
    }
}

#[test]
fn a_long_transform_is_that_of_its_definition() -> Result<()> {
    for n in [1 << 16, 1 << 17] {
        // A unit impulse transforms to a wave, and the inverse transform gives the impulse.
        for at in [0, 1, 700, n - 3] {
            let mut x = vec![0f32; n];
            x[at] = 1.0;
            let (y, z) = jit(|x: &Array| (x.fft(0).real(), x.fft(0).imag())).call(&Array::from(x.clone()))?;
            let (y, z) = (y.to_vec::<f32>()?, z.to_vec::<f32>()?);
            for k in (0..n).step_by(97) {
                let angle = -std::f64::consts::TAU * (k * at % n) as f64 / n as f64;
                let (re, im) = (f64::from(y[k]) - angle.cos(), f64::from(z[k]) - angle.sin());
                assert!(re.hypot(im) < 5e-7, "{n}, {at}, {k}: {re} {im}");
            }
            let back = jit(|x: &Array| x.fft(0).ifft(0).real()).call(&Array::from(x.clone()))?;
            assert!(back.to_vec::<f32>()?.iter().zip(&x).all(|(y, x)| (y - x).abs() < 1e-6), "{n}, {at}");
        }
    }
    let x = Key::new(3).normal([2, 1 << 16]);
    let wanted = jit(|x: &Array| x.fft(1).real()).call(&x)?;
    let columns = jit(|x: &Array| x.transpose([1, 0]).fft(0).real().transpose([1, 0])).call(&x)?;
    assert_eq!(bits(&columns), bits(&wanted));
    for (row, wanted) in x.unstack(0).iter().zip(wanted.unstack(0)) {
        assert_eq!(bits(&row.fft(0).real()), bits(&wanted));
    }
    for engine in [EngineKind::Reference, EngineKind::Threads] {
        assert_eq!(
            bits(&jit(|x: &Array| x.fft(1).real()).engine(engine).call(&x)?),
            bits(&wanted),
            "{engine}"
        );
    }
    Ok(())
}

#[test]
fn the_greatest_of_a_long_line_are_those_of_a_sort() -> Result<()> {
    for (n, k) in [(300_000, 10), (262_145, 256), (400_000, 0)] {
        // Many elements are equal: the sort is stable.
        let x: Vec<f32> = (0..n).map(|i: i32| (i.wrapping_mul(-1_640_531_527) >> 20) as f32).collect();
        let mut places: Vec<i32> = (0..n).collect();
        places.sort_by(|a, b| x[*b as usize].total_cmp(&x[*a as usize]));
        let wanted: Vec<f32> = places[..k].iter().map(|i| x[*i as usize]).collect();
        let (best, at) = jit(move |x: &Array| x.top_k(k, 0)).call(&Array::from(x.clone()))?;
        assert_eq!((best.to_vec::<f32>()?, at.to_vec::<i32>()?), (wanted, places[..k].to_vec()));
    }
    Ok(())
}

#[test]
fn results_of_examples_are_those_of_each() {
    let x = numbers(F32, &[5, 4, 6]);
    for d in [0, 1] {
        let f = move |x: &Array| {
            let best = x.top_k(1, d).0;
            x.cumsum(d) + x.cummin(d) * x.cumprod_reverse(d) + x.sort(d) - x.argsort(d).astype(F32) + best
        };
        let each: Vec<u64> = x.unstack(0).iter().flat_map(|x| bits(&f(x))).collect();
        assert_eq!(bits(&vmap(&x, move |x| f(&x))), each);
    }
}

#[test]
fn derivatives_are_exact_at_zeros_and_ties() {
    let x = Array::from([3.0, 0.0, 2.0, 0.0, 5.0]);
    // d/dx of Σ wᵢ·yᵢ, for products by the product rule.
    let w = [1.0, 10.0, 100.0, 1000.0, 10000.0];
    let g = grad(&x, |x| (x.cumprod(0) * Array::from(w)).sum(..)).to_vec::<f64>().unwrap();
    assert_eq!(g, [1.0, 3.0 * 10.0 + 6.0 * 100.0, 0.0, 0.0, 0.0]);
    let x = Array::from([1.0, 4.0, 4.0, 2.0, 7.0]);
    let g = grad(&x, |x| (x.cummax(0) * Array::from(w)).sum(..)).to_vec::<f64>().unwrap();
    assert_eq!(g, [1.0, 1110.0, 0.0, 0.0, 10000.0], "of equal elements the first");
    // Second derivatives.
    let h = grad(&x, |x| (grad(&x, |x: Array| x.cumprod(0).sum(..)) * Array::from(w)).sum(..));
    assert!(h.to_vec::<f64>().unwrap().iter().all(|h| h.is_finite() && *h != 0.0));
}

#[test]
fn lines_that_are_split_move_to_where_they_are_whole() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let x = numbers(F32, &[64, 128]);
    let moves = |spec: Spec, f: fn(&Array) -> Array| -> Result<Vec<(CollectiveKind, usize)>> {
        let lowered = jit(f).lower(&x.put(&mesh, spec))?;
        Ok(lowered.collectives().iter().map(|c| (c.kind, c.total_bytes as usize)).collect())
    };
    // Each device keeps an eighth of its eighth.
    let one = (CollectiveKind::AllToAll, 4 * 64 * 128 * 7 / 8);
    assert_eq!(moves(p!["X"], |x| x.cummax(1))?, []);
    let f = |x: &Array| x.sort(1).constrain(p![_, "X"]);
    assert_eq!(moves(p![_, "X"], f)?, [one, one]);
    assert_eq!(moves(p!["X"], |x| x.sort(1))?, []);
    assert_eq!(moves(p!["X"], |x| x.top_k(3, 1).0)?, []);
    // The totals of the blocks, eight per row: each device adds up those of some rows.
    let totals = (CollectiveKind::AllToAll, 4 * 64 * 8 * 7 / 8);
    assert_eq!(moves(p![_, "X"], |x| x.cummax(1))?, [totals, totals]);
    assert_eq!(moves(p![_, "X"], |x| x.cumsum_reverse(1))?, [totals, totals]);
    // The candidates and their indices: 24 per row over all devices.
    for f in [|x: &Array| x.top_k(3, 1).0, |x: &Array| x.top_k(3, 1).1] {
        let bytes: usize = moves(p![_, "X"], f)?.iter().map(|m| m.1).sum();
        assert!((1..=2 * 4 * 64 * 24 * 7).contains(&bytes), "{bytes}");
    }
    let line = numbers(F32, &[1024]).put(&mesh, p!["X"]);
    let lowered = jit(|x: &Array| x.cumsum(0)).lower(&line)?;
    assert_eq!(lowered.collectives().total_bytes(), 4 * 7 * 8);
    // The decays and the states, of two operands.
    let lowered = jit(|x: &Array| x.recurrence(&(x * 2.0), 0)).lower(&line)?;
    assert_eq!(lowered.collectives().total_bytes(), 2 * 4 * 7 * 8);
    Ok(())
}

/// If a dimension is not divisible, all blocks have one size except the last ones, which are padded
/// with the identity.
#[test]
fn lines_that_are_not_divisible_are_cut_too() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let bytes = |n: usize, f: &dyn Fn(&Array) -> Array| -> Result<usize> {
        let line = numbers(F32, &[n]).put(&Mesh::auto([("X", 1)])?, p![]);
        let uneven = |x: &Array| f(&x.constrain(p!["X"]));
        let lowered = jit(uneven).lower(&numbers(F32, &[n]).put(&mesh, p![]))?;
        let (got, wanted) = (jit(uneven).call(&numbers(F32, &[n]).put(&mesh, p![]))?, f(&line));
        for (a, b) in got.astype(F64).to_vec::<f64>()?.iter().zip(wanted.astype(F64).to_vec::<f64>()?) {
            assert!(
                (a - b).abs() <= 1e-4 * b.abs().max(1.0) || a == &b || a.is_nan() && b.is_nan(),
                "{a} and {b}"
            );
        }
        Ok(lowered.collectives().total_bytes() as usize)
    };
    // 1000 = 8 · 125; 1001 has blocks of 126, the last one of 119; 130 has 17 and 11; 65 has 9 and
    // 2; 57 has 8 and 1.
    for n in [1001, 130, 65, 57] {
        for f in [
            |x: &Array| x.cumsum(0).constrain(p!["X"]),
            |x: &Array| x.cumprod_reverse(0).constrain(p!["X"]),
            |x: &Array| x.cummax(0).constrain(p!["X"]),
            |x: &Array| x.cummin_reverse(0).constrain(p!["X"]),
            |x: &Array| x.cumlogsumexp(0).constrain(p!["X"]),
        ] {
            assert_eq!(bytes(n, &f)?, bytes(8 * 128, &f)?, "{n}");
        }
        let f = |x: &Array| x.recurrence(&(x * 2.0), 0).constrain(p!["X"]);
        assert_eq!(bytes(n, &f)?, bytes(8 * 128, &f)?, "{n}");
    }
    for f in [|x: &Array| x.top_k(3, 0).0, |x: &Array| x.top_k(3, 0).1.astype(F32)] {
        assert_eq!(bytes(1001, &f)?, bytes(1024, &f)?);
    }
    // All elements equal the minimum of the type.
    let least = Array::full([1001], f32::NEG_INFINITY);
    let (values, at) = least.put(&mesh, p![]).constrain(p!["X"]).top_k(3, 0);
    assert_eq!((values.to_vec::<f32>()?, at.to_vec::<i32>()?), (vec![f32::NEG_INFINITY; 3], vec![0, 1, 2]));
    Ok(())
}

#[test]
fn bad_operands_are_rejected_with_words() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
    let e = x.cumsum(1).ty().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Sharding);
    let text = e.unquoted();
    assert!(text.contains("cumsum") && text.contains(".reshard(p![_, _])"), "{text}");
    assert_eq!(type_of(x.reshard(p![_, _]).cumsum(1)), "float32[4,8]");
    assert_eq!(Array::from(1.0).cumsum(0).ty().unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(Array::from([true]).cumsum(0).ty().unwrap_err().kind(), ErrorKind::Dtype);
    assert_eq!(x.cumsum(2).ty().unwrap_err().kind(), ErrorKind::Shape);
    let e = x.recurrence(&Array::ones([8]), 0).ty().unwrap_err();
    assert!(e.unquoted().contains("one shape"), "{e}");
    Ok(())
}

/// The behaviour of a custom row function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Does {
    /// Doubles the elements.
    Twice,
    /// Does not take its result buffer.
    Nothing,
    /// Takes its result buffer, but does not write it.
    Takes,
    /// Panics.
    Panics,
    /// Reads elements as another type than they have.
    Misreads,
}

impl RowKernel for Does {
    fn key(&self) -> String {
        format!("{self:?}")
    }
    fn cost(&self, elements: usize) -> f64 {
        elements as f64
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        match self {
            Does::Twice => {
                let Some(mut y) = outs.take(0) else { return };
                y.view::<f32>().zip_mut_with(&ins[0].view::<f32>(), |y, x| *y = 2.0 * x);
            }
            Does::Nothing => {}
            Does::Takes => drop(outs.take(0)),
            Does::Panics => panic!("out of luck"),
            Does::Misreads => drop(ins[0].view::<i64>()),
        }
    }
}

/// A custom primitive that applies a function to rows along the last dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Own(Does);

impl Primitive for Own {
    fn name(&self) -> &'static str {
        "of_my_own"
    }
    fn params(&self) -> String {
        self.0.key()
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        Ok(vec![(operands[0].ty.dtype, operands[0].ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let dims = Dim::each(0..operands[0].rank());
        Factors {
            operands: vec![dims.clone()],
            results: vec![dims],
            ..Factors::from_sizes(&operands[0].shape)
        }
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn jvp(&self, _: JvpArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::broadcasting(Arc::new(self.clone()))
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, rank) = (&operands[0], results[0].rank());
        let extents: Vec<usize> = x.shape.iter().copied().chain([x.shape[rank - 1]]).collect();
        let loops: Vec<_> = (0..rank).map(|d| Some(if d == rank - 1 { rank } else { d })).collect();
        let reads = vec![Access::from_loops(0, x.dtype, &extents, &loops)];
        let of = RowKernelCall {
            kernel: Arc::new(self.0),
            result_index: 0,
            row_loops: [rank - 1].into_iter().collect(),
        };
        vec![LoopNest { extents, rank, dtype: x.dtype, accesses: reads, compute: Compute::RowKernel(of) }]
    }
}

/// Custom row functions, small ones inline and large ones on workers, on every engine: elements
/// that they do not write are zeros, and a panic is an error, after which the next run works.
#[test]
fn a_function_of_ones_own_is_right_or_told_of() {
    let run = |does, engine, n: usize| {
        let x = Array::ones([n, 64]);
        let own = move |x: &Array| Array::apply(Arc::new(Own(does)), &[x.into()]).swap_remove(0);
        jit(own).engine(engine).call(&x)?.to_vec::<f32>()
    };
    for engine in ENGINES {
        for n in if engine == EngineKind::Reference { &[2][..] } else { &[2, 8192] } {
            assert_eq!(run(Does::Twice, engine, *n).unwrap(), vec![2.0; 64 * n]);
            for does in [Does::Nothing, Does::Takes] {
                assert_eq!(run(does, engine, *n).unwrap(), vec![0.0; 64 * n], "{does:?} on {engine}");
            }
            for (does, said) in [(Does::Panics, "out of luck"), (Does::Misreads, "I64")] {
                let error = run(does, engine, *n).expect_err("it panics");
                let text = error.unquoted();
                assert_eq!(error.kind(), ErrorKind::User, "{text}");
                assert!(text.contains(&format!("{does:?}")) && text.contains(said), "{engine}: {text}");
                assert!(text.contains("lines.rs:"), "{engine}: {text}");
                assert_eq!(run(Does::Twice, engine, *n).unwrap(), vec![2.0; 64 * n]);
            }
        }
    }
}
