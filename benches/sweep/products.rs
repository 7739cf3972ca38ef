//! Convolutions, matrix products and factorizations.

use super::{Options, indices, uniform};
use atmesh::prelude::*;
use atmesh::{ConvOptions, Padding};

/// Returns the options of a convolution whose result has the image's size, divided by the stride.
fn same(stride: usize) -> ConvOptions {
    ConvOptions::default().padding(Padding::Same).strides([stride, stride])
}

pub(crate) fn convolutions(o: &Options) -> Result<()> {
    let (s, n) = (|n| o.scaled(n), |n| o.fixed(n));
    let image = |b, c, size| uniform(1, &[s(b), c, n(size), n(size)]);
    let filter = |out, c, size| uniform(2, &[out, c, size, size]);
    let conv = |x: &Array, w: &Array| x.conv_with(w, same(1));
    binary!(o, "conv/3x3", image(32, 64, 56), filter(64, 64, 3), conv);
    binary!(o, "conv/7x7_stride2", image(8, 3, 224), filter(64, 3, 7), |x: &Array, w: &Array| x
        .conv_with(w, same(2)));
    binary!(o, "conv/1x1", image(32, 256, 14), filter(256, 256, 1), conv);
    binary!(o, "conv/depthwise", image(8, 128, 56), filter(128, 1, 3), |x: &Array, w: &Array| {
        x.conv_with(w, same(1).groups(128))
    });
    binary!(o, "conv/gradient_image", image(8, 64, 28), filter(64, 64, 3), |x: &Array, w: &Array| {
        grad(x, |x| x.conv_with(w, same(1)).square().sum(..))
    });
    binary!(o, "conv/gradient_filter", image(8, 64, 28), filter(64, 64, 3), |x: &Array, w: &Array| {
        grad(w, |w| x.conv_with(w, same(1)).square().sum(..))
    });
    Ok(())
}

pub(crate) fn products(o: &Options) -> Result<()> {
    let (s, n) = (|n| o.scaled(n), |n| o.fixed(n));
    let dot = |x: &Array, y: &Array| x.dot(y);
    let float = |rows, size, dtype| {
        (uniform(1, &[s(rows), n(size)]).astype(dtype), uniform(2, &[n(size), n(size)]).astype(dtype))
    };
    for (name, size, dtype) in [
        ("matmul/f32", 2048, F32),
        ("matmul/f64", 1024, F64),
        ("matmul/bf16", 1024, BF16),
        ("matmul/f16", 1024, F16),
        ("matmul/thin", 4096, F32),
    ] {
        let (x, y) = float(if name == "matmul/thin" { 8 } else { size }, size, dtype);
        binary!(o, name, x, y, dot);
    }
    let integers =
        |rows: usize, columns: usize, below| indices(rows * columns, below).reshape([rows, columns]);
    binary!(o, "matmul/i32", integers(s(512), n(512), 9), integers(n(512), n(512), 7), dot);
    let (x, y) = (uniform(1, &[s(64), n(256), n(64)]), uniform(2, &[s(64), n(64), n(256)]));
    binary!(o, "matmul/batched", x, y, |x: &Array, y: &Array| x.matmul(y));
    let groups = |x: &Array| {
        let sixteenth = x.shape().map_or(0, |s| s[0] as i32 / 16);
        Array::from([1, 0, 4, 2, 3, 1, 3, 2]) * sixteenth
    };
    let (rows, matrices) = (|| uniform(1, &[s(2048), n(512)]), || uniform(2, &[8, n(512), n(512)]));
    binary!(o, "matmul/ragged", rows(), matrices(), move |x: &Array, w: &Array| x.ragged_dot(w, groups(x)));
    binary!(o, "matmul/ragged_gradient", rows(), matrices(), move |x: &Array, w: &Array| {
        grad(w, |w| x.ragged_dot(&w, groups(x)).square().sum(..))
    });
    let heads = |seed| uniform(seed, &[s(8), 8, n(256), n(64)]);
    binary!(o, "matmul/scores", heads(1), heads(2), |x: &Array, y: &Array| einsum("bhqd,bhkd->bhqk", [x, y]));
    Ok(())
}

pub(crate) fn linear_algebra(o: &Options) -> Result<()> {
    let (large, small) = (o.scaled(512), o.scaled(256));
    let definite = |n: usize| {
        let a = uniform(1, &[n, n]);
        a.dot(a.t()) + Array::eye([n, n], 0) * n
    };
    unary!(o, "linalg/cholesky", definite(large), |x: &Array| x.cholesky());
    binary!(o, "linalg/solve", definite(large), uniform(2, &[large, 16]), |x: &Array, y: &Array| x.solve(y));
    unary!(o, "linalg/qr", uniform(1, &[large, large]), |x: &Array| x.qr(false));
    unary!(o, "linalg/svd", uniform(1, &[small, small]), |x: &Array| x.svd(false));
    unary!(o, "linalg/eigh", definite(small), |x: &Array| x.eigh());
    unary!(o, "linalg/inv_batched", uniform(1, &[o.scaled(1000), 8, 8]), |x: &Array| x.inv());
    Ok(())
}
