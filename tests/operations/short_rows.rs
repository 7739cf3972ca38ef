//! Arrays with short trailing dimensions: operands that repeat, and the order of their sums.

use crate::soak::part;
use atmesh::prelude::*;
use atmesh::{EngineKind, WindowOptions};

/// Element types of every size, signed and unsigned.
const TYPES: [DType; 9] = [F32, F64, F16, BF16, I8, U8, I32, I64, C128];
/// Shapes with two short dimensions, around the sizes at which rows become flat or long.
const SHAPES: [[usize; 3]; 12] = [
    [700, 6, 3],
    [341, 3, 6],
    [342, 2, 3],
    [43, 6, 12],
    [2100, 18, 1],
    [1025, 1, 18],
    [64, 32, 3],
    [65, 31, 3],
    [50, 60, 3],
    [90, 7, 48],
    [60, 33, 49],
    [40, 1, 64],
];

/// Returns small integers of this type in an array of this shape.
fn small(d: DType, seed: usize, shape: &[usize]) -> (Array, Vec<i64>) {
    let n: usize = shape.iter().product();
    let values: Vec<i64> = (0..n).map(|k| ((k * 7 + seed) * (k + 3) / 5 % 4) as i64).collect();
    (Array::from(values.clone()).reshape(shape.to_vec()).astype(d), values)
}

/// Returns floats of this type with zeros of both signs, infinities and NaN, as [n, k].
fn special(d: DType, n: usize, k: usize) -> Array {
    let one = |i: usize| match i % 97 {
        13 => f64::INFINITY,
        14 if i.is_multiple_of(5) => f64::NAN,
        15..=60 if (i / 400).is_multiple_of(2) => -0.0,
        x => (x as f64 - 40.0) * 1.37f64.powi((i % 11) as i32),
    };
    let x = Array::from((0..n * k).map(one).collect::<Vec<f64>>()).reshape([n, k]);
    if d.is_complex() { x.complex(&x + 1.0).astype(d) } else { x.astype(d) }
}

/// Returns the bits of all elements, the same for each NaN.
fn bits(x: &Array) -> Vec<u64> {
    let parts =
        if x.dtype().is_ok_and(|d| d.is_complex()) { vec![x.real(), x.imag()] } else { vec![x.clone()] };
    let all = parts.iter().flat_map(|x| x.astype(F64).to_vec::<f64>().unwrap());
    all.map(|v| if v.is_nan() { 1 } else { v.to_bits() }).collect()
}

/// Returns the columns of an array `[n, k]`, reduced in the order of one row of `k` elements.
fn as_row(x: &Array, op: fn(&Array, &Array) -> Array) -> Array {
    let d = x.dtype().unwrap();
    let wide = if d.size() == 2 && d.is_float() { F32 } else { d };
    let mut lanes = columns(&x.astype(wide));
    for half in [32, 16, 8, 4, 2, 1] {
        for j in half..lanes.len().max(half) {
            lanes[j - half] = op(&lanes[j - half], &lanes[j]);
        }
        lanes.truncate(half);
    }
    lanes[0].astype(d)
}

/// Returns the columns of an array `[n, k]`, reduced in the order of `k` rows.
fn as_rows(x: &Array, op: fn(&Array, &Array) -> Array) -> Array {
    let d = x.dtype().unwrap();
    let wide = if d.size() == 2 && d.is_float() { F32 } else { d };
    let columns = columns(&x.astype(wide));
    let (whole, rest) = columns.split_at(columns.len() / 8 * 8);
    let mut sum: Option<Array> = None;
    let mut add = |x: Array| sum = Some(sum.as_ref().map_or_else(|| x.clone(), |s| op(s, &x)));
    for c in whole.chunks(8) {
        let pair = |k: usize| op(&op(&c[k], &c[k + 1]), &op(&c[k + 2], &c[k + 3]));
        add(op(&pair(0), &pair(4)));
    }
    rest.iter().for_each(|x| add(x.clone()));
    sum.unwrap().astype(d)
}

fn columns(x: &Array) -> Vec<Array> {
    let k = x.shape().unwrap()[1];
    (0..k).map(|j| x.slice(ix![.., j as i64])).collect()
}

fn sum(a: &Array, b: &Array) -> Array {
    a + b
}

