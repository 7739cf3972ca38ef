//! Windows: convolutions and window reductions against plain loops, with every sharding, their
//! gradients and errors.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{ConvOptions, EngineKind, ErrorKind, Padding, WindowOptions, vjp};

#[test]
fn elements_of_all_types_are_convolved_and_sizes_of_0_are_nothing_special() -> Result<()> {
    let w = Array::from([1.0f32, 2.0, 1.0]).reshape([1, 1, 3]);
    for dtype in [I8, U8, I16, I32, U32, I64, F16, BF16, F32, F64] {
        let x = Array::arange_of(dtype.array_type([6]), 0, 1).reshape([1, 1, 6]);
        let y = x.conv(w.astype(dtype)).astype(F64);
        assert_eq!(y.to_vec::<f64>()?, [4.0, 8.0, 12.0, 16.0], "{dtype}");
    }
    // Sums of 16-bit floats use a 32-bit accumulator, and integers wrap.
    let ones = Array::ones(BF16.array_type([1, 1, 600]));
    let y = ones.conv(Array::ones(BF16.array_type([1, 1, 257])));
    assert_eq!(y.astype(F32).to_vec::<f32>()?[0], 256.0);
    let y =
        ones.conv_with(Array::ones(BF16.array_type([1, 1, 257])), ConvOptions::default().accum_dtype(F32));
    assert_eq!(y.to_vec::<f32>()?[0], 257.0);
    let hundred = Array::full(I8.array_type([1, 1, 3]), 100);
    assert_eq!(hundred.conv(hundred.slice(ix![.., .., ..2])).to_vec::<i8>()?, [32, 32]);
    // A window larger than the array, no features, no positions, and no images.
    assert_eq!(Array::ones([1, 1, 2]).conv(Array::ones([3, 1, 5])).shape()?, [1, 3, 0]);
    assert_eq!(Array::ones([1, 0, 3]).conv(Array::ones([2, 0, 2])).to_vec::<f32>()?, [0.0; 4]);
    assert_eq!(Array::ones([0, 2, 3]).conv(Array::ones([2, 2, 2])).shape()?, [0, 2, 2]);
    let far = ConvOptions::default().padding([(9, 9)]).strides([20]);
    assert_eq!(Array::ones([1, 1, 2]).conv_with(Array::ones([1, 1, 3]), far).to_vec::<f32>()?, [0.0]);
    // Without spatial dimensions it is a matrix product.
    let (x, w) = (Array::from([[1.0f32, 2.0]]), Array::from([[3.0f32, 4.0], [5.0, 6.0]]));
    assert_eq!(x.conv(&w).to_vec::<f32>()?, [11.0, 17.0]);
    // Three spatial dimensions.
    let (x, w) = (Array::ones([1, 2, 3, 4, 5]), Array::ones([1, 2, 2, 2, 2]));
    let y = x.conv(&w);
    assert_eq!((y.shape()?, y.to_vec::<f32>()?), ([1, 1, 2, 3, 4].into(), vec![16.0; 24]));
    Ok(())
}

#[test]
fn many_examples_and_depthwise_filters() -> Result<()> {
    let (x, w) =
        (Key::new(0).normal(F64.array_type([3, 2, 4, 8])), Key::new(1).normal(F64.array_type([3, 5, 4, 3])));
    let how = || ConvOptions::default().padding([(1, 2)]).strides([2]);
    let each = |k: i64| x.slice(ix![k]).conv_with(w.slice(ix![k]), how());
    let want = stack([each(0), each(1), each(2)], 0).to_vec::<f64>()?;
    let near = |got: &Array, want: &[f64]| -> Result<()> {
        let got = got.to_vec::<f64>()?;
        assert!(got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12));
        Ok(())
    };
    near(&vmap((&x, &w), |(x, w): (Array, Array)| x.conv_with(&w, how())), &want)?;
    let one = w.slice(ix![0]);
    let want = stack((0..3i64).map(|k| x.slice(ix![k]).conv_with(&one, how())), 0).to_vec::<f64>()?;
    near(&vmap(&x, |x: Array| x.conv_with(&one, how())), &want)?;
    let image = x.slice(ix![0]);
    let want = stack((0..3i64).map(|k| image.conv_with(w.slice(ix![k]), how())), 0).to_vec::<f64>()?;
    near(&vmap(&w, |w: Array| image.conv_with(&w, how())), &want)?;
    // One filter for each feature.
    let depthwise = Key::new(2).normal(F64.array_type([4, 1, 3]));
    let want =
        (0..4i64).map(|k| image.slice(ix![.., k..k + 1]).conv_with(depthwise.slice(ix![k..k + 1]), how()));
    let want = concat(want, 1).to_vec::<f64>()?;
    near(&image.conv_with(&depthwise, how().groups(4)), &want)
}

