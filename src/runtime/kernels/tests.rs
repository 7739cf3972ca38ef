//! Accuracy against float64 functions, special values, and agreement of the processor levels.

use super::*;
use crate::program::sound;
use crate::runtime::Buffer;
use half::{bf16, f16};
use std::collections::BTreeMap;

mod wide;

fn levels() -> impl Iterator<Item = How> {
    Level::available().flat_map(|level| [false, true].map(|stream| How { level, stream }))
}
/// Calls a kernel on slices.
fn call<T: Copy, D: Copy>(kernel: Kernel, a: &[T], b: &[T], zero: D) -> Vec<D> {
    let mut d = vec![zero; a.len()];
    // SAFETY: all slices are of one length, and of the kernel's types
    unsafe {
        let (a, b) = (a.as_ptr().cast::<u8>(), b.as_ptr().cast::<u8>());
        kernel(d.len(), d.as_mut_ptr().cast(), a, b, a, &[0.0; 4]);
    }
    d
}
fn one32(fun: Fun, h: How, a: &[f32]) -> Vec<f32> {
    call(select_at(fun, DType::F32, DType::F32, h).unwrap(), a, a, 0f32)
}
fn one64(fun: Fun, h: How, a: &[f64]) -> Vec<f64> {
    call(select_at(fun, DType::F64, DType::F64, h).unwrap(), a, a, 0f64)
}
/// Every so many bit patterns of all floats.
fn samples() -> Vec<f32> {
    (0..=u32::MAX).step_by(40_009).map(f32::from_bits).collect()
}
/// The distance in units of the last place of float32.
fn ulps32(got: f32, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got as f64 == want || got == want as f32 {
        return 0.0;
    }
    if (want as f32).is_infinite() && got.abs() == f32::MAX {
        return 1.0;
    }
    let exponent = (want.abs().max(f32::MIN_POSITIVE as f64)).log2().floor() as i32;
    (got as f64 - want).abs() / 2f64.powi(exponent - 23)
}
fn ulps64(got: f64, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got == want {
        return 0.0;
    }
    let exponent = (want.abs().max(f64::MIN_POSITIVE)).log2().floor() as i32;
    (got - want).abs() / libm::scalbn(1.0, exponent - 52)
}

type Function = fn(f64) -> f64;
fn logistic(x: f64) -> f64 {
    if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }
}
fn round(x: f64) -> f64 {
    x.round()
}

