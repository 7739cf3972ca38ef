//! Tests of kernels.
//!
//! They compare results with float64 functions, check special values, and check that processor
//! levels agree.

use super::*;
use crate::kernels::buffer::Buffer;
use half::{bf16, f16};

mod bounds;
mod simd_f32;

fn levels() -> impl Iterator<Item = KernelVariant> {
    IsaLevel::available().flat_map(|level| [false, true].map(|stream| KernelVariant { level, stream }))
}
/// Calls a kernel on slices.
fn call<T: Copy, D: Copy>(kernel: SliceKernel, a: &[T], b: &[T], zero: D) -> Vec<D> {
    let mut d = vec![zero; a.len()];
    // SAFETY: all slices have the same length, and the kernel's element types.
    unsafe {
        let (a, b) = (a.as_ptr().cast::<u8>(), b.as_ptr().cast::<u8>());
        kernel(d.len(), d.as_mut_ptr().cast(), a, b, a, &[0.0; 4]);
    }
    d
}
fn one32(fun: ScalarOp, h: KernelVariant, a: &[f32]) -> Vec<f32> {
    call(select_at(fun, DType::F32, DType::F32, h).unwrap(), a, a, 0f32)
}
fn one64(fun: ScalarOp, h: KernelVariant, a: &[f64]) -> Vec<f64> {
    call(select_at(fun, DType::F64, DType::F64, h).unwrap(), a, a, 0f64)
}

/// Returns floats with evenly spaced bit patterns, over all floats.
fn samples() -> Vec<f32> {
    (0..=u32::MAX).step_by(40_009).map(f32::from_bits).collect()
}