/// Windows entirely in the padding cost nothing, however far they extend.
#[test]
fn windows_far_away_are_the_fill() -> Result<()> {
    let (x, w) = (Array::ones([2, 4, 8]), Array::ones([6, 4, 3]));
    let far = ConvOptions::default().padding([(1 << 38, 1 << 38)]).strides([1 << 38]);
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let f = jit(|x: &Array| x.conv_with(&w, far.clone())).engine(engine);
        let y = f.call(&x)?;
        assert_eq!(type_of(&y), "float32[2,6,3]");
        assert_eq!(y.to_vec::<f32>()?, [0.0, 12.0, 0.0].repeat(12));
    }
    Ok(())
}

#[test]
fn what_is_rejected_says_what_to_write() {
    let (x, w) = (Array::ones([2, 4, 8]), Array::ones([6, 4, 3]));
    let how = ConvOptions::default;
    let rejected = |y: Array, kind: ErrorKind, word: &str| {
        let error = y.ty().expect_err(word);
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.unquoted();
        assert!(text.contains(word) && text.contains("help: "), "{text}");
    };
    rejected(x.conv(Array::ones([6, 3, 3])), ErrorKind::Shape, "contracting dimensions must be equal");
    rejected(x.conv(Array::ones([6, 4])), ErrorKind::Shape, "rank");
    rejected(x.conv(w.astype(F64)), ErrorKind::Dtype, "float64");
    rejected(x.astype(Bool).conv(w.astype(Bool)), ErrorKind::Dtype, "bool");
    rejected(x.conv_with(&w, how().strides([1, 1])), ErrorKind::Shape, "2 strides for 1");
    rejected(x.conv_with(&w, how().strides([0])), ErrorKind::Shape, "stride");
    rejected(x.conv_with(&w, how().dilation([0])), ErrorKind::Shape, "dilation");
    rejected(x.conv_with(&w, how().base_dilation([0])), ErrorKind::Shape, "dilation");
    rejected(x.conv_with(&w, how().padding([(1, 1), (0, 0)])), ErrorKind::Shape, "2 paddings for 1");
    rejected(x.conv_with(&w, how().padding([(-5, -5)])), ErrorKind::Shape, "removes more elements");
    rejected(x.conv_with(&w, how().padding([(i64::MAX, 1)])), ErrorKind::Shape, "counted");
    rejected(x.conv_with(&w, how().padding([(i64::MIN, 1)])), ErrorKind::Shape, "removes more elements");
    rejected(x.conv_with(&w, how().strides([usize::MAX])), ErrorKind::Shape, "counted");
    let far = how().padding([(1 << 38, 1 << 38)]).strides([1 << 19]).dilation([1 << 19]);
    rejected(x.conv_with(&w, far), ErrorKind::Shape, "smaller steps");
    rejected(
        x.conv_with(&w, how().padding(Padding::Same).base_dilation([2])),
        ErrorKind::Shape,
        "must be given explicitly",
    );
    rejected(x.conv_with(&w, how().groups(0)), ErrorKind::Shape, "0 groups");
    rejected(x.conv_with(&w, how().groups(3)), ErrorKind::Shape, "3 groups do not divide");
    rejected(x.conv_with(&w, how().groups(2).batch_groups(2)), ErrorKind::Shape, "at once");
    rejected(x.conv_with(&w, how().batch_groups(4)), ErrorKind::Shape, "4 groups do not divide the batch");
    rejected(x.conv_with(&w, how().layout("NC", "OIH", "NCH")), ErrorKind::Shape, "names 2 dimensions");
    rejected(x.conv_with(&w, how().layout("NCC", "OIH", "NCH")), ErrorKind::Shape, "twice");
    rejected(x.conv_with(&w, how().layout("NCW", "OIH", "NCH")), ErrorKind::Shape, "spatial");
    rejected(x.conv_with(&w, how().layout("XCH", "OIH", "NCH")), ErrorKind::Shape, "no N");
    rejected(x.conv_with(&w, how().accum_dtype(I32)), ErrorKind::Dtype, "not summed as int32");
    rejected(x.conv_transpose_with(&w, how().base_dilation([2])), ErrorKind::Shape, "strides");
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).expect("a mesh");
    let features = x.put(&mesh, p![_, "X", _]);
    rejected(
        features.conv_with(Array::ones([6, 2, 3]), how().groups(2)),
        ErrorKind::Sharding,
        "grouped features must be unsharded",
    );
    rejected(features.conv(w.put(&mesh, p![_, "X", _])), ErrorKind::Sharding, "contracted");
    rejected(x.put(&mesh, p![_, _, ("X", "Y")]).conv(&w), ErrorKind::Sharding, "does not divide");
    rejected(x.conv(Array::ones([6, 4, 4]).put(&mesh, p![_, _, "X"])), ErrorKind::Sharding, "unsharded");
    let window = |w: &[usize], how: WindowOptions| x.window_sum_with(w, how);
    rejected(window(&[1, 1], WindowOptions::default()), ErrorKind::Shape, "the window has 2 sizes");
    rejected(window(&[1, 0, 1], WindowOptions::default()), ErrorKind::Shape, "size 0");
    rejected(window(&[1, 2, 1], WindowOptions::default().strides([1, 0, 1])), ErrorKind::Shape, "stride");
    rejected(window(&[1, 2, 1], WindowOptions::default().padding([(1, 1)])), ErrorKind::Shape, "1 paddings");
    rejected(x.window_and([1, 2, 2]), ErrorKind::Dtype, "float32");
    rejected(x.astype(Bool).window_sum([1, 2, 2]), ErrorKind::Dtype, "bool");
    rejected(x.astype(I32).avg_pool([2]), ErrorKind::Dtype, "no mean");
    rejected(x.max_pool([1, 1, 1, 1]), ErrorKind::Shape, "4 sizes");
    rejected(x.put(&mesh, p![_, _, "X"]).window_max([1, 1, 2]), ErrorKind::Sharding, "does not divide");
}

