//! Methods with NumPy's names return NumPy's values: eagerly, compiled by each engine, and on
//! sharded operands. The expected values were computed with NumPy 2.4 and SciPy (`expm`).

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;

/// A function of the operands of a case.
type Call = dyn Fn(&[Array]) -> Array + Send + Sync;

/// A call, its operands, and the values that NumPy returns.
struct Case {
    name: &'static str,
    args: Vec<Array>,
    /// Operands and their dimensions that are sharded in turn.
    sharded: &'static [(usize, usize)],
    call: Box<Call>,
    expected: Vec<f64>,
    /// The relative tolerance.
    tolerance: f64,
    /// True if the reference engine returns the same bits: there are no matrix products.
    has_equal_bits: bool,
}

fn case(
    name: &'static str,
    args: impl IntoIterator<Item = Array>,
    sharded: &'static [(usize, usize)],
    call: impl Fn(&[Array]) -> Array + Send + Sync + 'static,
    expected: &[f64],
) -> Case {
    let args = args.into_iter().collect();
    Case {
        name,
        args,
        sharded,
        call: Box::new(call),
        expected: expected.to_vec(),
        tolerance: 1e-6,
        has_equal_bits: !name.contains("corrcoef"),
    }
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

fn ints(x: [i32; 8]) -> Array {
    Array::from(x)
}
fn floats(x: [f64; 8]) -> Array {
    Array::from(x)
}
fn matrix() -> Array {
    Array::from([[3., 1., 4., 1.], [5., 9., 2., 6.], [5., 3., 5., 8.], [9., 7., 9., 3.]])
}

fn division() -> Vec<Case> {
    let a = ints([-7, -3, -1, 0, 1, 3, 6, 7]);
    let b = ints([4, -4, 3, 5, -3, 2, -4, -7]);
    let x = floats([-7.5, -3., -1., 0., 1.5, 3., 6.25, INF]);
    let y = floats([2., -2., INF, 5., -3., 0.75, -0.5, 2.]);
    let first: &[(usize, usize)] = &[(0, 0), (1, 0)];
    let pair = |x: &Array, y: &Array| [x.clone(), y.clone()];
    vec![
        case(
            "a // b",
            pair(&a, &b),
            first,
            |x| x[0].floor_divide(&x[1]),
            &[-2., 0., -1., 0., -1., 1., -2., -1.],
        ),
        case(
            "mod(a, b)",
            pair(&a, &b),
            first,
            |x| x[0].remainder(&x[1]),
            &[1., -3., 2., 0., -2., 1., -2., 0.],
        ),
        case(
            "a // 4",
            [a.clone()],
            &[(0, 0)],
            |x| x[0].floor_divide(4),
            &[-2., -1., -1., 0., 0., 0., 1., 1.],
        ),
        case("mod(a, -4)", [a], &[(0, 0)], |x| x[0].remainder(-4), &[-3., -3., -1., 0., -3., -1., -2., -1.]),
        case(
            "x // y",
            pair(&x, &y),
            first,
            |x| x[0].floor_divide(&x[1]),
            &[-4., 1., -1., 0., -1., 4., -13., NAN],
        ),
        case(
            "mod(x, y)",
            pair(&x, &y),
            first,
            |x| x[0].remainder(&x[1]),
            &[0.5, -1., INF, 0., -1.5, 0., -0.25, NAN],
        ),
        case(
            "x // 0",
            [Array::from([1., -1., 0., 2.])],
            &[(0, 0)],
            |x| x[0].floor_divide(0),
            &[INF, -INF, NAN, INF],
        ),
        case(
            "x // 0.3",
            [x.clone()],
            &[(0, 0)],
            |x| x[0].floor_divide(0.3),
            &[-26., -11., -4., 0., 5., 10., 20., NAN],
        ),
        case(
            "rint",
            [floats([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994, 3.7])],
            &[(0, 0)],
            |x| x[0].rint(),
            &[-2., -2., 0., 0., 2., 2., 0., 4.],
        ),
        case(
            "rint of large float32",
            [Array::from([8388609f32, 4194304.5, -4194305.5, 1e20])],
            &[(0, 0)],
            |x| x[0].rint(),
            &[8388609., 4194304., -4194306., 1e20f32.into()],
        ),
    ]
}

fn parts_of_floats() -> Vec<Case> {
    let n = floats([NAN, INF, -INF, 1., -2., 0., NAN, 5.]);
    let most = f32::MAX.into();
    let x = Array::from([10., -0.25, 0., 1e-40, -3.4e38, 1., 0.5, f32::INFINITY]);
    let wide = floats([10., -0.25, 0., 5e-320, -1.7e308, 1., 0.75, -INF]);
    let view = Array::from([1f32, -2.5, 0., 3e38]);
    let words = [0., 16256., 0., 49184., 0., 0., 45542., 32609.];
    let bytes = [0., 0., 128., 63., 0., 0., 32., 192., 0., 0., 0., 0., 230., 177., 97., 127.];
    let one: &[(usize, usize)] = &[(0, 0)];
    vec![
        case(
            "nan_to_num",
            [n.astype(F32)],
            one,
            |x| x[0].nan_to_num(),
            &[0., most, -most, 1., -2., 0., 0., 5.],
        ),
        case("nan_to_num", [n], one, |x| x[0].nan_to_num(), &[0., f64::MAX, f64::MIN, 1., -2., 0., 0., 5.]),
        case(
            "frexp, mantissa",
            [x.clone()],
            one,
            |x| x[0].frexp().0,
            &[0.625, -0.5, 0., 0.5444488525390625, -0.999170184135437, 0.5, 0.5, INF],
        ),
        case("frexp, exponent", [x], one, |x| x[0].frexp().1, &[4., -1., 0., -132., 128., 1., 0., 0.]),
        case(
            "frexp, mantissa",
            [wide.clone()],
            one,
            |x| x[0].frexp().0,
            &[0.625, -0.5, 0., 0.61767578125, -0.9456563898655606, 0.5, 0.75, -INF],
        ),
        case("frexp, exponent", [wide], one, |x| x[0].frexp().1, &[4., -1., 0., -1060., 1024., 1., 0., 0.]),
        case("view(uint16)", [view.clone()], one, |x| x[0].bitcast(U16), &words),
        case("view(uint8)", [view], one, |x| x[0].bitcast(U8), &bytes),
        case(
            "view(int64)",
            [Array::from([[1, 2], [3, 4]])],
            one,
            |x| x[0].bitcast(I64),
            &[8589934593., 17179869187.],
        ),
        case(
            "view(uint32)",
            [Array::from([[1.5, -2.], [3., 0.25]]).astype(F16)],
            one,
            |x| x[0].bitcast(U32),
            &[3221241344., 872432128.],
        ),
    ]
}

fn comparisons() -> Vec<Case> {
    let a = floats([1., 1., INF, -INF, NAN, 1e10, 1., 0.]);
    let b = floats([1.000001, 1.1, INF, INF, NAN, 1.00001e10, INF, 1e-9]);
    let m = matrix();
    let mut holes = m.to_ndarray::<f64>().unwrap();
    holes[[2, 1]] = NAN;
    let holes = Array::from(holes);
    let dims: &[(usize, usize)] = &[(0, 0), (0, 1)];
    vec![
        case(
            "isclose",
            [a, b],
            &[(0, 0), (1, 0)],
            |x| x[0].isclose(&x[1]),
            &[1., 0., 1., 0., 0., 1., 0., 1.],
        ),
        case("argmax", [m.clone()], dims, |x| x[0].argmax(..), &[5.]),
        case("argmin", [m.clone()], dims, |x| x[0].argmin(..), &[1.]),
        case("argmax with NaN", [holes.clone()], dims, |x| x[0].argmax(..), &[9.]),
        case("argmin with NaN", [holes], dims, |x| x[0].argmin(..), &[9.]),
        case("argmax of booleans", [m.gt(4.)], dims, |x| x[0].argmax(..), &[4.]),
        case("argmax, keepdims", [m.clone()], dims, |x| x[0].argmax(Dims::keep(1)), &[2., 1., 3., 0.]),
        case(
            "corrcoef",
            [m.clone()],
            &[],
            |x| x[0].corrcoef(),
            &[
                1.0,
                -0.8852704127574261,
                -0.13474201390907387,
                0.785674201318386,
                -0.8852704127574261,
                1.0,
                -0.30806161848616215,
                -0.40824829046386296,
                -0.13474201390907387,
                -0.30806161848616215,
                1.0,
                -0.6859943405700353,
                0.7856742013183861,
                -0.40824829046386296,
                -0.6859943405700353,
                1.0,
            ],
        ),
        case("corrcoef of a vector", [m.slice(ix![0])], &[], |x| x[0].corrcoef(), &[1.]),
    ]
}

fn calculus() -> Vec<Case> {
    let x = floats([1., 2., 3., 4., 5., 6., 7., 8.]);
    let (w3, w4) = (Array::from([1., 10., 100.]), Array::from([1., 10., 100., 1000.]));
    let full = [1., 12., 123., 234., 345., 456., 567., 678., 780., 800.];
    let full4 = [1., 12., 123., 1234., 2345., 3456., 4567., 5678., 6780., 7800., 8000.];
    let along: &[(usize, usize)] = &[(0, 0)];
    let convolve = |mode| move |x: &[Array]| x[0].convolve(&x[1], mode);
    let pair = |x: &Array, y: &Array| [x.clone(), y.clone()];
    let (f, s, v) = (ConvolveMode::Full, ConvolveMode::Same, ConvolveMode::Valid);
    let g = floats([1., 2., 4., 7., 11., 16., 22., 30.]);
    let rows = Array::from([[1., 2., 3.], [4., 5., 6.], [7., 8., 10.], [0., 1., -1.]]);
    let others = Array::from([[0., 1., 2.], [3., -1., 4.], [1., 1., 1.], [2., 2., 5.]]);
    let dims: &[(usize, usize)] = &[(0, 0), (0, 1)];
    vec![
        case("convolve, full", pair(&x, &w3), &[], convolve(f), &full),
        case("convolve, full", pair(&w3, &x), &[], convolve(f), &full),
        case("convolve, full, even", pair(&x, &w4), &[], convolve(f), &full4),
        case("convolve, same", pair(&x, &w3), along, convolve(s), &full[1..9]),
        case("convolve, same", pair(&w3, &x), &[(1, 0)], convolve(s), &full[1..9]),
        case("convolve, same, even", pair(&x, &w4), along, convolve(s), &full4[1..9]),
        case("convolve, valid", pair(&x, &w3), along, convolve(v), &full[2..8]),
        case("convolve, valid, even", pair(&x, &w4), &[], convolve(v), &full4[3..8]),
        case("gradient", [g], along, |x| x[0].gradient(0.5, 0), &[2., 3., 5., 7., 9., 11., 14., 16.]),
        case(
            "gradient, axis=1",
            [matrix()],
            dims,
            |x| x[0].gradient(1., 1),
            &[-2., 0.5, 0., -3., 4., -1.5, -1.5, 4., -2., 0., 2.5, 3., -2., 0., -2., -6.],
        ),
        case(
            "gradient, axis=0",
            [matrix()],
            dims,
            |x| x[0].gradient(2., -2),
            &[1., 4., -1., 2.5, 0.5, 0.5, 0.25, 1.75, 1., -0.5, 1.75, -0.75, 2., 2., 2., -2.5],
        ),
        case(
            "cross",
            [rows, others.clone()],
            &[(0, 0), (1, 0)],
            |x| x[0].cross(&x[1], -1),
            &[1., -2., 1., 26., 2., -19., -2., 3., -1., 7., -2., -2.],
        ),
        case(
            "cross of a vector",
            [Array::from([1., 2., 3.]), others.slice(ix![0..2])],
            &[(1, 0)],
            |x| x[0].cross(&x[1], -1),
            &[1., -2., 1., 11., 5., -7.],
        ),
        case(
            "polyval",
            [x, Array::from([3., -2., 1., 0.5])],
            along,
            |x| x[0].polyval(&x[1]),
            &[2.5, 18.5, 66.5, 164.5, 330.5, 582.5, 938.5, 1416.5],
        ),
        case("logspace", [], &[], |_| Array::logspace(-2., 2., 5, true), &[0.01, 0.1, 1., 10., 100.]),
        case("logspace", [], &[], |_| Array::logspace(0., 4., 4, false), &[1., 10., 100., 1000.]),
    ]
}

fn padding_and_repeats() -> Vec<Case> {
    let m = Array::from([[1., 2., 3.], [4., 5., 6.], [7., 8., 9.], [10., 11., 12.]]);
    let pad = |name, mode, along_rows: [i32; 6], of_vector: [i32; 15]| {
        // each row holds the columns that NumPy takes of a row of `m`
        let rows = (0..4).flat_map(|row| along_rows.map(|column| f64::from(3 * row + column)));
        let rows: Vec<f64> = rows.collect();
        [
            case(name, [m.clone()], &[(0, 0)], move |x| x[0].pad_with([(0, 0), (2, 1)], mode), &rows),
            case(
                name,
                [Array::from([1., 2., 3.])],
                &[],
                move |x| x[0].pad_with([(5, 7)], mode),
                &of_vector.map(f64::from),
            ),
            case(name, [Array::from([4.])], &[], move |x| x[0].pad_with([(2, 1)], mode), &[4.; 4]),
        ]
    };
    let mut cases = Vec::new();
    cases.extend(pad(
        "pad, edge",
        PadMode::Edge,
        [1, 1, 1, 2, 3, 3],
        [1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3, 3, 3],
    ));
    cases.extend(pad(
        "pad, wrap",
        PadMode::Wrap,
        [2, 3, 1, 2, 3, 1],
        [2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1],
    ));
    cases.extend(pad(
        "pad, reflect",
        PadMode::Reflect,
        [3, 2, 1, 2, 3, 2],
        [2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2, 1, 2],
    ));
    cases.extend(pad(
        "pad, symmetric",
        PadMode::Symmetric,
        [2, 1, 1, 2, 3, 3],
        [2, 3, 3, 2, 1, 1, 2, 3, 3, 2, 1, 1, 2, 3, 3],
    ));
    cases.extend([
        case(
            "repeat by counts, axis=1",
            [m.clone(), Array::from([2, 0, 1])],
            &[(0, 0)],
            |x| x[0].repeat_by(&x[1], 3, 1),
            &[1., 1., 3., 4., 4., 6., 7., 7., 9., 10., 10., 12.],
        ),
        case(
            "repeat by uint8 counts",
            [Array::from([1., 2., 3.]), Array::from([1u8, 3, 2])],
            &[],
            |x| x[0].repeat_by(&x[1], 6, 0),
            &[1., 2., 2., 2., 3., 3.],
        ),
        case(
            "split into equal parts",
            [m],
            &[(0, 0)],
            |x| x[0].split_equal(3, 1)[1].clone(),
            &[2., 5., 8., 11.],
        ),
    ]);
    cases
}

fn matrix_functions() -> Vec<Case> {
    let a = Array::from([0., 1., -2., -3., 10., 0.5, 0., -4., 0., 0., 0., 0., 1., 2., 3., 4.]);
    let mut expm = case(
        "expm",
        [a.reshape([4, 2, 2])],
        &[(0, 0)],
        |x| x[0].expm(),
        &[
            0.6004235991062717,
            0.23254415793482947,
            -0.46508831586965843,
            -0.09720887469821604,
            22026.465794806718,
            786.6588385417082,
            0.0,
            0.01831563888873418,
            1.0,
            0.0,
            0.0,
            1.0,
            51.968956198707545,
            74.73656456700692,
            112.10484685051041,
            164.073803049218,
        ],
    );
    expm.tolerance = 1e-11;
    expm.has_equal_bits = false;
    vec![expm]
}

/// Returns the bits of the elements as float64; all NaN are equal.
fn bits(x: &Array) -> Result<Vec<u64>> {
    let values = x.astype(F64).to_vec::<f64>()?;
    Ok(values.into_iter().map(|v| if v.is_nan() { NAN.to_bits() } else { v.to_bits() }).collect())
}

fn check(case: &Case, args: Vec<Array>, place: &str) -> Result<()> {
    let close = |x: f64, y: f64| {
        x == y || x.is_nan() && y.is_nan() || (x - y).abs() <= case.tolerance * y.abs().max(1e-3)
    };
    let right = |x: &Array, how: &str| -> Result<()> {
        let values = x.astype(F64).to_vec::<f64>()?;
        let same = values.len() == case.expected.len()
            && values.iter().zip(&case.expected).all(|(x, y)| close(*x, *y));
        assert!(same, "{}, {place}, {how}: {values:?} instead of {:?}", case.name, case.expected);
        Ok(())
    };
    let eager = (case.call)(&args);
    right(&eager, "eagerly")?;
    let run = |engine| jit(|args: Vec<Array>| (case.call)(&args)).engine(engine).call(&args);
    let found = run(EngineKind::Lockstep)?;
    right(&found, "compiled")?;
    assert_eq!(type_of(&found).to_string(), type_of(&eager).to_string(), "{}, {place}", case.name);
    assert_eq!(bits(&run(EngineKind::Threads)?)?, bits(&found)?, "{}, {place}, threads", case.name);
    // the reference adds the terms of products in another order
    let reference = run(EngineKind::Reference)?;
    right(&reference, "in the reference engine")?;
    if case.has_equal_bits {
        assert_eq!(bits(&reference)?, bits(&found)?, "{}, {place}, reference", case.name);
    }
    Ok(())
}

#[test]
fn values_are_those_of_numpy() -> Result<()> {
    let explicit = Mesh::new([("X", 2)])?;
    let auto = Mesh::auto([("X", 2)])?;
    let all =
        [division(), parts_of_floats(), comparisons(), calculus(), padding_and_repeats(), matrix_functions()];
    for case in all.iter().flatten() {
        check(case, case.args.clone(), "unsharded")?;
        for (operand, dim) in case.sharded {
            for mesh in [&explicit, &auto] {
                let mut args = case.args.clone();
                let spec = if *dim == 0 { p!["X"] } else { p![_, "X"] };
                args[*operand] = args[*operand].put(mesh, spec);
                check(case, args, &format!("operand {operand} is sharded along {dim} over {mesh:?}"))?;
            }
        }
    }
    Ok(())
}

/// A derivative of each function that has one, by central differences.
#[test]
fn derivatives_are_those_of_the_functions() -> Result<()> {
    type Function = fn(&Array) -> Array;
    let functions: [(&str, Function); 9] = [
        ("remainder", |x| x.remainder(0.7)),
        ("floor_divide", |x| x.floor_divide(0.7)),
        ("rint", |x| x.rint()),
        ("nan_to_num", |x| x.nan_to_num()),
        ("gradient", |x| x.gradient(0.5, 0)),
        ("convolve", |x| x.convolve(Array::from([1., -2., 0.5]), ConvolveMode::Same)),
        ("polyval", |x| x.polyval(Array::from([1., -2., 0.5]))),
        ("pad_with", |x| x.pad_with([(2, 3)], PadMode::Reflect)),
        ("repeat_by", |x| x.repeat_by(&Array::from([2, 1, 0, 3]), 6, 0)),
    ];
    let x = Array::from([0.3, -1.2, 2.2, 0.9]);
    let mesh = Mesh::new([("X", 2)])?;
    for (name, f) in functions {
        let weights = Array::arange_of(F64.array_type([f(&x).dim_size(0)]), 1, 1);
        let loss = |x: &Array| (f(x) * &weights).sum(..);
        let slopes = grad(&x, |x| loss(&x)).to_vec::<f64>()?;
        let step = 1e-6;
        let unit = |k: usize| Array::arange(0..4).eq(k).astype(F64) * step;
        for (k, slope) in slopes.iter().enumerate() {
            let rise = (loss(&(&x + unit(k))) - loss(&(&x - unit(k)))).item::<f64>()?;
            assert!((rise / (2.0 * step) - slope).abs() < 1e-5, "{name}: {slope} at {k}");
        }
        // one function for each row of a matrix, and the same values on two devices
        let rows = stack([&x, &(&x * 2.0)], 0);
        let mapped = vmap(&rows, |row| f(&row)).to_vec::<f64>()?;
        let looped = [f(&x), f(&(&x * 2.0))].map(|y| y.to_vec::<f64>().unwrap()).concat();
        assert!(Array::from(mapped).allclose(&Array::from(&looped[..]))?, "{name}");
        let split = vmap(rows.put(&mesh, p!["X"]), |row| f(&row));
        assert!(split.ravel().allclose(&Array::from(looped))?, "{name} over X");
    }
    Ok(())
}

#[test]
fn jacobians_agree_in_both_modes() -> Result<()> {
    let x = Array::from([[0.5, -1.], [2., 0.25]]);
    let f = |x: Array| stack([x.sum(0), x.prod(0), (x.sin() * &x).sum(0)], 0);
    let (reverse, forward) = (jacrev(&x, f), jacfwd(&x, f));
    assert_eq!(type_of(&reverse), "float64[3,2,2,2]");
    assert!(reverse.allclose(&forward)?);
    let h = hessian(&x, |x| (x.square() * x.sum(..)).sum(..));
    assert_eq!(type_of(&h), "float64[2,2,2,2]");
    // ∂²/∂xᵢ∂xⱼ of Σx²·Σx = 2δᵢⱼ·Σx + 2xᵢ + 2xⱼ
    let (v, s) = (x.ravel(), x.sum(..).item::<f64>()?);
    let expected = Array::eye(F64.array_type([4, 4]), 0) * (2.0 * s) + (v.expand_dims(1) + &v) * 2.0;
    assert!(h.reshape([4, 4]).allclose(&expected)?);
    // a sharded point gives the same numbers
    let mesh = Mesh::new([("X", 2)])?;
    let placed = x.put(&mesh, p![_, "X"]);
    assert!(jacrev(&placed, f).allclose(&reverse)?);
    assert!(jacfwd(&placed, f).allclose(&reverse)?);
    let failed = jacrev(x.reshape([3]), f);
    assert!(failed.ty().is_err());
    Ok(())
}

#[test]
fn maps_run_in_batches() -> Result<()> {
    let xs = Array::arange(0..14).reshape([7, 2]);
    let sums = map(&xs, |x| x.sum(..)).to_vec::<i32>()?;
    for size in [1, 2, 3, 7, 20] {
        let options = MapOptions::default().batch_size(size);
        let found = map_with((&xs, &xs), |(x, y)| (x.sum(..), y * 2), options);
        assert_eq!(found.0.to_vec::<i32>()?, sums, "batches of {size}");
        assert_eq!(found.1.to_vec::<i32>()?, (&xs * 2).to_vec::<i32>()?);
        let traced = jit(|xs: &Array| map_with(xs, |x| x.sum(..), options)).call(&xs)?;
        assert_eq!(traced.to_vec::<i32>()?, sums);
    }
    let none = map_with(&xs, |x| x, MapOptions::default().batch_size(0));
    assert!(none.ty().unwrap_err().unquoted().contains("set a `batch_size` of at least 1"));
    Ok(())
}

/// Bad arguments are errors that name the method and what to write.
#[test]
fn bad_arguments_are_errors() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let x = Array::ones([4, 6]);
    let split = x.put(&mesh, p![_, "X"]);
    let v = Array::ones([4]);
    let cases = [
        (x.split_equal(4, 1)[3].clone(), "split_equal", "give their sizes: `x.split([…], d)`"),
        (x.split_equal(0, 1)[0].clone(), "split_equal", "not divisible into 0 equal pieces"),
        (x.split_equal(2, 2)[0].clone(), "split_equal", "no dimension 2"),
        (x.argmax([0, 1, 0]), "argmax", "named twice"),
        (Array::ones([2, 2, 2]).argmin([0, 1]), "argmin", "one dimension or all of them"),
        (Array::ones([2, 0]).argmax(..), "argmax", "empty"),
        (split.pad_with([(0, 0), (1, 1)], PadMode::Wrap), "pad_with", "`.reshard(p![_, _])`"),
        (x.pad_with([(1, 1)], PadMode::Edge), "pad_with", "(before, after) for each dimension"),
        (Array::ones([0]).pad_with([(1, 1)], PadMode::Edge), "pad_with", "pad with a value"),
        (v.pad_with([(1 << 40, 0)], PadMode::Wrap), "pad_with", "`x.tile([…])`"),
        (v.pad_with([(usize::MAX, 0)], PadMode::Edge), "pad_with", "addressed"),
        (x.repeat_by(&Array::from([1, 2]), 3, 0), "repeat_by", "a vector of 4 integers"),
        (x.repeat_by(&Array::ones([4]), 3, 0), "repeat_by", "a vector of 4 integers"),
        (split.repeat_by(&Array::from([1; 6]), 6, 1), "repeat_by", "`.reshard(p![_, _])`"),
        (v.repeat_by(&Array::from([1; 4]).put(&mesh, p!["X"]), 4, 0), "repeat_by", "`.reshard(p![_])`"),
        (Array::from([1u8, 2, 3]).bitcast(U16), "bitcast", "a last dimension of size 2"),
        (Array::from([[1u8, 2]]).put(&mesh, p![_, "X"]).bitcast(U16), "bitcast", "`.reshard(p![_, _])`"),
        (Array::from([true]).bitcast(U16), "bitcast", "bool"),
        (v.cross(&v, 0), "cross", "not 3"),
        (x.convolve(&v, ConvolveMode::Full), "convolve", "vectors with elements"),
        (v.convolve(Array::ones([0]), ConvolveMode::Same), "convolve", "vectors with elements"),
        (v.convolve(Array::from([1, 2]), ConvolveMode::Same), "convolve", "float32"),
        (Array::ones([1]).gradient(1.0, 0), "gradient", "two elements"),
        (v.polyval(Array::from([1, 2])), "polyval", "`.astype(F32)`"),
        (v.polyval(v.put(&mesh, p!["X"])), "polyval", "`.reshard(p![_])`"),
        (x.floor_divide(&v), "floor_divide", "float32[4,6]"),
        (x.remainder(&v), "remainder", "float32[4,6]"),
        (v.gt(0.0).floor_divide(2), "floor_divide", "bool"),
        (v.astype(I32).frexp().0, "frexp", "int32"),
        (x.isclose(&v), "isclose", "float32[4,6]"),
        (Array::ones([2, 2, 2]).corrcoef(), "corrcoef", "rank 3"),
        (v.remainder(Array::from([1, 2, 3, 4])), "remainder", "int32"),
    ];
    for (array, name, text) in cases {
        let error = array.ty().unwrap_err().unquoted();
        assert!(error.contains(name) && error.contains(text), "{name}: expected {text:?} in\n{error}");
    }
    let error = Array::from([1]).array_equal(&Array::from([1f32])).unwrap_err().unquoted();
    assert!(error.contains("`.astype(I32)`"), "{error}");
}

