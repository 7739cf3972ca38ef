//! Tests of SIMD kernels, and of kernels with broadcast operands.
//!
//! They are compared with the loops that they replace.

use super::*;

/// Returns numbers of all kinds, including zeros of both signs, infinities and NaN.
fn kinds(n: usize, seed: u32) -> Vec<f32> {
    let rare = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE / 4.0];
    let mut s = seed;
    let mut next = || {
        s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        s >> 8
    };
    (0..n)
        .map(|_| match next() % 40 {
            k @ 0..6 => rare[k as usize],
            _ => next() as f32 / 65536.0 - 128.0,
        })
        .collect()
}
fn same_bits(got: &[f32], expected: &[f32], what: &str) {
    for (i, (g, w)) in got.iter().zip(expected).enumerate() {
        // the processor decides which NaN is the result
        assert!(g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(), "{what}, {i}: {g} for {w}");
    }
}

/// Returns `exp` by the scalar loop of the lowest level that has fused multiply-adds.
fn exp_by_loop(x: &[f32]) -> Vec<f32> {
    let level = IsaLevel::available().filter(|l| *l <= IsaLevel::Avx2).last().unwrap_or(IsaLevel::Base);
    call(float::select::<f32>(ScalarOp::Exp, KernelVariant { level, stream: false }).unwrap(), x, x, 0f32)
}

#[test]
fn one_element_is_as_good_as_its_repetition() {
    type Whole = fn(KernelVariant) -> Option<SliceKernel>;
    let cases: [(BroadcastOp, u8, Whole, Option<ScalarOp>); 9] = [
        (BroadcastOp::Mul, 2, |h| select_at(ScalarOp::Mul, DType::F32, DType::F32, h), None),
        (BroadcastOp::Div, 2, |h| select_at(ScalarOp::Div, DType::F32, DType::F32, h), None),
        (BroadcastOp::Lin2, 2, |h| scaled_sum_at(DType::F32, 2, h), None),
        (BroadcastOp::MulAdd, 2, |h| Some(float::mul_add::<f32>(h)), None),
        (BroadcastOp::MulAdd, 4, |h| Some(float::mul_add::<f32>(h)), None),
        (BroadcastOp::MulAdd, 6, |h| Some(float::mul_add::<f32>(h)), None),
        (BroadcastOp::LinMul, 2, |h| scaled_sum_at(DType::F32, 2, h), Some(ScalarOp::Mul)),
        (BroadcastOp::LinMul, 6, |h| scaled_sum_at(DType::F32, 2, h), Some(ScalarOp::Mul)),
        (BroadcastOp::ExpLin, 2, |h| scaled_sum_at(DType::F32, 2, h), Some(ScalarOp::Exp)),
    ];
    for (fun, same, whole, then) in cases {
        for h in levels() {
            for n in [0, 1, 15, 64, 130, 517].into_iter().take(if cfg!(miri) { 5 } else { 6 }) {
                for offset in 0..2 {
                    let (a, b, c) = (kinds(n, 1), kinds(n, 2), kinds(n, 3));
                    let k = [1.5, -0.75, 0.0, 0.0];
                    let one = |v: &[f32], bit: u8| match same & bit {
                        0 => (v.to_vec(), v.to_vec()),
                        _ => (
                            kinds(9, 4 + u32::from(bit))[8..].to_vec(),
                            vec![kinds(9, 4 + u32::from(bit))[8]; n],
                        ),
                    };
                    let ((b1, bn), (c1, cn)) = (one(&b, 2), one(&c, 4));
                    let run = |kernel: SliceKernel, a: &[f32], b: &[f32], c: &[f32]| {
                        let mut d = Buffer::zeroed(4 * (n + 2)).unwrap();
                        let at = |v: &[f32]| v.as_ptr().cast::<u8>();
                        // SAFETY: the operands have `n` elements, or one if they are broadcast, and
                        // the result has `n` from its offset on.
                        unsafe {
                            let d = d.as_mut_ptr().add(4 * offset);
                            kernel(n, d, at(a), at(b), at(c), &k);
                            fence();
                            std::slice::from_raw_parts(d.cast::<f32>(), n).to_vec()
                        }
                    };
                    // some functions exist only at levels with vector instructions
                    let Some(kernel) = float::broadcast_kernel(fun, same, h) else { continue };
                    let got = run(kernel, &a, &b1, &c1);
                    let mut expected = run(whole(h).unwrap(), &a, &bn, &cn);
                    if let Some(then) = then {
                        let then = select_at(then, DType::F32, DType::F32, h).unwrap();
                        expected = run(then, &expected, &cn, &cn);
                    }
                    same_bits(&got, &expected, &format!("{fun:?} {same} {h:?} {n}"));
                }
            }
        }
    }
}