/// Returns the elements of each window of a `[5, 7]` array by the definition, with their indices,
/// row-major.
fn windows_of(taps: [usize; 2], strides: [usize; 2], low: [i64; 2], count: [usize; 2]) -> Vec<Vec<usize>> {
    let mut all = Vec::new();
    for (a, b) in (0..count[0]).flat_map(|a| (0..count[1]).map(move |b| (a, b))) {
        let steps = (0..taps[0]).flat_map(|s| (0..taps[1]).map(move |t| (s, t)));
        let at = |(s, t): (usize, usize)| {
            let (p, q) = ((strides[0] * a + s) as i64 - low[0], (strides[1] * b + t) as i64 - low[1]);
            ((0..5).contains(&p) && (0..7).contains(&q)).then_some((p * 7 + q) as usize)
        };
        all.push(steps.filter_map(at).collect());
    }
    all
}

/// The windows of one dimension: size, stride, dilation and padding.
type Along = (usize, usize, usize, (usize, usize));

/// Returns the gradient of `sum(window_max · weights)` by the definition, and the number of
/// windows, over dimensions 1 and 2 of an array of these sizes. The last dimension has no windows.
/// Sums are rounded to float32.
fn gradient_of_extremes(
    [p, h, w, c]: [usize; 4],
    [a, b]: [Along; 2],
    x: &[f64],
    weight: impl Fn(usize) -> f64,
) -> (Vec<f64>, [usize; 2]) {
    let count = |n: usize, (taps, stride, dilation, (low, high)): Along| {
        (n + low + high - (taps - 1) * dilation - 1) / stride + 1
    };
    let position = |j: usize, t: usize, n: usize, (_, stride, dilation, (low, _)): Along| {
        (j * stride + t * dilation).checked_sub(low).filter(|k| *k < n)
    };
    let [m, n] = [count(h, a), count(w, b)];
    let mut g = vec![0.0; x.len()];
    for k in 0..p * m * n * c {
        let (q, i, j, e) = (k / (m * n * c), k / (n * c) % m, k / c % n, k % c);
        let steps = (0..a.0 * b.0).filter_map(|t| {
            let (i, j) = (position(i, t / b.0, h, a)?, position(j, t % b.0, w, b)?);
            Some(((q * h + i) * w + j) * c + e)
        });
        let first = steps.reduce(|a, b| if x[a].is_nan() || x[a] >= x[b] { a } else { b });
        if let Some(first) = first {
            g[first] = f64::from((g[first] + weight(k)) as f32);
        }
    }
    (g, [m, n])
}

