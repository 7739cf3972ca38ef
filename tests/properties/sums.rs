//! The order of addition: sums and products add in one order, wherever their operands are.

use super::bits::bits;
use super::holds;
use crate::soak::runs_all;
use atmesh::CollectiveDim;
use atmesh::EngineKind;
use atmesh::prelude::*;
use proptest::prelude::any;
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

/// A product with a sharded contraction adds the devices' partial values like a sum over devices.
#[test]
fn products_over_devices_add_as_sums_do() {
    for (n, own) in [(2usize, 16usize), (3, 16), (5, 9), (6, 16), (8, 16), (7, 700)] {
        let mesh = Mesh::new([("k", n)]).unwrap();
        let (rows, k, columns) = (5, n * own, 4);
        let x = Array::from((0..rows * k).map(|i| ((i * 31) as f32).sin() * 1e3).collect::<Vec<_>>());
        let y = Array::from((0..k * columns).map(|i| ((i * 17) as f32).cos()).collect::<Vec<_>>());
        let (x, y) = (x.reshape([rows, k]), y.reshape([k, columns]));
        let part = |d: usize| {
            let own = (d * own) as i32..((d + 1) * own) as i32;
            x.slice(ix![.., own.clone()]).dot(y.slice(ix![own]))
        };
        let mut level: Vec<Array> = (0..n).map(part).collect();
        while level.len() > 1 {
            level = level.chunks(2).map(|p| if let [a, b] = p { a + b } else { p[0].clone() }).collect();
        }
        let want = bits(&level[0]).unwrap();
        for engine in [Lockstep, Threads] {
            let f = jit(|x: &Array, y: &Array| x.dot_to(y, p![_, _])).engine(engine);
            let (x, y) = (x.put(&mesh, p![_, "k"]), y.put(&mesh, p!["k", _]));
            assert_collectives!(f.lower((&x, &y)).unwrap(), AllReduce("k") x 1);
            let got = f.call((&x, &y)).unwrap();
            assert_eq!(bits(&got).unwrap(), want, "{n} devices, {engine}");
        }
    }
}

/// The operand of a sum may be in memory or computed on the fly, with contiguous or strided rows:
/// the order of summation is the same.
#[test]
fn sums_of_computed_values_have_one_order() {
    let shapes: [&[usize]; 6] = [&[2000], &[3, 1000], &[300, 40], &[7, 5, 33], &[400, 3], &[20, 13, 600]];
    for shape in shapes {
        let n: usize = shape.iter().product();
        let x = Array::from((0..n).map(|i| ((i * 31) as f32).sin() * 1e3).collect::<Vec<_>>()).reshape(shape);
        let row = x.slice(ix![0..1]) * 0.3;
        let whole: [&dyn Fn(&Array) -> Array; 5] = [
            &|x| x * 1.7,
            &|x| x + &row,
            &|x| (x.astype(F64) * 1.1).astype(F32),
            &|x| x.sin().astype(F64),
            &|x| (x * 0.01).astype(F16),
        ];
        for (k, f) in whole.iter().enumerate() {
            for dims in 0..1 << shape.len() {
                let dims: Vec<usize> = (0..shape.len()).filter(|d| dims >> d & 1 == 1).collect();
                let at_once = f(&x).sum(&dims[..]);
                let jitted = jit(|x: &Array| f(x).sum(&dims[..])).call(&x).unwrap();
                assert_eq!(bits(&jitted).unwrap(), bits(&at_once).unwrap(), "{shape:?}, {dims:?}, {k}");
            }
        }
    }
}

/// The operand of a sum may be joined, padded, rolled, shifted or cut of other values: the order of
/// summation is that of the same value in memory.
#[test]
fn sums_of_pieces_have_one_order() {
    let pieces = |kind: u8, d: i32, by: i64, x: &Array, y: &Array| {
        let pad = |side: (i64, i64, usize)| {
            x.pad(
                0.5,
                (0..x.ty().map_or(0, |t| t.rank())).map(|k| if k as i32 == d { side } else { (0, 0, 0) }),
            )
        };
        match kind % 10 {
            0 => x.roll(by, d),
            1 => x.flip(d),
            2 => pad((1, 2, 0)),
            3 => pad((by % 3 - 1, 2, 1)),
            4 => concat([x, y], d),
            5 => concat([x, y, x, y, x, y, x, y, x, y], d),
            6 => stack([x, y, x], d),
            7 => stack([x, y, x, y, x, y, x, y, x, y, x, y, x, y, x, y, x], d),
            8 => x.shift(by, d, 1.0),
            _ => x.split(vec![1, x.shape().map_or(1, |s| s[d as usize]) - 1], d).swap_remove(1),
        }
    };
    let shapes =
        vec![vec![7, 5], vec![15, 24], vec![40, 3], vec![7, 1], vec![1, 40], vec![300, 33], vec![9, 5, 34]];
    let cases = (select(shapes), any::<[u8; 3]>(), any::<u8>(), 0..9i64, select(vec![F32, F32, F64, F16]));
    holds(200, cases, |(shape, kinds, dims, by, dtype)| {
        let fail = |e: atmesh::Error| TestCaseError::fail(format!("{e}"));
        let n: usize = shape.iter().product();
        let of = |k: usize| {
            let x = (0..n).map(|i| ((i * 31 + k) as f32).sin() * 1e3).collect::<Vec<_>>();
            Array::from(x).astype(dtype).reshape(&shape[..])
        };
        let (x, y) = (of(0), of(7));
        let joined = |x: &Array, y: &Array| -> Result<Array> {
            let mut made = x.clone();
            for kind in &kinds[..1 + usize::from(dims) % 2] {
                let sizes = made.shape()?;
                let rank = sizes.len();
                let d = usize::from(kinds[2]) % rank;
                if sizes.iter().product::<usize>() < 20_000 && sizes[d] > 1 {
                    let other = if made.shape()? == y.shape()? { y.clone() } else { &made * 0.5 };
                    made = pieces(*kind, d as i32, by, &made, &other);
                }
            }
            let rank = made.ty()?.rank();
            let dims: Vec<usize> = (0..rank).filter(|d| dims >> (d + 1) & 1 == 1).collect();
            Ok(made.sum(&dims[..]))
        };
        let want = joined(&x, &y).and_then(|y| bits(&y)).map_err(fail)?;
        for engine in [Lockstep, Threads] {
            let got = jit(joined).engine(engine).call((&x, &y)).and_then(|y| bits(&y)).map_err(fail)?;
            let differ = got.iter().zip(&want).filter(|(g, w)| g != w).count();
            if got.len() != want.len() || differ > 0 {
                let all = want.len();
                return Err(TestCaseError::fail(format!("{engine}: {differ} of {all} sums have other bits")));
            }
        }
        Ok(())
    });
}