#[test]
fn sizes_need_no_question_mark() -> Result<()> {
    let x = Array::ones([4, 2]);
    assert_eq!((x.dim_size(0), x.dim_size(-1), x.dim_size(2)), (4, 2, 0));
    assert_eq!(x.reshape([3]).dim_size(0), 0);
    Ok(())
}

#[test]
fn new_dimensions_count_from_the_end() -> Result<()> {
    let x = Array::ones([4, 2]);
    assert_eq!(x.expand_dims(-1).shape()?, [4, 2, 1]);
    assert_eq!(x.expand_dims(-3).shape()?, [1, 4, 2]);
    for error in [x.expand_dims(-4), x.expand_dims([0, -9]), x.sum(-3), x.squeeze(-5), x.roll(1, -7)] {
        let text = error.ty().unwrap_err().unquoted();
        assert!(!text.contains("18446744"), "{text}");
    }
    Ok(())
}

#[test]
fn closeness_of_whole_arrays() -> Result<()> {
    let x = Array::from([1.0, INF]);
    assert!(x.allclose(&x)?);
    assert!(!Array::from(1.0).allclose(&Array::from(INF))?);
    assert!(!Array::from(1.0).astype(C64).allclose(&Array::from(INF).astype(C64))?);
    assert!(x.array_equal(&x)? && !x.array_equal(&Array::from([1.0]))?);
    assert!(!Array::from(NAN).array_equal(&Array::from(NAN))?);
    let mesh = Mesh::new([("X", 2)])?;
    assert!(x.put(&mesh, p!["X"]).array_equal(&x)?);
    Ok(())
}