#[test]
fn sums_have_the_documented_order() {
    for d in part(TYPES, 3).chain([F32]) {
        for [n, m, k] in SHAPES {
            let x = special(d, n * m, k);
            let kept = if k == 1 || m > 1 { m } else { n };
            let rows = k == 1 || k <= 48 && kept >= 32;
            let order = if rows { as_rows } else { as_row };
            // (a sum starts from 0)
            // (small integers are added as the type of their sum)
            let total = x.sum(..).dtype().unwrap();
            let want = bits(&(order(&x.astype(total), sum) + Array::zeros([]).astype(total)));
            let name = format!("{d} [{n},{m},{k}]");
            let x = x.reshape([n, m, k]).ready().unwrap();
            let of = |f: fn(&Array) -> Array| bits(&jit(f).call(&x).unwrap().reshape([n * m]));
            assert_eq!(of(|x| x.sum(-1)), want, "{name}");
            assert_eq!(
                of(|x| (x + x - x).sum(-1)),
                bits(&{
                    let y = (&x + &x - &x).reshape([n * m, k]);
                    order(&y.astype(total), sum) + Array::zeros([]).astype(total)
                }),
                "{name}, computed"
            );
            if !d.is_complex() {
                let want = bits(&order(&x.reshape([n * m, k]), |a, b| a.maximum(b)));
                assert_eq!(of(|x| x.max(-1)), want, "{name}, maximum");
            }
        }
    }
}

#[test]
fn operands_repeat_within_flat_rows() {
    for d in part(TYPES, 3).chain([F32]) {
        for [n, m, k] in SHAPES {
            let ((z, a), (s, b)) = (small(d, 1, &[n, m, k]), small(d, 2, &[m, k]));
            let ((t, c), (u, e)) = (small(d, 3, &[n, m, 1]), small(d, 4, &[n, 1, k]));
            let ((v, g), (w, h)) = (small(d, 5, &[1, m, 1]), small(d, 6, &[k, m, n]));
            let f = jit(|(z, s, t, u, v, w): (Array, Array, Array, Array, Array, Array)| {
                let y = &z * 2 + &s * &t + (&u + &v) + w.transpose([2, 1, 0]);
                (z + &s, &y + t, y.sum(-1))
            });
            let (x, y, total) = f.call((&z, &s, &t, &u, &v, &w)).unwrap();
            let index = (0..n * m * k).map(|i| (i / (m * k), i / k % m, i % k));
            let want = |(i, j, l): (usize, usize, usize)| {
                2 * a[(i * m + j) * k + l]
                    + b[j * k + l] * c[i * m + j]
                    + e[i * k + l]
                    + g[j]
                    + h[(l * m + j) * n + i]
            };
            let read = |x: &Array| {
                if d.is_complex() { x.real() } else { x.clone() }.astype(I64).to_vec::<i64>().unwrap()
            };
            let name = format!("{d} [{n},{m},{k}]");
            let simple: Vec<i64> =
                index.clone().map(|(i, j, l)| a[(i * m + j) * k + l] + b[j * k + l]).collect();
            assert_eq!(read(&x), simple, "{name}");
            let values: Vec<i64> = index.clone().map(want).collect();
            let more: Vec<i64> = index.map(|p| want(p) + c[p.0 * m + p.1]).collect();
            assert_eq!(read(&y), more, "{name}, all operands");
            if d.size() > 2 {
                let sums: Vec<i64> = values.chunks(k).map(|r| r.iter().sum()).collect();
                assert_eq!(read(&total), sums, "{name}, sums");
            }
        }
    }
}

#[test]
fn windows_reduce_their_elements_only() {
    for (h, w, size, stride) in
        [(56, 56, 2, 2), (30, 33, 3, 2), (16, 16, 2, 2), (70, 70, 2, 2), (20, 9, 3, 1)]
    {
        let (x, a) = small(F32, 1, &[3, 5, h, w]);
        let (oh, ow) = ((h - size) / stride + 1, (w - size) / stride + 1);
        let at = |p: usize, i: usize, j: usize| a[(p * h + i) * w + j];
        let windows = (0..15 * oh * ow).map(|k| (k / (oh * ow), k / ow % oh, k % ow));
        let elements = |(p, i, j): (usize, usize, usize)| {
            (0..size * size).map(move |t| at(p, i * stride + t / size, j * stride + t % size))
        };
        let want: Vec<(i64, i64)> =
            windows.map(|k| (elements(k).max().unwrap(), elements(k).sum())).collect();
        let f = move |x: &Array| {
            let options = || WindowOptions::default().strides([stride, stride]);
            let area = (size * size) as f32;
            let y = (x + 1.0).max_pool_with([size, size], options()) - 1.0;
            (x.max_pool_with([size, size], options()), x.avg_pool_with([size, size], options()) * area, y)
        };
        for engine in [EngineKind::Lockstep, EngineKind::Reference] {
            let (most, all, computed) = jit(f).engine(engine).call(&x).unwrap();
            let read = |x: &Array| x.round().astype(I64).to_vec::<i64>().unwrap();
            let name = format!("[{h},{w}] by {size}, {engine:?}");
            assert_eq!(read(&most), want.iter().map(|w| w.0).collect::<Vec<_>>(), "{name}");
            assert_eq!(read(&computed), read(&most), "{name}, computed");
            assert_eq!(read(&all), want.iter().map(|w| w.1).collect::<Vec<_>>(), "{name}");
        }
    }
}