#[test]
fn special_values_keep_sign_and_kind() {
    for h in levels() {
        let bits = |fun, x: f32| one32(fun, h, &[x])[0].to_bits();
        for fun in [
            ScalarOp::Sin,
            ScalarOp::Expm1,
            ScalarOp::Log1p,
            ScalarOp::Tanh,
            ScalarOp::Erf,
            ScalarOp::Sqrt,
            ScalarOp::Sign,
            ScalarOp::Copy,
        ] {
            assert_eq!(bits(fun, -0.0), (-0f32).to_bits(), "{fun:?}");
            assert_eq!(bits(fun, 0.0), 0, "{fun:?}");
        }
        let value = |fun, x: f32| one32(fun, h, &[x])[0];
        assert_eq!(value(ScalarOp::Log, 0.0), f32::NEG_INFINITY);
        assert!(value(ScalarOp::Log, -1.0).is_nan() && value(ScalarOp::Log1p, -1.5).is_nan());
        assert_eq!(value(ScalarOp::Log1p, -1.0), f32::NEG_INFINITY);
        assert_eq!(value(ScalarOp::Exp, 89.0), f32::INFINITY);
        assert_eq!(value(ScalarOp::Exp, f32::NEG_INFINITY), 0.0);
        assert!(value(ScalarOp::Exp, -100.0) > 0.0, "gradual underflow");
        assert!(value(ScalarOp::Logistic, -95.0) > 0.0);
        assert_eq!((value(ScalarOp::Tanh, 50.0), value(ScalarOp::Tanh, f32::NEG_INFINITY)), (1.0, -1.0));
        assert!(value(ScalarOp::Sin, f32::INFINITY).is_nan());
        assert_eq!(value(ScalarOp::Round, 2.5), 3.0);
        assert_eq!(value(ScalarOp::Round, -0.5), -1.0);
        assert!(value(ScalarOp::Sign, f32::NAN).is_nan());
        for (fun, a, b) in
            [(ScalarOp::Max, f32::NAN, 1.0), (ScalarOp::Max, 1.0, f32::NAN), (ScalarOp::Min, 1.0, f32::NAN)]
        {
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
        for (x, y) in x.iter().zip(one64(ScalarOp::ErfInv, h, &x)) {
            assert!((libm::erf(y) - x).abs() <= 4e-16 + 1e-15 * x.abs(), "{x} {y}");
        }
        let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
        for (x, y) in x.iter().zip(one32(ScalarOp::ErfInv, h, &x)) {
            let x = *x as f64;
            let want = one64(ScalarOp::ErfInv, h, &[x])[0];
            assert!((y as f64 - want).abs() <= 4e-6 * want.abs() || y as f64 == want, "{x} {y} {want}");
        }
        assert_eq!(one32(ScalarOp::ErfInv, h, &[1.0, -1.0]), [f32::INFINITY, f32::NEG_INFINITY]);
        assert!(one32(ScalarOp::ErfInv, h, &[1.5])[0].is_nan());
    }
}

/// Vectors divide int32 as float64: quotients next to an integer, of any size, are truncated to the
/// quotient of the integers.
#[test]
fn int32_is_divided_as_integers_are() {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let divisors = [0, 1, 2, 3, 7, 10, 641, 46_341, 65_536, 1 << 30, i32::MAX - 1, i32::MAX, i32::MIN];
    for divisor in divisors.into_iter().flat_map(|b| [b, b.wrapping_neg()]) {
        let most = i32::MAX.checked_div(divisor).unwrap_or(0);
        let near = [0, 1, 2, most / 2, most - 1, most].map(|q| q.wrapping_mul(divisor));
        for x in near.into_iter().chain([i32::MAX, i32::MIN]) {
            let row = [-1, 0, 1].map(|d| x.wrapping_add(d)).into_iter().flat_map(|x| [x, x.wrapping_neg()]);
            a.extend(row);
            b.resize(a.len(), divisor);
        }
    }
    // arbitrary elements, of any number of bits
    let mut s = 77u64;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 32) as i32 >> (s & 31)
    };
    for _ in 0..if cfg!(miri) { 100 } else { 20_013 } {
        a.push(next());
        b.push(next());
    }
    for h in levels() {
        let divide = |op| call(select_at(op, DType::I32, DType::I32, h).unwrap(), &a, &b, 0i32);
        let (quotients, remainders) = (divide(ScalarOp::Div), divide(ScalarOp::Rem));
        for (i, (a, b)) in a.iter().zip(&b).enumerate() {
            let expected = if *b == 0 { (-1, *a) } else { (a.wrapping_div(*b), a.wrapping_rem(*b)) };
            assert_eq!((quotients[i], remainders[i]), expected, "{a} by {b}, {h:?}");
        }
        // short slices, which are divided one by one, and the next longer ones
        for (op, all) in [(ScalarOp::Div, &quotients), (ScalarOp::Rem, &remainders)] {
            let kernel = select_at(op, DType::I32, DType::I32, h).unwrap();
            for n in [4, 5] {
                for ((a, b), expected) in a.chunks(n).zip(b.chunks(n)).zip(all.chunks(n)).step_by(97) {
                    assert_eq!(call(kernel, a, b, 0i32), expected, "{a:?} by {b:?}, {h:?}");
                }
            }
        }
    }
}