#[test]
fn a_precision_is_obeyed() -> Result<()> {
    let x = Array::from([1.5f32, -0.123456, 12.0]);
    assert_eq!(format!("{x:.2}"), "[ 1.50 -0.12 12.00]");
    assert_eq!(format!("{x:.0}"), "[ 2 -0 12]");
    assert_eq!(format!("{:.2}", Array::from(1.23456f32)), "1.23");
    let s = Array::from(1.5f32);
    assert_eq!(format!("{s:>6}|{s:<6}|{s:^6}|{s:6.2}"), "   1.5|1.5   | 1.5  |  1.50");
    assert_eq!(format!("{:.1}", Array::from([f32::NAN, 1e10])), "[          nan 10000000000.0]");
    assert_eq!(format!("{:.2}", Array::from([1, 20])), "[ 1 20]");
    assert_eq!(format!("{:.1}", Array::from([1.0f64]).complex(0.25)), "[1.0+0.2j]");
    Ok(())
}

#[test]
fn ranges_of_indices() -> Result<()> {
    let x = Array::arange(0..8);
    let i = Array::from(2);
    let taken = |index| x.slice(index).to_vec::<i32>();
    assert_eq!(taken(ix![&i..; 3])?, [2, 3, 4]);
    assert_eq!(taken(ix![(2 * &i)..; 3])?, [4, 5, 6]);
    assert_eq!(taken(ix![&i + 1..; 2])?, [3, 4]);
    assert_eq!(taken(ix![1..; 3])?, [1, 4, 7]);
    assert_eq!(taken(ix![-1..; -3])?, [7, 4, 1]);
    let (n, size) = (3usize, 2);
    assert_eq!(taken(ix![n..; size])?, [3, 5, 7]);
    assert_eq!(taken(ix![n..n + 2])?, [3, 4]);
    let by_reference = &i;
    assert_eq!(taken(ix![by_reference..; 2])?, [2, 3]);
    assert_eq!(taken(ix![i..; 2])?, [2, 3]);
    Ok(())
}

#[test]
fn correlations_of_sharded_observations() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let r = matrix().corrcoef();
    for (spec, out) in [(p![_, "X"], p![_, _]), (p!["X"], p!["X", _])] {
        let x = matrix().put(&mesh, spec);
        assert!(x.corrcoef_to(out).allclose(&r)?, "{spec}");
    }
    let error = matrix().put(&mesh, p![_, "X"]).corrcoef().ty().unwrap_err().unquoted();
    assert!(error.contains("x.corrcoef_to("), "{error}");
    Ok(())
}

#[test]
fn a_selection_says_how_to_reshard_each_operand() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let (mask, a, b) = (Array::ones([4, 2]).gt(0.0), Array::ones([4, 2]), Array::ones([4, 2]));
    let (mask, a, b) = (mask.put(&mesh, p!["X"]), a.put(&mesh, p![]), b.put(&mesh, p![]));
    let error = mask.select(&a, &b).ty().unwrap_err().unquoted();
    for words in ["operand 0", "operand 1", "operand 2", ".reshard(p![\"X\", _])", ".reshard(p![_, _])"] {
        assert!(error.contains(words), "{words} in {error}");
    }
    Ok(())
}