#[test]
fn the_first_extreme_has_the_gradient_at_all_strides() -> Result<()> {
    let whole = |n: usize| (n, n, 1, (0, 0));
    let cases: [([usize; 4], [Along; 2]); 10] = [
        ([3, 16, 16, 1], [whole(2); 2]),
        ([2, 7, 9, 1], [whole(2), whole(3)]),
        ([2, 9, 8, 1], [(2, 3, 1, (0, 0)), (1, 2, 1, (0, 0))]),
        ([2, 9, 11, 1], [(2, 2, 1, (1, 1)), (2, 2, 1, (1, 0))]),
        ([2, 9, 9, 1], [(3, 2, 1, (1, 1)); 2]),
        ([1, 12, 13, 1], [(2, 4, 2, (0, 1)), (2, 3, 2, (1, 0))]),
        ([1, 8, 5, 1], [(2, 2, 1, (0, 0)), (3, 1, 1, (1, 1))]),
        ([2, 8, 6, 5], [whole(2); 2]),
        ([2, 5, 7, 3], [(2, 2, 1, (1, 0)), (3, 3, 1, (0, 2))]),
        ([1, 1, 40, 2], [whole(1), whole(2)]),
    ];
    for (sizes, along) in cases {
        let count: usize = sizes.iter().product();
        // many elements are equal, and some are NaN or zeros of both signs
        let element = |k: usize| match k * 7 % 31 {
            3 => f64::NAN,
            5 => -0.0,
            r => (r % 4) as f64,
        };
        let numbers: Vec<f64> = (0..count).map(element).collect();
        let weight = |k: usize| [1.5, -0.0, -2.0, 0.25][k % 4] * (k % 5) as f64;
        let (want, [m, n]) = gradient_of_extremes(sizes, along, &numbers, weight);
        let weights: Vec<f64> = (0..sizes[0] * m * n * sizes[3]).map(weight).collect();
        for dtype in [F32, F64, BF16] {
            let x = Array::from(numbers.clone()).reshape(sizes).astype(dtype);
            let weights = Array::from(weights.clone()).reshape([sizes[0], m, n, sizes[3]]).astype(dtype);
            let step = |x: &Array, weights: &Array, last: bool| {
                let [a, b] = along;
                let list = |f: fn(Along) -> usize| {
                    if last { vec![1, 1, f(a), f(b)] } else { vec![1, f(a), f(b), 1] }
                };
                let mut padding = vec![(0, 0), (a.3.0 as i64, a.3.1 as i64), (b.3.0 as i64, b.3.1 as i64)];
                padding.insert(if last { 1 } else { 3 }, (0, 0));
                let how = WindowOptions::default().strides(list(|w| w.1)).dilation(list(|w| w.2));
                let how = how.padding(padding);
                let (_, back) = vjp(x, |x: Array| x.window_max_with(list(|w| w.0), how.clone()));
                back.call(weights)
            };
            let f = move |x: &Array, w: &Array| {
                let turned = step(&x.moveaxis(3, 1), &w.moveaxis(3, 1), true);
                (step(x, w, false), turned.moveaxis(1, 3))
            };
            let mesh = Mesh::auto([("X", 2), ("Y", 2)])?;
            let split = |spec| (x.put(&mesh, spec), weights.clone());
            let cases = [
                (Lockstep, (x.clone(), weights.clone())),
                (EngineKind::Reference, (x.clone(), weights.clone())),
                (Lockstep, split(p!["X", "Y"])),
                (Threads, split(p![_, "X", "Y"])),
            ];
            // the other types run on one of these, another one for each shape
            let some = if dtype == F32 { 0..4 } else { sizes[1] % 4..sizes[1] % 4 + 1 };
            for (engine, (x, w)) in cases.into_iter().skip(some.start).take(some.len()) {
                let (first, turned) = jit(f).engine(engine).call((&x, &w))?;
                for (g, name) in [(first, "last"), (turned, "first")] {
                    let g = g.astype(F64).to_vec::<f64>()?;
                    let same = g.iter().zip(&want).all(|(a, b)| a == b && a.is_sign_negative() == (*a < 0.0));
                    assert!(same, "{sizes:?} by {along:?}, {dtype}, features {name}, {engine:?}");
                }
            }
        }
    }
    Ok(())
}