#[test]
fn integers_wrap_and_never_trap() {
    for h in levels() {
        let two = |fun, a: i32, b: i32| {
            call(select_at(fun, DType::I32, DType::I32, h).unwrap(), &[a], &[b], 0i32)[0]
        };
        assert_eq!(two(ScalarOp::Add, i32::MAX, 1), i32::MIN);
        assert_eq!(two(ScalarOp::Div, 7, 0), -1);
        assert_eq!(two(ScalarOp::Rem, 7, 0), 7);
        assert_eq!(two(ScalarOp::Div, i32::MIN, -1), i32::MIN);
        assert_eq!(two(ScalarOp::Rem, i32::MIN, -1), 0);
        assert_eq!((two(ScalarOp::Div, -7, 2), two(ScalarOp::Rem, -7, 2)), (-3, -1));
        assert_eq!(two(ScalarOp::Abs, i32::MIN, 0), i32::MIN);
        assert_eq!(two(ScalarOp::ShiftLeft, 1, 31), i32::MIN);
        assert_eq!((two(ScalarOp::ShiftLeft, 1, 32), two(ScalarOp::ShiftLeft, 1, -1)), (0, 0));
        assert_eq!(
            (two(ScalarOp::ShiftRightArithmetic, -8, 40), two(ScalarOp::ShiftRightArithmetic, -8, 1)),
            (-1, -4)
        );
        assert_eq!(
            (two(ScalarOp::ShiftRightLogical, -8, 40), two(ScalarOp::ShiftRightLogical, -1, 28)),
            (0, 15)
        );
        assert_eq!(
            (two(ScalarOp::Pow, 3, 5), two(ScalarOp::Pow, -1, -3), two(ScalarOp::Pow, 2, -1)),
            (243, -1, 0)
        );
        assert_eq!(two(ScalarOp::Sign, -9, 0), -1);
        let bytes =
            |fun, a: u8, b: u8| call(select_at(fun, DType::U8, DType::U8, h).unwrap(), &[a], &[b], 0u8)[0];
        assert_eq!(
            (bytes(ScalarOp::Div, 9, 0), bytes(ScalarOp::Sub, 1, 2), bytes(ScalarOp::ShiftLeft, 1, 8)),
            (255, 255, 0)
        );
        assert_eq!(
            (bytes(ScalarOp::Neg, 1, 0), bytes(ScalarOp::Sign, 7, 0), bytes(ScalarOp::Not, 1, 0)),
            (255, 1, 254)
        );
        let not = select_at(ScalarOp::Not, DType::Bool, DType::Bool, h).unwrap();
        assert_eq!(call(not, &[0u8, 1], &[0, 0], 9u8), [1, 0]);
        let less = select_at(ScalarOp::Lt, DType::I64, DType::Bool, h).unwrap();
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
        // slightly above the midpoint of two neighbours: rounding to float32 first would make it a
        // tie
        let x = [1.0 + 1.0 / 256.0 + 1e-12];
        assert_eq!(call(half, &x, &x, bf16::ZERO), [bf16::from_f32(1.0078125)]);
        let (narrow, wide) =
            (convert::convert(DType::F32, DType::BF16, h), convert::convert(DType::BF16, DType::F32, h));
        // floats of all kinds, and ties
        let x: Vec<f32> =
            samples().into_iter().chain((0..0x20000).map(|k| f32::from_bits(k << 15))).collect();
        for (x, y) in x.iter().zip(call(narrow.unwrap(), &x, &x, bf16::ZERO)) {
            assert_eq!(y.to_bits(), bf16::from_f32(*x).to_bits(), "{x}");
            let back = call(wide.unwrap(), &[y], &[y], 0f32)[0];
            assert!(back.to_bits() == y.to_f32().to_bits() || x.is_nan() && back.is_nan(), "{x}");
        }
    }
    for of in DType::all() {
        for to in DType::all() {
            // conversions between real and complex numbers are other functions
            let defined = of.is_complex() == to.is_complex();
            assert_eq!(select(ScalarOp::Convert, of, to).is_some(), defined, "{of} to {to}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "asks how exact functions are, at many points")]
fn half_floats_are_rounded_once() {
    let x: Vec<f16> = (0..=u16::MAX).step_by(7).map(f16::from_bits).collect();
    for h in levels() {
        for (fun, f) in [
            (ScalarOp::Exp, libm::exp as fn(f64) -> f64),
            (ScalarOp::Sin, libm::sin),
            (ScalarOp::Neg, |x| -x),
        ] {
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
        let add = select_at(ScalarOp::Add, DType::BF16, DType::BF16, h).unwrap();
        let (a, b) = (bf16::from_f32(1.0), bf16::from_f32(0.0078125));
        assert_eq!(call(add, &[a], &[b], bf16::ZERO), [bf16::from_f32(1.0078125)]);
        let next = select_at(ScalarOp::NextAfter, DType::BF16, DType::BF16, h).unwrap();
        assert_eq!(call(next, &[a], &[bf16::from_f32(2.0)], bf16::ZERO), [bf16::from_f32(1.0078125)]);
    }
}

#[test]
fn threefry_matches_its_published_vectors() {
    // keys, counters (high word first) and results, from the Random123 distribution
    let cases: [([u32; 2], [u32; 2], [u32; 2]); 3] = [
        ([0, 0], [0, 0], [0x6b20_0159, 0x99ba_4efe]),
        ([u32::MAX; 2], [u32::MAX; 2], [0x1cb9_96fc, 0xbb00_2be7]),
        ([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3], [0xc492_3a9c, 0x483d_f7a0]),
    ];
    for h in levels() {
        for (key, counter, words) in cases {
            let k = (key[1] as u64) << 32 | key[0] as u64;
            let c = (counter[0] as u64) << 32 | counter[1] as u64;
            let got =
                call(select_at(ScalarOp::Threefry, DType::U64, DType::U64, h).unwrap(), &[k], &[c], 0u64)[0];
            assert_eq!([got as u32, (got >> 32) as u32], words);
        }
    }
}

#[test]
fn streaming_gives_the_same_at_every_length_and_alignment() {
    for h in levels().filter(|h| h.stream) {
        let still = KernelVariant { stream: false, ..h };
        for n in [0, 1, 63, 64, 200, 513] {
            for offset in 0..3 {
                let a: Vec<f32> = (0..n + 4).map(|i| i as f32 * 0.5).collect();
                let run = |kernel: SliceKernel| {
                    let mut space = Buffer::zeroed(4 * (n + 4)).unwrap();
                    // SAFETY: each vector has `n` elements from its offset on.
                    unsafe {
                        let d = space.as_mut_ptr().add(4 * offset);
                        let p = a.as_ptr().cast::<u8>();
                        kernel(n, d, p, p.add(4), p.add(8), &[2.0, -3.0, 0.5, 0.0]);
                        fence();
                        std::slice::from_raw_parts(d.cast::<f32>(), n).to_vec()
                    }
                };
                assert_eq!(
                    run(scaled_sum_at(DType::F32, 3, h).unwrap()),
                    run(scaled_sum_at(DType::F32, 3, still).unwrap())
                );
                let add = |h| select_at(ScalarOp::Add, DType::F32, DType::F32, h).unwrap();
                assert_eq!(run(add(h)), run(add(still)));
            }
        }
    }
}

#[test]
fn sums_have_one_order_at_every_level() {
    let x: Vec<f32> = (0..1037).map(|i| (i as f32 * 0.7).sin()).collect();
    // the order as documented
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
        let m = reduce::find(Reducer::Add, DType::F32, h).unwrap();
        let mut sum = [0f32];
        let (mut acc, mut tree) = (vec![0f32; 100], vec![0f32; 100]);
        // SAFETY: the slices have the lengths that are passed.
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
    let all = [Reducer::Add, Reducer::Mul, Reducer::Max, Reducer::Min];
    let max = fold(Reducer::Max, DType::F64).unwrap();
    let x = [1.0, f64::NAN, 3.0];
    let mut y = [0f64];
    // SAFETY: the slices have the lengths that are passed.
    unsafe {
        max(3, y.as_mut_ptr().cast(), x.as_ptr().cast(), x.as_ptr().cast(), x.as_ptr().cast(), &[0.0; 4])
    }
    assert!(y[0].is_nan());
    for dtype in DType::all().filter(|d| d.is_number()) {
        assert!(all.iter().all(|c| fold(*c, dtype).is_some() == c.supports(dtype)));
    }
    assert_eq!(neutral(Reducer::Min, DType::I16).unwrap()[0].to_bits(), i16::MAX as u64);
    assert_eq!(
        neutral(Reducer::Max, DType::F32).unwrap()[0].to_bits(),
        u64::from(f32::NEG_INFINITY.to_bits())
    );
    assert_eq!(neutral(Reducer::AssumeEqual, DType::C128), Some([f64::NEG_INFINITY; 2]));
    assert_eq!(neutral(Reducer::Mul, DType::C128), Some([1.0, 0.0]));
}

#[test]
fn loads_bring_elements_together() {
    let x = [10i16, 20, 30, 40];
    let run = |kernel: SliceKernel, at: usize, k: f64| {
        let mut d = [0i16; 3];
        // SAFETY: the slices have the elements that the kernels read and write.
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
    // SAFETY: the slices have the elements that the kernel reads and writes.
    unsafe {
        let p = start.as_ptr().cast::<u8>();
        count(3, index.as_mut_ptr().cast(), p, p, p, &[2.0, 0.0, 0.0, 0.0]);
    }
    assert_eq!(index, [7, 9, 11]);
}

/// Tests that exact functions have the same bits at every level.
///
/// Systems without vector instructions, and Miri, have only the base level.
#[test]
#[cfg_attr(miri, ignore = "there is one level")]
fn what_is_exact_has_the_same_bits_at_every_level() {
    let one = [
        ScalarOp::Copy,
        ScalarOp::Neg,
        ScalarOp::Sign,
        ScalarOp::Abs,
        ScalarOp::Floor,
        ScalarOp::Ceil,
        ScalarOp::Round,
        ScalarOp::Sqrt,
        ScalarOp::Not,
    ];
    let two = [
        ScalarOp::Add,
        ScalarOp::Sub,
        ScalarOp::Mul,
        ScalarOp::Div,
        ScalarOp::Rem,
        ScalarOp::Max,
        ScalarOp::Min,
        ScalarOp::NextAfter,
    ];
    let three = [
        ScalarOp::Eq,
        ScalarOp::Ne,
        ScalarOp::Lt,
        ScalarOp::Le,
        ScalarOp::Gt,
        ScalarOp::Ge,
        ScalarOp::And,
        ScalarOp::Or,
        ScalarOp::Xor,
    ];
    let four = [
        ScalarOp::ShiftLeft,
        ScalarOp::ShiftRightLogical,
        ScalarOp::ShiftRightArithmetic,
        ScalarOp::Select,
        ScalarOp::Threefry,
    ];
    let n = 203;
    // arbitrary bits, including NaNs; bools are 0 and 1
    let operand = |dtype: DType, seed: u64| {
        let mut buffer = Buffer::allocate(16 * n).unwrap();
        let mut s = seed | 1;
        for i in 0..16 * n {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            // SAFETY: the index is within the buffer.
            unsafe {
                buffer.as_mut_ptr().add(i).write((s >> 32) as u8 & if dtype == DType::Bool { 1 } else { 255 })
            }
        }
        buffer
    };
    let mut compared = 0;
    for fun in [&one[..], &two, &three, &four].concat().into_iter().chain([ScalarOp::Convert]) {
        // complex numbers are copied as bits, and their arithmetic is the same at all levels
        let moves = matches!(fun, ScalarOp::Copy | ScalarOp::Select);
        for from in DType::all().filter(|from| moves || !from.is_complex()) {
            let compare = three[..6].contains(&fun);
            for to in DType::all().filter(|to| match fun {
                ScalarOp::Convert => true,
                _ if compare => *to == DType::Bool,
                _ => *to == from,
            }) {
                let (x, y, z) = (operand(from, 77), operand(from, 99), operand(from, 123));
                let which = operand(DType::Bool, 5);
                let a = if fun == ScalarOp::Select { &which } else { &x };
                let run = |h: KernelVariant| {
                    let kernel = select_at(fun, from, to, h)?;
                    let mut d = Buffer::zeroed(16 * n).unwrap();
                    // SAFETY: every buffer has space for `n` elements of any type.
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
                let Some(expected) = run(KernelVariant { level: IsaLevel::Base, stream: false }) else {
                    continue;
                };
                for h in levels() {
                    let got = run(h).unwrap();
                    for (g, w) in got.chunks(to.size()).zip(expected.chunks(to.size())) {
                        // the processor decides which NaN is the result
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