/// Tests that SIMD loops compute the same bits as scalar loops.
#[test]
#[cfg_attr(miri, ignore = "there is one level")]
fn wide_loops_compute_what_loops_compute() {
    let all: Vec<IsaLevel> = IsaLevel::available().filter(|l| *l >= IsaLevel::Avx2).collect();
    let at = |level| KernelVariant { level, stream: false };
    let x = samples();
    let expected = one32(ScalarOp::Exp, at(IsaLevel::Base), &x);
    for l in &all {
        let two = exp_by_loop(&x);
        same_bits(&one32(ScalarOp::Exp, at(*l), &x), &two, "exp");
        assert!(two.iter().zip(&expected).all(|(x, y)| x.is_nan() == y.is_nan()));
        for n in 0..70 {
            let x = kinds(n, 7 + n as u32);
            same_bits(&one32(ScalarOp::Exp, at(*l), &x), &exp_by_loop(&x), "a few of exp");
        }
        // values at which powers of two go out of range, by themselves and among other values
        for edge in [87f32, -87.0] {
            let near = (0..200).map(|k| f32::from_bits(edge.to_bits() - 100 + k)).collect::<Vec<f32>>();
            same_bits(&one32(ScalarOp::Exp, at(*l), &near), &exp_by_loop(&near), "exp of the largest");
            let many = near.iter().flat_map(|x| [*x; 45]).collect::<Vec<f32>>();
            same_bits(&one32(ScalarOp::Exp, at(*l), &many), &exp_by_loop(&many), "exp of the largest");
        }
    }
    for combine in [Reducer::Max, Reducer::Min] {
        for n in (0..200).chain([512, 1037]) {
            for seed in 0..8 {
                // few distinct values, so that zeros and NaN are frequent results
                let mut x = kinds(n, seed * 1000 + n as u32);
                match seed {
                    0 | 1 => x.retain(|x| !x.is_nan()),
                    2 => x.retain(|x| *x == 0.0),
                    3 => x.retain(|x| *x <= 0.0),
                    4 => x.retain(|x| *x >= 0.0),
                    _ => {}
                }
                let run = |level| {
                    let (m, mut y, p) =
                        (reduce::find(combine, DType::F32, at(level)).unwrap(), [0f32], x.as_ptr());
                    // SAFETY: the slices have the elements that the kernels read and write.
                    unsafe {
                        (m.fold)(x.len(), y.as_mut_ptr().cast(), p.cast(), p.cast(), p.cast(), &[0.0; 4])
                    }
                    y
                };
                for l in &all {
                    same_bits(&run(*l), &run(IsaLevel::Base), &format!("{combine:?} of {n}"));
                }
            }
        }
    }
}

