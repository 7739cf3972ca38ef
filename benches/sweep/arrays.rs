//! Sorts, transposes, copies and indexing.

use super::{Options, indices, uniform};
use atmesh::prelude::*;

pub(crate) fn sorts(o: &Options) -> Result<()> {
    let (long, rows) = (o.scaled(1 << 20), o.scaled(4096));
    unary!(o, "sort/long", uniform(1, &[long]), |x: &Array| x.sort(0));
    unary!(o, "sort/rows", uniform(1, &[rows, o.fixed(256)]), |x: &Array| x.sort(1));
    unary!(o, "sort/argsort", uniform(1, &[long]), |x: &Array| x.argsort(0));
    unary!(o, "sort/top_k", uniform(1, &[o.scaled(256), o.fixed(32000)]), |x: &Array| x.top_k(50, 1));
    unary!(o, "sort/median", uniform(1, &[rows, o.fixed(256)]), |x: &Array| x.median(1));
    Ok(())
}

pub(crate) fn moves(o: &Options) -> Result<()> {
    let (rows, n) = (o.scaled(4096), o.fixed(4096));
    let square = || uniform(1, &[rows, n]);
    unary!(o, "copy/transpose", square(), |x: &Array| x.t() + 0.0);
    let heads = uniform(1, &[o.scaled(64), o.fixed(128), 16, o.fixed(64)]);
    unary!(o, "copy/transpose_heads", heads, |x: &Array| x.transpose([0, 2, 1, 3]) + 0.0);
    let half = |seed| uniform(seed, &[rows, o.fixed(1024)]);
    binary!(o, "copy/concat", half(1), half(2), |x: &Array, y: &Array| concat([x, y], 1));
    unary!(o, "copy/pad", square(), |x: &Array| x.pad(0.0, [(1, 1, 0), (1, 1, 0)]));
    unary!(o, "copy/flip_roll", square(), |x: &Array| x.flip(1).roll(5, 0) + 0.0);
    Ok(())
}

pub(crate) fn indexing(o: &Options) -> Result<()> {
    let (rows, columns) = (100_000, o.fixed(128));
    let (many, scalars) = (o.scaled(65_536), o.scaled(1 << 20));
    let table = uniform(1, &[rows, columns]);
    let take = |x: &Array, i: &Array| x.take(i, 0);
    binary!(o, "index/take_rows", table, indices(many, rows), take);
    binary!(o, "index/take_scalars", uniform(1, &[scalars]), indices(scalars, scalars), take);
    let values = uniform(1, &[many, columns]);
    binary!(o, "index/scatter_add", values, indices(many, rows), move |v: &Array, i: &Array| {
        Array::zeros([rows, columns]).at(ix![i]).add(v)
    });
    unary!(o, "index/bincount", indices(scalars, 256), |i: &Array| i.bincount(256));
    Ok(())
}
