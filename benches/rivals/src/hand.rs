//! The hand-written implementations: loops that the compiler vectorises, on rayon's threads,
//! writing into memory that is reused between calls.

use crate::bench::{Case, HOST, ROWS, case, data, mean, size, unchecked};
use rayon::prelude::*;

/// The elements per task.
const TASK: usize = 1 << 16;

/// Runs `f` on matching chunks of `task` elements of `y` and `x`; a single chunk runs on this
/// thread.
fn each(y: &mut [f32], x: &[f32], task: usize, f: impl Fn(&mut [f32], &[f32]) + Sync) {
    if y.len() <= task {
        f(y, x);
    } else {
        y.par_chunks_mut(task).zip(x.par_chunks(task)).for_each(|(y, x)| f(y, x));
    }
}

/// Returns a case that runs `f` from `x` into a buffer that is reused. A copy of the first result
/// is compared.
fn keep(x: Vec<f32>, task: usize, f: impl Fn(&mut [f32], &[f32]) + Sync + 'static) -> Option<Case> {
    let mut y = vec![0f32; x.len()];
    let mut result = vec![0f32; x.len()];
    each(&mut result, &x, task, &f);
    let check = mean(&result);
    drop(result);
    case(
        move |()| check,
        move || {
            each(&mut y, &x, task, &f);
            std::hint::black_box(&mut y);
        },
    )
}

pub fn line(line: &str) -> Option<Case> {
    let n = size(line);
    match line.split('/').next()? {
        "affine" => {
            keep(data(1, n * n, 1.0), TASK, |y, x| y.iter_mut().zip(x).for_each(|(y, &x)| *y = 2.0 * x + 1.0))
        }
        "sin" => keep(data(1, n * n, 1.0), TASK, |y, x| {
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = 2.0 * sin(x) + 1.0)
        }),
        "sum" => {
            let x = data(1, n * n, 1.0);
            case(
                |y: &Vec<f32>| mean(y),
                move || {
                    let part = |rows: &[f32]| {
                        let mut s = vec![0f32; n];
                        rows.chunks(n).for_each(|r| add(&mut s, r));
                        s
                    };
                    let zero = || vec![0f32; n];
                    x.par_chunks(n * 512).map(part).reduce(zero, |mut a, b| {
                        add(&mut a, &b);
                        a
                    })
                },
            )
        }
        "matvec" => {
            let (x, y) = (data(1, n * n, 1.0), data(2, n, 1.0));
            case(
                |z: &Vec<f32>| mean(z),
                move || x.par_chunks(n).with_min_len(64).map(|r| dot(r, &y)).collect::<Vec<f32>>(),
            )
        }
        "heat1d" => {
            let n = 1 << 20;
            let x = data(1, n, 1.0);
            case(
                |y: &Vec<f32>| mean(y),
                move || {
                    steps(&x, 100, |b, a| {
                        b[1..n - 1].par_chunks_mut(1 << 17).enumerate().for_each(|(i, b)| {
                            let a = &a[i << 17..(i << 17) + b.len() + 2];
                            for (b, a) in b.iter_mut().zip(a.windows(3)) {
                                *b = 0.5 * a[1] + 0.25 * a[0] + 0.25 * a[2];
                            }
                        });
                    })
                },
            )
        }
        "stencil2d" => {
            let n = 2048;
            let x = data(1, n * n, 1.0);
            case(
                |y: &Vec<f32>| mean(y),
                move || {
                    steps(&x, 20, |b, a| {
                        b[n..n * (n - 1)].par_chunks_mut(n * 64).enumerate().for_each(|(i, b)| {
                            for (k, b) in b.chunks_mut(n).enumerate() {
                                let r = (i * 64 + k + 1) * n;
                                let (u, c, d) = (&a[r - n..r], &a[r..r + n], &a[r + n..r + 2 * n]);
                                for j in 1..n - 1 {
                                    b[j] = c[j] + 0.1 * (u[j] + d[j] + c[j - 1] + c[j + 1] - 4.0 * c[j]);
                                }
                            }
                        });
                    })
                },
            )
        }
        "softmax" => keep(data(1, ROWS.0 * ROWS.1, 1.0), 64 * ROWS.1, |y, x| {
            for (y, x) in y.chunks_mut(ROWS.1).zip(x.chunks(ROWS.1)) {
                y.copy_from_slice(x);
                softmax_in_place(y);
            }
        }),
        "layernorm" => keep(data(1, ROWS.0 * ROWS.1, 1.0), 64 * ROWS.1, |y, x| {
            for (y, x) in y.chunks_mut(ROWS.1).zip(x.chunks(ROWS.1)) {
                let n = ROWS.1 as f32;
                let m = sum(x, |x| x) / n;
                let k = 1.0 / (sum(x, |x| (x - m) * (x - m)) / n + 1e-5).sqrt();
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - m) * k);
            }
        }),
        // For each row with s = softmax(x), the gradient of Σ y·s is s · (y − Σ s·y).
        "softmax_grad" => {
            let u = data(2, ROWS.0 * ROWS.1, 1.0);
            keep_pairs(data(1, ROWS.0 * ROWS.1, 1.0), u, |y, x, u| {
                y.copy_from_slice(x);
                softmax_in_place(y);
                let t = dot(y, u);
                y.iter_mut().zip(u).for_each(|(s, &u)| *s *= u - t);
            })
        }
        // For each row with z = norm(x), the gradient of Σ u·z is k · (u − mean(u) − z ·
        // mean(u·z)).
        "layernorm_grad" => {
            let u = data(2, ROWS.0 * ROWS.1, 1.0);
            keep_pairs(data(1, ROWS.0 * ROWS.1, 1.0), u, |y, x, u| {
                let n = ROWS.1 as f32;
                let m = sum(x, |x| x) / n;
                let k = 1.0 / (sum(x, |x| (x - m) * (x - m)) / n + 1e-5).sqrt();
                y.iter_mut().zip(x).for_each(|(y, &x)| *y = (x - m) * k);
                let (mean, along) = (sum(u, |u| u) / n, dot(y, u) / n);
                y.iter_mut().zip(u).for_each(|(z, &u)| *z = k * (u - mean - *z * along));
            })
        }
        // The result is a new vector at each call, as in the other implementations.
        "to_vec" => {
            let x = data(1, HOST, 1.0);
            case(unchecked, move || x.clone())
        }
        _ => None,
    }
}

