//! Reductions, also over short trailing dimensions, and pooling.

use super::{Options, indices, uniform};
use atmesh::prelude::*;

pub(crate) fn reductions(o: &Options) -> Result<()> {
    let (s, n) = (|n| o.scaled(n), |n| o.fixed(n));
    let x = |rows, columns| uniform(1, &[s(rows), n(columns)]);
    unary!(o, "reduce/max_rows", x(4096, 4096), |x: &Array| x.max(1));
    unary!(o, "reduce/sum_columns", x(4096, 4096), |x: &Array| x.sum(0));
    unary!(o, "reduce/sum_all", uniform(1, &[s(1 << 24)]), |x: &Array| x.sum(..));
    unary!(o, "reduce/var_rows", x(4096, 4096), |x: &Array| x.var(1));
    unary!(o, "reduce/argmax_rows", x(4096, 1024), |x: &Array| x.argmax(1));
    unary!(o, "reduce/argmax_columns", x(4096, 1024), |x: &Array| x.argmax(0));
    unary!(o, "reduce/cumsum_rows", x(1024, 4096), |x: &Array| x.cumsum(1));
    unary!(o, "reduce/cumsum_columns", x(4096, 1024), |x: &Array| x.cumsum(0));
    let images = uniform(1, &[s(32), 64, n(56), n(56)]);
    unary!(o, "reduce/batch_norm", images, |x: &Array| (x.mean([0, 2, 3]), x.var([0, 2, 3])));
    let (m, k) = (n(2048), n(32));
    let rows = s(2048);
    binary!(
        o,
        "reduce/distances",
        uniform(1, &[rows, k]),
        uniform(2, &[m, k]),
        move |x: &Array, y: &Array| { (x.reshape([rows, 1, k]) - y.reshape([1, m, k])).square().sum(-1) }
    );
    let (rows, classes) = (s(4096), n(32000));
    let labels = indices(rows, classes);
    binary!(o, "reduce/cross_entropy", x(4096, 32000), labels, move |x: &Array, i: &Array| {
        let correct = x.take_along_axis(&i.reshape([rows, 1]), 1).reshape([rows]);
        (x.logsumexp(1) - correct).mean(..)
    });
    Ok(())
}

/// Sums of squares over a short last dimension, with an operand that is broadcast along the first.
pub(crate) fn short(o: &Options) -> Result<()> {
    for [rows, m, k] in [
        [1 << 20, 6, 3],
        [1 << 20, 3, 6],
        [1 << 18, 6, 12],
        [1 << 20, 18, 1],
        [104_857, 60, 3],
        [1 << 20, 1, 18],
    ] {
        let name = format!("short/{m}x{k}");
        binary!(
            o,
            &name,
            uniform(1, &[o.scaled(rows), m, k]),
            uniform(2, &[m, k]),
            |z: &Array, s: &Array| { (z - s).square().sum(-1) }
        );
    }
    Ok(())
}

pub(crate) fn pooling(o: &Options) -> Result<()> {
    let large = || uniform(1, &[o.scaled(32), 64, o.fixed(56), o.fixed(56)]);
    unary!(o, "pool/max", large(), |x: &Array| x.max_pool([2, 2]));
    unary!(o, "pool/average", large(), |x: &Array| x.avg_pool([2, 2]));
    let small = uniform(1, &[o.scaled(64), 8, o.fixed(16), o.fixed(16)]);
    unary!(o, "pool/max_small", small.clone(), |x: &Array| x.max_pool([2, 2]));
    unary!(o, "pool/max_gradient", small, |x: &Array| grad(x, |x| x.max_pool([2, 2]).sum(..)));
    Ok(())
}