/// Every sum of floats starts with +0, so that a sum of −0s is +0: in a block, over devices, in
/// traced per-device code and in native device code.
#[test]
fn sums_of_negative_zeros_are_zero() {
    let mut wrong = Vec::new();
    for dtype in [F32, F64, BF16] {
        let less = |shape: &[usize]| Array::zeros(F64.array_type(shape)).astype(dtype) * -1.0;
        let mut zero = |what: &str, x: Result<Array>| {
            let got = x.and_then(|x| bits(&x)).unwrap_or_else(|e| panic!("{what}: {e}"));
            if got.iter().any(|b| *b != 0) {
                wrong.push(format!("{what} {dtype}: {:#x}", got[0]));
            }
        };
        for shape in [[1, 3], [2, 3], [3, 1], [8, 5], [9, 2], [600, 2], [70, 130]] {
            let x = less(&shape);
            for dims in [&[0][..], &[1], &[0, 1]] {
                let what = format!("{shape:?} over {dims:?}");
                zero(&format!("{what}, at once"), x.sum(dims).ready());
                for engine in [Lockstep, Threads, EngineKind::Reference] {
                    zero(&format!("{what}, {engine}"), jit(|x: &Array| x.sum(dims)).engine(engine).call(&x));
                    zero(
                        &format!("{what}, {engine}, computed"),
                        jit(|x: &Array| (x * 2.0).sum(dims)).engine(engine).call(&x),
                    );
                }
            }
        }
        for n in [1, 2, 3, 8, 30] {
            let mesh = Mesh::new([("X", n)]).unwrap();
            for own in [1, 2, 4200] {
                let x = less(&[n, own]).put(&mesh, p!["X", _]);
                let what = format!("{own} on each of {n} devices");
                zero(&format!("{what}, at once"), x.sum(0).ready());
                // the reference engine takes long for many elements
                let count = if own > 100 && !runs_all() { 2 } else { 3 };
                for engine in [Lockstep, Threads, EngineKind::Reference].into_iter().take(count) {
                    let sum = jit(|x: &Array| x.sum_to(0, p![_])).engine(engine);
                    zero(&format!("{what}, sum, {engine}"), sum.call(&x));
                    let psum = shard_map(&mesh, p!["X", _], p![_, _], |x: &Array| x.psum("X"));
                    zero(&format!("{what}, psum, {engine}"), jit(psum).engine(engine).call(&x));
                    let scattered = |x: &Array| {
                        x.ravel().broadcast_to([n, own]).psum_scatter("X", CollectiveDim::tiled(0))
                    };
                    let scattered = jit(shard_map(&mesh, p!["X", _], p!["X", _], scattered)).engine(engine);
                    zero(&format!("{what}, psum_scatter, {engine}"), scattered.call(&x));
                }
            }
        }
    }
    for n in [1, 2, 3, 30] {
        let mesh = Mesh::new([("X", n)]).unwrap();
        for own in [1, 5000] {
            let code = |dev: &atmesh::Device| {
                let x = atmesh::nd::Array1::from_elem(own, -0.0f32);
                let share = dev.psum_scatter(&atmesh::nd::Array1::from_elem(n, -0.0f64), "X", 0)?;
                Ok((dev.psum(&x, "X")?, dev.psum_scalar(-0.0f64, "X")?, share))
            };
            let (all, one, shares) = spmd(&mesh, (), (p![], p![], p!["X"]), code).call(()).unwrap();
            for (what, x) in [("psum", all), ("psum_scalar", one), ("psum_scatter", shares)] {
                if bits(&x).unwrap().iter().any(|b| *b != 0) {
                    wrong.push(format!("{what} of one's own code on {n} devices"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are −0: {:#?}", wrong.len(), &wrong[..wrong.len().min(40)]);
}