/// Like [`keep`], for rows of two arrays.
fn keep_pairs(
    x: Vec<f32>,
    u: Vec<f32>,
    f: impl Fn(&mut [f32], &[f32], &[f32]) + Sync + 'static,
) -> Option<Case> {
    let mut y = vec![0f32; x.len()];
    let all = move |y: &mut [f32]| {
        let (x, u) = (x.par_chunks(ROWS.1), u.par_chunks(ROWS.1));
        y.par_chunks_mut(ROWS.1).with_min_len(64).zip(x).zip(u).for_each(|((y, x), u)| f(y, x, u));
    };
    all(&mut y);
    let check = mean(&y);
    case(move |()| check, move || all(&mut y))
}

/// Runs `n` steps that alternate between two buffers.
fn steps(x: &[f32], n: usize, f: impl Fn(&mut [f32], &[f32])) -> Vec<f32> {
    let (mut a, mut b) = (x.to_vec(), x.to_vec());
    for _ in 0..n {
        f(&mut b, &a);
        std::mem::swap(&mut a, &mut b);
    }
    a
}

fn add(a: &mut [f32], b: &[f32]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

/// Returns the dot product, with 64 partial sums.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut s = [0f32; 64];
    for (a, b) in a.as_chunks::<64>().0.iter().zip(b.as_chunks::<64>().0) {
        for i in 0..64 {
            s[i] = a[i].mul_add(b[i], s[i]);
        }
    }
    s.iter().sum()
}

fn sum(a: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut s = [0f32; 64];
    for a in a.as_chunks::<64>().0 {
        for i in 0..64 {
            s[i] += f(a[i]);
        }
    }
    s.iter().sum()
}

fn max(a: &[f32]) -> f32 {
    let mut s = [f32::MIN; 64];
    for a in a.as_chunks::<64>().0 {
        for i in 0..64 {
            s[i] = if a[i] > s[i] { a[i] } else { s[i] };
        }
    }
    s.iter().fold(f32::MIN, |a, &b| a.max(b))
}

/// Replaces a row, whose length is a multiple of 64, by its softmax.
pub fn softmax_in_place(y: &mut [f32]) {
    let m = max(y);
    y.iter_mut().for_each(|y| *y = exp(*y - m));
    let k = 1.0 / sum(y, |x| x);
    y.iter_mut().for_each(|y| *y *= k);
}

/// Approximates exp in float32: 2ⁿ times a polynomial, within about 2 units in the last place.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E + 12_582_912.0) - 12_582_912.0;
    let r = n.mul_add(2.121_944_4e-4, n.mul_add(-0.693_359_4, x));
    let p = [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_65, 0.5];
    let p = p.iter().fold(1.987_569_1e-4_f32, |p, c| p.mul_add(r, *c));
    let p = p.mul_add(r * r, r + 1.0);
    // SAFETY: `n` is an integer between -126 and 127.
    let n = unsafe { n.to_int_unchecked::<i32>() };
    p * f32::from_bits(((n + 127) << 23) as u32)
}

/// Approximates sin as atmesh does: in float64, by a polynomial over half a period, rounded once.
/// Valid for small |x|.
#[inline(always)]
fn sin(x: f32) -> f32 {
    let x = f64::from(x);
    let n = (x * std::f64::consts::FRAC_1_PI + 6_755_399_441_055_744.0) - 6_755_399_441_055_744.0;
    let r = n.mul_add(-std::f64::consts::PI, x);
    let s = r * r;
    let p = [
        -2.505_210_838_544_172e-8,
        2.755_731_922_398_589e-6,
        -1.984_126_984_126_984e-4,
        8.333_333_333_333_333e-3,
        -1.0 / 6.0,
    ];
    let p = p.iter().fold(1.605_904_383_682_161e-10_f64, |p, c| p.mul_add(s, *c));
    let y = (p * s).mul_add(r, r);
    // SAFETY: `n` is an integer of a few digits, so it fits in an `i64`.
    let odd = unsafe { n.to_int_unchecked::<i64>() } as u64;
    f64::from_bits(y.to_bits() ^ (odd << 63)) as f32
}