/// What sentences may ask for is what there are kernels for.
#[test]
fn every_function_is_defined_where_it_has_a_kernel() {
    use Fun::*;
    let unary = [Neg, Sign, Abs, Floor, Ceil, Round, Exp, Exp2, Expm1, Log, Log1p, Sin, Cos, Tan, Asin, Acos];
    let more =
        [Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Sqrt, Rsqrt, Cbrt, Logistic, Erf, ErfInv, IsFinite];
    let binary =
        [Not, Add, Sub, Mul, Div, Rem, Max, Min, Pow, Atan2, NextAfter, Eq, Ne, Lt, Le, Gt, Ge, And, Or];
    let bits = [Xor, ShiftLeft, ShiftRightLogical, ShiftRightArithmetic, Real, Imag, Conj, Complex];
    for fun in unary.into_iter().chain(more).chain(binary).chain(bits) {
        let tests = matches!(fun, Eq | Ne | Lt | Le | Gt | Ge | IsFinite);
        for from in DType::all() {
            let makes = match fun {
                Abs | Real | Imag => from.real(),
                Complex => from.complex().unwrap_or(from),
                _ if tests => DType::Bool,
                _ => from,
            };
            let (defined, kernel) =
                (sound::kernels::defined(fun, from, makes), select(fun, from, makes).is_some());
            assert_eq!(defined, kernel, "{fun:?} of {from}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn float32_functions_keep_their_bounds() {
    let functions: [(Fun, f64, Function); 27] = [
        (Fun::Sin, 0.51, libm::sin),
        (Fun::Cos, 0.51, libm::cos),
        (Fun::Exp, 1.1, libm::exp),
        (Fun::Exp2, 1.6, libm::exp2),
        (Fun::Expm1, 2.0, libm::expm1),
        (Fun::Log, 1.1, libm::log),
        (Fun::Log1p, 1.7, libm::log1p),
        (Fun::Tanh, 3.0, libm::tanh),
        (Fun::Logistic, 2.6, logistic),
        (Fun::Erf, 6.0, libm::erf),
        (Fun::Sqrt, 0.51, f64::sqrt),
        (Fun::Rsqrt, 1.6, |x| 1.0 / x.sqrt()),
        (Fun::Floor, 0.0, f64::floor),
        (Fun::Ceil, 0.0, f64::ceil),
        (Fun::Round, 0.0, round),
        (Fun::Neg, 0.0, |x| -x),
        (Fun::Abs, 0.0, f64::abs),
        (Fun::Tan, 1.0, libm::tan),
        (Fun::Asin, 1.0, libm::asin),
        (Fun::Acos, 1.0, libm::acos),
        (Fun::Atan, 1.0, libm::atan),
        (Fun::Sinh, 2.0, libm::sinh),
        (Fun::Cosh, 2.0, libm::cosh),
        (Fun::Asinh, 2.0, libm::asinh),
        (Fun::Acosh, 2.0, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }),
        (Fun::Atanh, 2.0, libm::atanh),
        (Fun::Cbrt, 1.0, libm::cbrt),
    ];
    let x = samples();
    let mut missed = BTreeMap::new();
    for (fun, bound, f) in functions {
        for h in levels().filter(|h| !h.stream) {
            let made = one32(fun, h, &x).into_iter().zip(&x);
            let worst = made.map(|(y, x)| (ulps32(y, f(*x as f64)), *x));
            let worst = worst.fold((0.0, 0.0), |w, u| if u.0 > w.0 { u } else { w });
            if worst.0 > bound {
                missed.insert(format!("{fun:?} {}", h.level.name()), worst);
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn float64_functions_keep_their_bounds() {
    let functions: [(Fun, f64, Function); 11] = [
        (Fun::Sin, 2.0, libm::sin),
        (Fun::Cos, 2.0, libm::cos),
        (Fun::Exp, 2.0, libm::exp),
        (Fun::Exp2, 2.5, libm::exp2),
        (Fun::Expm1, 3.0, libm::expm1),
        (Fun::Log, 2.0, libm::log),
        (Fun::Log1p, 3.0, libm::log1p),
        (Fun::Tanh, 4.0, libm::tanh),
        (Fun::Logistic, 4.0, logistic),
        (Fun::Erf, 0.0, libm::erf),
        (Fun::Sqrt, 0.0, f64::sqrt),
    ];
    let step = (1 << 49) + 12_345_678_901_235;
    let mut x: Vec<f64> = (0..=u64::MAX).step_by(step).map(f64::from_bits).collect();
    x.extend((0..4000).map(|i| (i as f64 - 2000.0) * 0.371));
    x.extend([0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 5e-324, 709.78, 709.8, -745.1, -746.0]);
    let mut missed = BTreeMap::new();
    for (fun, bound, f) in functions {
        for h in levels().filter(|h| !h.stream) {
            let made = one64(fun, h, &x).into_iter().zip(&x);
            let worst = made.map(|(y, x)| (ulps64(y, f(*x)), *x));
            let worst = worst.fold((0.0, 0.0), |w, u| if u.0 > w.0 { u } else { w });
            if worst.0 > bound {
                missed.insert(format!("{fun:?} {}", h.level.name()), worst);
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn special_values_keep_sign_and_kind() {
    for h in levels() {
        let bits = |fun, x: f32| one32(fun, h, &[x])[0].to_bits();
        for fun in [Fun::Sin, Fun::Expm1, Fun::Log1p, Fun::Tanh, Fun::Erf, Fun::Sqrt, Fun::Sign, Fun::Copy] {
            assert_eq!(bits(fun, -0.0), (-0f32).to_bits(), "{fun:?}");
            assert_eq!(bits(fun, 0.0), 0, "{fun:?}");
        }
        let value = |fun, x: f32| one32(fun, h, &[x])[0];
        assert_eq!(value(Fun::Log, 0.0), f32::NEG_INFINITY);
        assert!(value(Fun::Log, -1.0).is_nan() && value(Fun::Log1p, -1.5).is_nan());
        assert_eq!(value(Fun::Log1p, -1.0), f32::NEG_INFINITY);
        assert_eq!(value(Fun::Exp, 89.0), f32::INFINITY);
        assert_eq!(value(Fun::Exp, f32::NEG_INFINITY), 0.0);
        assert!(value(Fun::Exp, -100.0) > 0.0, "gradual underflow");
        assert!(value(Fun::Logistic, -95.0) > 0.0);
        assert_eq!((value(Fun::Tanh, 50.0), value(Fun::Tanh, f32::NEG_INFINITY)), (1.0, -1.0));
        assert!(value(Fun::Sin, f32::INFINITY).is_nan());
        assert_eq!(value(Fun::Round, 2.5), 3.0);
        assert_eq!(value(Fun::Round, -0.5), -1.0);
        assert!(value(Fun::Sign, f32::NAN).is_nan());
        for (fun, a, b) in [(Fun::Max, f32::NAN, 1.0), (Fun::Max, 1.0, f32::NAN), (Fun::Min, 1.0, f32::NAN)] {
            let kernel = select_at(fun, DType::F32, DType::F32, h).unwrap();
            assert!(call(kernel, &[a], &[b], 0f32)[0].is_nan());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn the_inverse_of_erf_is_one() {
    let x: Vec<f64> =
        (-999..1000).map(|i| i as f64 / 1000.0).chain([0.9999, 1.0 - 1e-9, 1e-12, -1e-5]).collect();
    for h in levels() {
        for (x, y) in x.iter().zip(one64(Fun::ErfInv, h, &x)) {
            assert!((libm::erf(y) - x).abs() <= 4e-16 + 1e-15 * x.abs(), "{x} {y}");
        }
        let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        for (x, y) in x.iter().zip(one32(Fun::ErfInv, h, &x)) {
            let x = *x as f64;
            let want = one64(Fun::ErfInv, h, &[x])[0];
            assert!((y as f64 - want).abs() <= 4e-6 * want.abs() || y as f64 == want, "{x} {y} {want}");
        }
        assert_eq!(one32(Fun::ErfInv, h, &[1.0, -1.0]), [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(one32(Fun::ErfInv, h, &[1.5])[0].is_nan());
    }
}

#[test]
fn integers_wrap_and_never_trap() {
    for h in levels() {
        let two = |fun, a: i32, b: i32| {
            call(select_at(fun, DType::I32, DType::I32, h).unwrap(), &[a], &[b], 0i32)[0]
        };
        assert_eq!(two(Fun::Add, i32::MAX, 1), i32::MIN);
        assert_eq!(two(Fun::Div, 7, 0), -1);
        assert_eq!(two(Fun::Rem, 7, 0), 7);
        assert_eq!(two(Fun::Div, i32::MIN, -1), i32::MIN);
        assert_eq!(two(Fun::Rem, i32::MIN, -1), 0);
        assert_eq!((two(Fun::Div, -7, 2), two(Fun::Rem, -7, 2)), (-3, -1));
        assert_eq!(two(Fun::Abs, i32::MIN, 0), i32::MIN);
        assert_eq!(two(Fun::ShiftLeft, 1, 31), i32::MIN);
        assert_eq!((two(Fun::ShiftLeft, 1, 32), two(Fun::ShiftLeft, 1, -1)), (0, 0));
        assert_eq!((two(Fun::ShiftRightArithmetic, -8, 40), two(Fun::ShiftRightArithmetic, -8, 1)), (-1, -4));
        assert_eq!((two(Fun::ShiftRightLogical, -8, 40), two(Fun::ShiftRightLogical, -1, 28)), (0, 15));
        assert_eq!((two(Fun::Pow, 3, 5), two(Fun::Pow, -1, -3), two(Fun::Pow, 2, -1)), (243, -1, 0));
        assert_eq!(two(Fun::Sign, -9, 0), -1);
        let bytes =
            |fun, a: u8, b: u8| call(select_at(fun, DType::U8, DType::U8, h).unwrap(), &[a], &[b], 0u8)[0];
        assert_eq!(
            (bytes(Fun::Div, 9, 0), bytes(Fun::Sub, 1, 2), bytes(Fun::ShiftLeft, 1, 8)),
            (255, 255, 0)
        );
        assert_eq!((bytes(Fun::Neg, 1, 0), bytes(Fun::Sign, 7, 0), bytes(Fun::Not, 1, 0)), (255, 1, 254));
        let not = select_at(Fun::Not, DType::Bool, DType::Bool, h).unwrap();
        assert_eq!(call(not, &[0u8, 1], &[0, 0], 9u8), [1, 0]);
        let less = select_at(Fun::Lt, DType::I64, DType::Bool, h).unwrap();
        assert_eq!(call(less, &[-1i64, 5], &[0, 5], 9u8), [1, 0]);
    }
}

#[test]
fn conversions_cut_and_saturate() {
    for h in levels() {
        let to_int = convert::convert(DType::F32, DType::I32, h).unwrap();
        let x = [1.9f32, -1.9, 3e9, f32::NEG_INFINITY, f32::NAN];
        assert_eq!(call(to_int, &x, &x, 0i32), [1, -1, i32::MAX, i32::MIN, 0]);
        let truth = convert::convert(DType::F32, DType::Bool, h).unwrap();
        assert_eq!(call(truth, &[0.0f32, -0.0, 0.1, f32::NAN], &[0.0; 4], 9u8), [0, 0, 1, 1]);
        let wrap = convert::convert(DType::I64, DType::U8, h).unwrap();
        assert_eq!(call(wrap, &[-1i64, 256], &[0, 0], 9u8), [255, 0]);
        let half = convert::convert(DType::F64, DType::BF16, h).unwrap();
        // just above the middle of two neighbours: by way of float32 it would become a tie
        let x = [1.0 + 1.0 / 256.0 + 1e-12];
        assert_eq!(call(half, &x, &x, bf16::ZERO), [bf16::from_f32(1.0078125)]);
    }
    for of in DType::all() {
        for to in DType::all() {
            // complex numbers are put together and taken apart by other functions
            let defined = of.is_complex() == to.is_complex();
            assert_eq!(select(Fun::Convert, of, to).is_some(), defined, "{of} to {to}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn half_floats_are_rounded_once() {
    let x: Vec<f16> = (0..=u16::MAX).step_by(7).map(f16::from_bits).collect();
    for h in levels() {
        for (fun, f) in [(Fun::Exp, libm::exp as Function), (Fun::Sin, libm::sin), (Fun::Neg, |x| -x)] {
            let got = call(select_at(fun, DType::F16, DType::F16, h).unwrap(), &x, &x, f16::ZERO);
            for (x, y) in x.iter().zip(got) {
                let want = f16::from_f32(one32(fun, h, &[x.to_f32()])[0]);
                assert!(y == want || y.is_nan() && want.is_nan(), "{fun:?} {x} {y} {want}");
                let exact = f(x.to_f64());
                assert!(
                    exact.is_nan()
                        || (y.to_f64() - exact).abs() <= 0.51e-3 * exact.abs() + 6e-8
                        || !y.is_finite()
                );
            }
        }
        let add = select_at(Fun::Add, DType::BF16, DType::BF16, h).unwrap();
        let (a, b) = (bf16::from_f32(1.0), bf16::from_f32(0.0078125));
        assert_eq!(call(add, &[a], &[b], bf16::ZERO), [bf16::from_f32(1.0078125)]);
        let next = select_at(Fun::NextAfter, DType::BF16, DType::BF16, h).unwrap();
        assert_eq!(call(next, &[a], &[bf16::from_f32(2.0)], bf16::ZERO), [bf16::from_f32(1.0078125)]);
    }
}

#[test]
fn threefry_matches_its_published_vectors() {
    // key, counter (high word first), words: from the Random123 distribution
    let cases: [([u32; 2], [u32; 2], [u32; 2]); 3] = [
        ([0, 0], [0, 0], [0x6b20_0159, 0x99ba_4efe]),
        ([u32::MAX; 2], [u32::MAX; 2], [0x1cb9_96fc, 0xbb00_2be7]),
        ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3], [0xc492_3a9c, 0x483d_f7a0]),
    ];
    for h in levels() {
        for (key, counter, words) in cases {
            let k = (key[1] as u64) << 32 | key[0] as u64;
            let c = (counter[0] as u64) << 32 | counter[1] as u64;
            let got = call(select_at(Fun::Threefry, DType::U64, DType::U64, h).unwrap(), &[k], &[c], 0u64)[0];
            assert_eq!([got as u32, (got >> 32) as u32], words);
        }
    }
}

#[test]
fn streaming_gives_the_same_at_every_length_and_alignment() {
    for h in levels().filter(|h| h.stream) {
        let still = How { stream: false, ..h };
        for n in [0, 1, 63, 64, 200, 513] {
            for offset in 0..3 {
                let a: Vec<f32> = (0..n + 4).map(|i| i as f32 * 0.5).collect();
                let run = |kernel: Kernel| {
                    let mut space = Buffer::zeroed(4 * (n + 4)).unwrap();
                    // SAFETY: n elements from the offset on are within
                    unsafe {
                        let d = space.as_mut_ptr().add(4 * offset);
                        let p = a.as_ptr().cast::<u8>();
                        kernel(n, d, p, p.add(4), p.add(8), &[2.0, -3.0, 0.5, 0.0]);
                        fence();
                        std::slice::from_raw_parts(d.cast::<f32>(), n).to_vec()
                    }
                };
                assert_eq!(
                    run(lin_at(DType::F32, 3, h).unwrap()),
                    run(lin_at(DType::F32, 3, still).unwrap())
                );
                let add = |h| select_at(Fun::Add, DType::F32, DType::F32, h).unwrap();
                assert_eq!(run(add(h)), run(add(still)));
            }
        }
    }
}

#[test]
fn sums_have_one_order_at_every_level() {
    let x: Vec<f32> = (0..1037).map(|i| (i as f32 * 0.7).sin()).collect();
    // the order as the documentation states it
    let mut lanes = [0f32; 64];
    for (i, x) in x.iter().enumerate() {
        lanes[i % 64] += x;
    }
    let mut half = 32;
    while half > 0 {
        for j in 0..half {
            lanes[j] += lanes[j + half];
        }
        half /= 2;
    }
    for h in levels() {
        let m = fold::find(Combine::Add, DType::F32, h).unwrap();
        let mut sum = [0f32];
        let (mut acc, mut tree) = (vec![0f32; 100], vec![0f32; 100]);
        // SAFETY: within the slices
        unsafe {
            let p = x.as_ptr().cast::<u8>();
            (m.fold)(x.len(), sum.as_mut_ptr().cast(), p, p, p, &[0.0; 4]);
            (m.rows)(100, acc.as_mut_ptr().cast(), p, 10, 400);
            (m.rows8)(100, tree.as_mut_ptr().cast(), p, 400);
        }
        assert_eq!(sum[0], lanes[0]);
        for j in 0..100 {
            let r = |k: usize| x[100 * k + j];
            let eight = ((r(0) + r(1)) + (r(2) + r(3))) + ((r(4) + r(5)) + (r(6) + r(7)));
            assert_eq!(tree[j], eight);
            assert_eq!(acc[j], eight + r(8) + r(9));
        }
    }
    let all = [Combine::Add, Combine::Mul, Combine::Max, Combine::Min];
    let max = fold(Combine::Max, DType::F64).unwrap();
    let x = [1.0, f64::NAN, 3.0];
    let mut y = [0f64];
    // SAFETY: within the slices
    unsafe {
        max(3, y.as_mut_ptr().cast(), x.as_ptr().cast(), x.as_ptr().cast(), x.as_ptr().cast(), &[0.0; 4])
    }
    assert!(y[0].is_nan());
    for dtype in DType::all().filter(|d| d.is_number()) {
        assert!(all.iter().all(|c| fold(*c, dtype).is_some() == c.takes(dtype)));
    }
    assert_eq!(neutral(Combine::Min, DType::I16).unwrap().to_bits(), i16::MAX as u64);
    assert_eq!(neutral(Combine::Max, DType::F32).unwrap().to_bits(), u64::from(f32::NEG_INFINITY.to_bits()));
}

#[test]
fn loads_bring_elements_together() {
    let x = [10i16, 20, 30, 40];
    let run = |kernel: Kernel, at: usize, k: f64| {
        let mut d = [0i16; 3];
        // SAFETY: within the slices
        unsafe {
            let p = x.as_ptr().add(at).cast::<u8>();
            kernel(3, d.as_mut_ptr().cast(), p, p, p, &[k, 0.0, 0.0, 0.0]);
        }
        d
    };
    assert_eq!(run(splat(2).unwrap(), 1, 0.0), [20; 3]);
    assert_eq!(run(gather(2).unwrap(), 3, -1.0), [40, 30, 20]);
    assert_eq!(run(fill(2).unwrap(), 0, constant(DType::I16, Scalar::Int(-5))), [-5; 3]);
    let mut index = [0i64; 3];
    let start = [7i64];
    // SAFETY: within the slices
    unsafe {
        let p = start.as_ptr().cast::<u8>();
        count(3, index.as_mut_ptr().cast(), p, p, p, &[2.0, 0.0, 0.0, 0.0]);
    }
    assert_eq!(index, [7, 9, 11]);
}

/// The base level is the twin of the vector ones for systems that have none, and for Miri: what is exact has the same bits.
#[test]
#[cfg_attr(miri, ignore = "there is one level")]
fn what_is_exact_has_the_same_bits_at_every_level() {
    let one =
        [Fun::Copy, Fun::Neg, Fun::Sign, Fun::Abs, Fun::Floor, Fun::Ceil, Fun::Round, Fun::Sqrt, Fun::Not];
    let two = [Fun::Add, Fun::Sub, Fun::Mul, Fun::Div, Fun::Rem, Fun::Max, Fun::Min, Fun::NextAfter];
    let three = [Fun::Eq, Fun::Ne, Fun::Lt, Fun::Le, Fun::Gt, Fun::Ge, Fun::And, Fun::Or, Fun::Xor];
    let four =
        [Fun::ShiftLeft, Fun::ShiftRightLogical, Fun::ShiftRightArithmetic, Fun::Select, Fun::Threefry];
    let n = 203;
    // bits of all kinds, numbers and not; bools are 0 and 1
    let operand = |dtype: DType, seed: u64| {
        let mut buffer = Buffer::asked(16 * n).unwrap();
        let mut s = seed | 1;
        for i in 0..16 * n {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            // SAFETY: within the buffer
            unsafe {
                buffer.as_mut_ptr().add(i).write((s >> 32) as u8 & if dtype == DType::Bool { 1 } else { 255 })
            }
        }
        buffer
    };
    let mut compared = 0;
    for fun in [&one[..], &two, &three, &four].concat().into_iter().chain([Fun::Convert]) {
        // complex numbers are moved as bits, and computed alike at all levels
        let moves = matches!(fun, Fun::Copy | Fun::Select);
        for from in DType::all().filter(|from| moves || !from.is_complex()) {
            let compare = three[..6].contains(&fun);
            for to in DType::all().filter(|to| match fun {
                Fun::Convert => true,
                _ if compare => *to == DType::Bool,
                _ => *to == from,
            }) {
                let (x, y, z) = (operand(from, 77), operand(from, 99), operand(from, 123));
                let which = operand(DType::Bool, 5);
                let a = if fun == Fun::Select { &which } else { &x };
                let run = |h: How| {
                    let kernel = select_at(fun, from, to, h)?;
                    let mut d = Buffer::zeroed(16 * n).unwrap();
                    // SAFETY: every buffer has room for n elements of any type
                    unsafe {
                        kernel(n, d.as_mut_ptr(), a.as_ptr(), y.as_ptr(), z.as_ptr(), &[0.0; 4]);
                        fence();
                        Some(std::slice::from_raw_parts(d.as_ptr(), n * to.size()).to_vec())
                    }
                };
                let number = |b: &[u8]| -> f64 {
                    match to {
                        DType::F16 => f16::from_ne_bytes([b[0], b[1]]).to_f64(),
                        DType::BF16 => bf16::from_ne_bytes([b[0], b[1]]).to_f64(),
                        DType::F32 => f32::from_ne_bytes([b[0], b[1], b[2], b[3]]) as f64,
                        DType::F64 => f64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
                        _ => 0.0,
                    }
                };
                let Some(want) = run(How { level: Level::Base, stream: false }) else { continue };
                for h in levels() {
                    let got = run(h).unwrap();
                    for (g, w) in got.chunks(to.size()).zip(want.chunks(to.size())) {
                        // which NaN comes out is left to the processor
                        assert!(
                            g == w || number(g).is_nan() && number(w).is_nan(),
                            "{fun:?} {from} {to} {h:?}: {g:?} for {w:?}"
                        );
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 600, "{compared}");
}