/// Returns `window_max` over dimensions 1 and 2.
fn max_of_windows(x: &Array, along: [Along; 2]) -> Array {
    let list = |f: fn(Along) -> usize| vec![1, f(along[0]), f(along[1]), 1];
    let pads = along.map(|w| (w.3.0 as i64, w.3.1 as i64));
    let how = WindowOptions::default().strides(list(|w| w.1)).dilation(list(|w| w.2));
    x.window_max_with(list(|w| w.0), how.padding([(0, 0), pads[0], pads[1], (0, 0)]))
}

#[test]
fn cotangents_of_strided_windows_are_added_in_their_order_in_any_fusion() -> Result<()> {
    let cases: [([usize; 4], [Along; 2]); 4] = [
        ([2, 11, 13, 1], [(3, 2, 1, (1, 1)); 2]),
        ([2, 9, 7, 3], [(5, 2, 1, (2, 2)), (4, 2, 1, (1, 1))]),
        ([2, 8, 14, 4], [(3, 1, 1, (1, 1)), (5, 2, 1, (2, 2))]),
        ([1, 12, 12, 1], [(6, 2, 1, (0, 0)), (3, 2, 2, (2, 2))]),
    ];
    for (sizes, along) in cases {
        // few maxima, so that they are in many windows
        let numbers: Vec<f64> =
            (0..sizes.iter().product()).map(|k| f64::from((k * k * 37 % 1009) as u16)).collect();
        let weight = |k: usize| f64::from((0.1 + (k * 7919 % 104729) as f32) / 3.0);
        let (want, [m, n]) = gradient_of_extremes(sizes, along, &numbers, weight);
        let shape = [sizes[0], m, n, sizes[3]];
        let weights: Vec<f64> = (0..shape.iter().product()).map(weight).collect();
        let x = Array::from(numbers).reshape(sizes).astype(F32);
        let weights = Array::from(weights).reshape(shape).astype(F32);
        let back =
            move |x: &Array, weights: &Array| vjp(x, |x: Array| max_of_windows(&x, along)).1.call(weights);
        // the operands and the result are parts of others, transposed or broadcast
        let views = move |x: &Array, weights: &Array| {
            let cut = concat([weights, weights], 2).slice(ix![.., .., ..n as i64]);
            let moved = back(&x.moveaxis(0, 2).moveaxis(2, 0), &cut).moveaxis(3, 1);
            (
                moved.moveaxis(1, 3),
                back(x, &weights.pad(0.0, [(0, 0, 0), (1, 0, 0), (0, 0, 0), (0, 0, 0)]).slice(ix![.., 1..])),
            )
        };
        let mesh = Mesh::auto([("X", 2), ("Y", 2)])?;
        let split = |spec| (x.put(&mesh, spec), weights.clone());
        let cases = [
            (Lockstep, (x.clone(), weights.clone())),
            (Lockstep, split(p!["X", _, "Y"])),
            (Threads, split(p![_, "X", "Y"])),
        ];
        for (engine, (x, w)) in cases {
            let (cut, padded) = jit(views).engine(engine).call((&x, &w))?;
            for (g, name) in
                [(jit(back).engine(engine).call((&x, &w))?, "plain"), (cut, "cut"), (padded, "padded")]
            {
                let g = g.astype(F64).to_vec::<f64>()?;
                assert_eq!(g, want, "{sizes:?} by {along:?}, {name}, {engine:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn windows_are_reduced_and_the_first_extreme_has_the_gradient() -> Result<()> {
    // Many elements are equal, and one is NaN.
    let mut numbers: Vec<f64> = (0..35).map(|i| ((i * 13) % 5) as f64 - 2.0).collect();
    for nan in [None, Some(17)] {
        if let Some(k) = nan {
            numbers[k] = f64::NAN;
        }
        let x = Array::from(numbers.clone()).reshape([5, 7]);
        let options = || WindowOptions::default().strides([2, 1]).padding([(1, 2), (0, 1)]);
        let taps = [3, 2];
        let windows = windows_of(taps, [2, 1], [1, 0], [3, 7]);
        let fold = |f: fn(f64, f64) -> f64, init: f64| -> Vec<f64> {
            windows.iter().map(|w| w.iter().fold(init, |a, k| f(a, numbers[*k]))).collect()
        };
        let most = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
        let least = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) };
        let same = |got: &Array, want: &[f64]| -> Result<()> {
            let got = got.to_vec::<f64>()?;
            assert!(
                got.len() == want.len()
                    && got.iter().zip(want).all(|(a, b)| a == b || a.is_nan() && b.is_nan()),
                "{got:?} for {want:?}"
            );
            Ok(())
        };
        same(&x.window_sum_with(taps, options()), &fold(|a, b| a + b, 0.0))?;
        same(&x.window_prod_with(taps, options()), &fold(|a, b| a * b, 1.0))?;
        same(&x.window_max_with(taps, options()), &fold(most, f64::NEG_INFINITY))?;
        same(&x.window_min_with(taps, options()), &fold(least, f64::INFINITY))?;
        // The first extreme element gets the whole cotangent.
        let ct: Vec<f64> = (0..windows.len()).map(|k| k as f64 + 1.0).collect();
        let best = fold(most, f64::NEG_INFINITY);
        let mut want = vec![0.0; 35];
        for ((w, best), ct) in windows.iter().zip(&best).zip(&ct) {
            let first = w.iter().find(|k| numbers[**k] == *best || numbers[**k].is_nan());
            want[*first.expect("each has elements")] += ct;
        }
        let weights = Array::from(ct).reshape([3, 7]);
        let slope = |x: &Array| {
            let (_, back) = vjp(x, |x: Array| x.window_max_with(taps, options()));
            back.call(&weights)
        };
        same(&slope(&x), &want)?;
        // The same on any mesh, and on both engines.
        for (a, b) in [(2, 1), (2, 2), (5, 1), (4, 2)] {
            let mesh = Mesh::auto([("X", a), ("Y", b)])?;
            for spec in [p!["X", "Y"], p!["Y", "X"]] {
                for engine in [Lockstep, Threads] {
                    let x = x.put(&mesh, spec);
                    let f = jit(|x: &Array| {
                        (x.window_max_with(taps, options()), x.window_sum_with(taps, options()))
                    });
                    let (most_of, sums): (Array, Array) = f.engine(engine).call(&x)?;
                    same(&most_of, &best)?;
                    same(&sums, &fold(|a, b| a + b, 0.0))?;
                    let g: Array = jit(|x: &Array| slope(x)).engine(engine).call(&x)?;
                    same(&g, &want)?;
                }
            }
        }
    }
    let bits = Array::from([6, 3, 5]);
    assert_eq!(bits.window_and([2]).to_vec::<i32>()?, [2, 1]);
    assert_eq!(bits.window_or([2]).to_vec::<i32>()?, [7, 7]);
    // Windows without any element have the identity.
    let far = || WindowOptions::default().padding([(2, 0)]);
    let ints = Array::from([5i8]);
    assert_eq!(ints.window_max_with([1], far()).to_vec::<i8>()?, [i8::MIN, i8::MIN, 5]);
    assert_eq!(ints.window_min_with([1], far()).to_vec::<i8>()?, [i8::MAX, i8::MAX, 5]);
    assert_eq!(ints.window_and_with([1], far()).to_vec::<i8>()?, [-1, -1, 5]);
    let truths = Array::from([false]);
    assert_eq!(truths.window_and_with([1], far()).to_vec::<bool>()?, [true, true, false]);
    assert_eq!(Array::from([7u64]).window_min_with([1], far()).to_vec::<u64>()?, [u64::MAX, u64::MAX, 7]);
    assert_eq!(Array::ones([2]).window_max_with([1], far()).to_vec::<f32>()?[0], f32::NEG_INFINITY);
    Ok(())
}

/// The derivative for an element is the product of the window's other elements, also if one or two
/// of them are 0, with every sharding.
#[test]
fn products_of_windows_have_a_derivative() -> Result<()> {
    let numbers: Vec<f64> = (0..35).map(|i| ((i * 13) % 7) as f64 - 2.0).collect();
    let x = Array::from(numbers.clone()).reshape([5, 7]);
    let (taps, strides, dilation) = ([3, 2], [2, 1], [1, 2]);
    let how = || WindowOptions::default().strides(strides).padding([(1, 2), (0, 2)]);
    let windows = windows_of(taps, strides, [1, 0], [3, 8]);
    let ct = |n: usize| -> Vec<f64> { (0..n).map(|k| k as f64 - 5.0).collect() };
    let mut want = vec![0.0; 35];
    for (w, ct) in windows.iter().zip(ct(24)) {
        for k in w {
            want[*k] += ct * w.iter().filter(|j| *j != k).map(|j| numbers[*j]).product::<f64>();
        }
    }
    let slope = |x: &Array, how: WindowOptions, shape: [usize; 2]| {
        let weights = Array::from(ct(shape[0] * shape[1])).reshape(shape);
        grad(x, |x| (x.window_prod_with(taps, how.clone()) * &weights).sum(..))
    };
    assert_eq!(slope(&x, how(), [3, 8]).to_vec::<f64>()?, want);
    // Strides and dilations: compared with an equivalent formula, the exponential of a sum of
    // logarithms.
    let apart =
        || WindowOptions::default().dilation(dilation).base_dilation([2, 1]).padding([(2, 1), (3, -1)]);
    let positive = (&x + 3.0) * 0.5;
    let logs = grad(&positive, |x| {
        let sum = x.log().window_sum_with(taps, apart());
        let shape = sum.shape()?.to_vec();
        Ok((sum.exp() * Array::from(ct(shape.iter().product())).reshape(shape)).sum(..))
    });
    let shape = positive.window_sum_with(taps, apart()).shape()?.to_vec();
    assert!(slope(&positive, apart(), [shape[0], shape[1]]).allclose_with(&logs, 1e-12, 1e-12)?);
    // A second derivative, where a window has zeros.
    let twice = grad(Array::from([0.0, 3.0, 0.0]), |x| grad(&x, |x| x.window_prod([3]).sum(..)).sum(..));
    assert_eq!(twice.to_vec::<f64>()?, [3.0, 0.0, 3.0]);
    for (a, b) in [(2, 1), (2, 2), (5, 1), (4, 2)] {
        let mesh = Mesh::auto([("X", a), ("Y", b)])?;
        for (spec, engine) in [(p!["X", "Y"], Lockstep), (p!["Y", "X"], Threads)] {
            let f = jit(|x: &Array| slope(x, how(), [3, 8])).engine(engine);
            assert_eq!(f.call(x.put(&mesh, spec))?.to_vec::<f64>()?, want);
        }
    }
    let mesh = Mesh::new([("X", 2)])?;
    let even = Array::from(numbers[..32].to_vec()).reshape([8, 4]);
    let slope = |x: &Array| {
        grad(x, |x| {
            x.window_prod_with([3, 1], WindowOptions::default().padding(Padding::Same)).square().sum(..)
        })
    };
    let on = slope(&even.put(&mesh, p!["X"]));
    assert_eq!(type_of(&on), "float64[8@X,4]");
    assert_eq!(on.to_vec::<f64>()?, slope(&even).to_vec::<f64>()?);
    Ok(())
}

/// Windows of an unreduced value equal those of its sum, also if a single window covers the array
/// and its padding on both sides.
#[test]
fn windows_of_unreduced_values() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    for (n, window, stride) in (1..4usize).flat_map(|n| (1..5).flat_map(move |w| [(n, w, 1), (n, w, 2)])) {
        let x = (Array::arange(0..2 * n as i32) + 1).reshape([n, 2]).astype(DType::F32);
        for padding in [Padding::Same, Padding::Valid] {
            let how = || WindowOptions::default().padding(padding.clone()).strides([stride, 1]);
            let sums = |x: &Array| x.window_sum_with([window, 1], how());
            let parts = sums(&x.put(&mesh, p![].unreduced("X")));
            let label = format!("{n} {window} {stride} {padding:?}");
            assert_eq!(parts.reshard(p![]).to_vec::<f32>()?, sums(&x).to_vec::<f32>()?, "{label}");
        }
    }
    Ok(())
}