/// Tests that the fold of a row in one loop equals the combined folds of its units.
#[test]
#[cfg_attr(miri, ignore = "there is one level")]
fn rows_are_folded_as_their_units_are() {
    // sums are the same at all levels
    let at = KernelVariant { level: IsaLevel::Base, stream: false };
    let ways = [
        (FoldInput::Elements, Reducer::Add),
        (FoldInput::Elements, Reducer::Max),
        (FoldInput::Elements, Reducer::Min),
        (FoldInput::Products, Reducer::Add),
        (FoldInput::Exp, Reducer::Add),
        (FoldInput::ExpLin, Reducer::Add),
    ];
    for (what, combine) in ways {
        let Some(row) = fold_row(what, combine, DType::F32) else { continue };
        let mix = reduce::find(combine, DType::F32, at).unwrap();
        for n in (0..140).chain([511, 512, 513, 1023, 1024, 1025, 1600, 2048, 5 * 512 + 7, 9000]) {
            for (seed, k) in [(0, [1.0, -1.0, 0.0, 0.0]), (1, [0.5, -0.75, 0.0, 0.0]), (2, [1.0; 4])] {
                let (mut a, mut b) = (kinds(n, 3 * n as u32 + seed), kinds(n + 1, n as u32));
                if seed != 1 {
                    for x in [&mut a, &mut b] {
                        x.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = -1.5);
                    }
                }
                if seed == 2 {
                    // scale the numbers so that their exponentials are in range
                    a.iter_mut().chain(&mut b).for_each(|x| *x *= 0.3);
                }
                let p = |v: &[f32]| v.as_ptr().cast::<u8>();
                let made = match what {
                    FoldInput::Elements => a.clone(),
                    FoldInput::Exp => exp_by_loop(&a),
                    FoldInput::Products => a.iter().zip(&b).map(|(x, y)| x * y).collect(),
                    FoldInput::ExpLin => {
                        let x: Vec<f32> = a.iter().map(|x| x * k[0] as f32 + b[0] * k[1] as f32).collect();
                        exp_by_loop(&x)
                    }
                };
                let (mut sums, mut tree) = ([[0f32]; 64], MergeStack::new(0));
                let merge = |sums: &mut [[f32; 1]; 64], to: usize, from: usize| {
                    let (x, y) = (sums[to], sums[from]);
                    // SAFETY: each operand and the result have one element.
                    unsafe { (mix.mix)(1, sums[to].as_mut_ptr().cast(), p(&x), p(&y), p(&y), &k) }
                };
                // an empty row has a single, empty unit
                for unit in made.chunks(UNIT_ELEMENTS).chain(made.is_empty().then_some(&made[..])) {
                    let to = sums[tree.depth].as_mut_ptr().cast();
                    // SAFETY: the unit has its length, and the result one element.
                    unsafe { (mix.fold)(unit.len(), to, p(unit), p(unit), p(unit), &k) }
                    tree.push(|to, from| merge(&mut sums, to, from));
                }
                tree.finish(|to, from| merge(&mut sums, to, from));
                let mut got = [0f32];
                // SAFETY: `a` has `n` elements, and `b` has `n + 1`.
                unsafe { row(n, got.as_mut_ptr().cast(), p(&a), p(&b), p(&b), &k) }
                same_bits(&got, &sums[0], &format!("{what:?} {combine:?} of {n}"));
            }
        }
    }
}

/// Tests that fused folds equal folds of values that were computed before.
#[test]
#[cfg_attr(miri, ignore = "there is one level")]
fn sums_make_what_they_add() {
    let (Some(products), Some(scaled), Some(squares)) = (
        fold_row(FoldInput::Products, Reducer::Add, DType::F32),
        fold_scaled(Reducer::Add, DType::F32),
        fold_squares(Reducer::Add, DType::F32),
    ) else {
        return;
    };
    let k = [-1.25, -0.75, 0.0, 0.0];
    for n in (0..200).chain([512]) {
        let (a, b) = (kinds(n, 11 + n as u32), kinds(n + 9, 12 + n as u32));
        let at = |v: &[f32]| v.as_ptr().cast::<u8>();
        let one = |f: SliceKernel, of: [&[f32]; 3]| {
            let mut sum = [f32::NAN];
            // SAFETY: each operand has `n` elements, or one.
            unsafe { f(n, sum.as_mut_ptr().cast(), at(of[0]), at(of[1]), at(of[2]), &k) }
            sum
        };
        let by_loop = KernelVariant { level: IsaLevel::Base, stream: false };
        let sum = |x: &[f32]| one(reduce::find(Reducer::Add, DType::F32, by_loop).unwrap().fold, [x, x, x]);
        let made = |f: &dyn Fn(usize) -> f32| (0..n).map(f).collect::<Vec<f32>>();
        let what = |what: &str| format!("{what} of {n}");
        same_bits(&one(products, [&a, &b, &a]), &sum(&made(&|i| a[i] * b[i])), &what("products"));
        same_bits(&one(scaled, [&a, &a, &a]), &sum(&made(&|i| a[i] * -1.25)), &what("multiples"));
        let x = made(&|i| a[i] * -1.25 + b[n] * -0.75);
        let mut room = vec![0f32; n + 1];
        let mut got = [f32::NAN];
        // SAFETY: `a` and the scratch buffer have `n` elements, and `b` has one from index `n` on.
        unsafe {
            let to = room.as_mut_ptr().cast::<u8>().cast_const();
            squares(n, got.as_mut_ptr().cast(), at(&a), at(&b[n..]), to, &k);
        }
        same_bits(&got, &sum(&made(&|i| x[i] * x[i])), &what("squares"));
        same_bits(&room[..n], &x, &what("what is squared"));
        assert_eq!(room[n], 0.0, "nothing is written behind");
    }
}
