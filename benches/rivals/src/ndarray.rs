//! The ndarray implementations, with rayon and the threads of matrixmultiply: what one writes
//! without a framework, with gradients by hand.

use crate::bench::{ATTENTION, Case, HOST, MLP, ROWS, case, data, many, mean, size, unchecked};
use crate::hand;
use ndarray::parallel::prelude::*;
use ndarray::{Array1, Array2, Axis, Zip, s};

fn array(seed: u32, n: usize, m: usize, by: f32) -> Array2<f32> {
    Array2::from_shape_vec((n, m), data(seed, n * m, by)).expect("as many numbers as the shape has")
}

fn check(x: &Array2<f32>) -> f64 {
    mean(x.as_slice().unwrap())
}

fn check1(x: &Array1<f32>) -> f64 {
    mean(x.as_slice().unwrap())
}

/// Applies `f` elementwise, on all cores if the array is large enough.
fn map(x: &Array2<f32>, f: impl Fn(f32) -> f32 + Sync + Send) -> Array2<f32> {
    if x.len() < 1 << 16 {
        return x.mapv(f);
    }
    let mut y = Array2::zeros(x.dim());
    Zip::from(&mut y).and(x).par_for_each(|y, &x| *y = f(x));
    y
}

pub fn line(line: &str) -> Option<Case> {
    let n = size(line);
    let table = || array(1, ROWS.0, ROWS.1, 1.0);
    match line.split('/').next()? {
        "affine" => {
            let x = array(1, n, n, 1.0);
            case(check, move || map(&x, |x| 2.0 * x + 1.0))
        }
        "sin" => {
            let x = array(1, n, n, 1.0);
            case(check, move || map(&x, |x| 2.0 * x.sin() + 1.0))
        }
        "sum" => {
            let x = array(1, n, n, 1.0);
            case(check1, move || x.sum_axis(Axis(0)))
        }
        "matmul" => {
            let (x, y) = (array(1, n, n, 1.0), array(2, n, n, 1.0));
            case(check, move || x.dot(&y))
        }
        "matvec" => {
            let (x, y) = (array(1, n, n, 1.0), Array1::from(data(2, n, 1.0)));
            case(check1, move || x.dot(&y))
        }
        "logistic" => {
            let x = array(1, 1024, 32, 1.0);
            let y = x.dot(&array(2, 32, 1, 1.0)).mapv(|v| f32::from(v > 0.0));
            let (w, c) = (Array2::<f32>::zeros((32, 1)), 0f32);
            case(
                |r: &(Array2<f32>, f32)| check(&r.0),
                move || {
                    let mut d = x.dot(&w) + c;
                    d.zip_mut_with(&y, |d, &y| {
                        let p = 1.0 / (1.0 + (-*d).exp());
                        *d = (p - y) * p * (1.0 - p) * (2.0 / 1024.0);
                    });
                    (&w - x.t().dot(&d) * 0.01, c - 0.01 * d.sum())
                },
            )
        }
        "mlp" => {
            let (b, d, h) = MLP;
            let (w1, w2) = (array(1, d, h, 0.04), array(2, h, d, 0.03));
            let (x, y) = (array(3, b, d, 1.0), array(4, b, d, 1.0));
            case(
                |r: &(Array2<f32>, Array2<f32>)| check(&r.0),
                move || {
                    let a = x.dot(&w1);
                    let r = a.mapv(|a| a.max(0.0));
                    let e = (r.dot(&w2) - &y) * (2.0 / (b * d) as f32);
                    let g2 = r.t().dot(&e);
                    let mut da = e.dot(&w2.t());
                    da.zip_mut_with(&a, |d, &a| {
                        if a <= 0.0 {
                            *d = 0.0;
                        }
                    });
                    (&w1 - x.t().dot(&da) * 0.01, &w2 - g2 * 0.01)
                },
            )
        }
        "heat1d" => {
            let x = Array1::from(data(1, 1 << 20, 1.0));
            case(check1, move || {
                let mut x = x.clone();
                for _ in 0..100 {
                    let part =
                        &x.slice(s![1..-1]) * 0.5 + &x.slice(s![..-2]) * 0.25 + &x.slice(s![2..]) * 0.25;
                    x.slice_mut(s![1..-1]).assign(&part);
                }
                x
            })
        }
        "stencil2d" => {
            let x = array(1, 2048, 2048, 1.0);
            case(check, move || {
                let (mut x, mut y) = (x.clone(), x.clone());
                for _ in 0..20 {
                    Zip::from(y.slice_mut(s![1..-1, 1..-1]))
                        .and(x.slice(s![1..-1, 1..-1]))
                        .and(x.slice(s![..-2, 1..-1]))
                        .and(x.slice(s![2.., 1..-1]))
                        .and(x.slice(s![1..-1, ..-2]))
                        .and(x.slice(s![1..-1, 2..]))
                        .par_for_each(|y, &c, &u, &d, &l, &r| *y = c + 0.1 * (u + d + l + r - 4.0 * c));
                    std::mem::swap(&mut x, &mut y);
                }
                x
            })
        }
        "softmax" => {
            let x = table();
            case(check, move || {
                let mut y = x.clone();
                y.axis_iter_mut(Axis(0)).into_par_iter().for_each(|mut r| {
                    let m = r.fold(f32::MIN, |a, &b| a.max(b));
                    r.mapv_inplace(|x| (x - m).exp());
                    let s = r.sum();
                    r /= s;
                });
                y
            })
        }
        "layernorm" => {
            let x = table();
            case(check, move || {
                let mut y = x.clone();
                y.axis_iter_mut(Axis(0)).into_par_iter().for_each(|mut r| {
                    let m = r.sum() / ROWS.1 as f32;
                    r -= m;
                    let v = r.fold(0.0, |a, &b| a + b * b) / ROWS.1 as f32;
                    r *= 1.0 / (v + 1e-5f32).sqrt();
                });
                y
            })
        }
        "attention" => {
            let o = ATTENTION;
            let (d, k, n) = (o.features, o.features / o.heads, o.places);
            let x = array(1, o.batch * n, d, 1.0);
            let w: Vec<Array2<f32>> = (0..4).map(|i| array(2 + i, d, d, 0.04)).collect();
            case(check, move || {
                let [q, ke, v] = [0, 1, 2].map(|i| x.dot(&w[i]));
                let mut y = Array2::<f32>::zeros((o.batch * n, d));
                y.axis_chunks_iter_mut(Axis(0), n).into_par_iter().enumerate().for_each(|(i, mut y)| {
                    for j in 0..o.heads {
                        let at = s![i * n..(i + 1) * n, j * k..(j + 1) * k];
                        let mut a = q.slice(at).dot(&ke.slice(at).t());
                        for mut r in a.rows_mut() {
                            let r = r.as_slice_mut().unwrap();
                            r.iter_mut().for_each(|x| *x *= 0.125);
                            hand::softmax_in_place(r);
                        }
                        y.slice_mut(s![.., j * k..(j + 1) * k]).assign(&a.dot(&v.slice(at)));
                    }
                });
                y.dot(&w[3])
            })
        }
        "from_vec" => {
            let v = data(1, HOST, 1.0);
            case(unchecked, move || Array1::from(v.clone()))
        }
        "to_vec" => {
            let x = Array1::from(data(1, HOST, 1.0));
            case(unchecked, move || x.to_vec())
        }
        "add" | "chain" => {
            let four = || Array1::from(vec![1f32, 2.0, 3.0, 4.0]);
            let (x, y) = (four(), four());
            if line == "add" {
                many(1000, check1, move || &x + &y)
            } else {
                many(200, |s: &f32| f64::from(s.abs()), move || ((&x + &y) * 2.0).mapv(f32::sin).sum())
            }
        }
        _ => None,
    }
}
