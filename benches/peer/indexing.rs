//! Places known at run time: a cache that a loop writes, rows of a table, the gradient of a lookup.

use super::{Options, time};
use atmesh::prelude::*;

/// A step that reads and writes a row of a cache of so many rows of 64: per step of 4096, the one copy of the argument among them.
fn cache(o: &Options, rows: usize) -> Result<()> {
    let c = Array::zeros(F32.of([rows, 64]));
    let f = jit(move |c: &Array| {
        fori_loop(0..4096, c, move |i, c| {
            let i = i % rows as i32;
            c.at(ix![&i]).set(c.slice(ix![&i]) + 1.0)
        })
    })
    .engine(o.engine);
    time(o, &format!("indexing/cache_{rows}"), "4096 steps, a row of 64 each", || f.call(&c).map(drop))
}

pub(crate) fn indexing(o: &Options) -> Result<()> {
    for rows in [1 << 10, 1 << 13, 1 << 16] {
        cache(o, rows)?;
    }
    let n = 100_000;
    let table = Key::new(1).normal([1 << 16, 64]);
    let ids = (Array::arange(0..n) * 7919) % (1 << 16);
    let f = jit(|t: &Array, i: &Array| t.take(i, 0)).engine(o.engine);
    time(o, "indexing/take", "100000 rows of 64 of 65536", || f.call((&table, &ids)).map(drop))?;
    let rows = Key::new(2).normal([n as usize, 64]);
    let f = jit(|t: &Array, i: &Array, u: &Array| t.at(ix![i]).add(u)).engine(o.engine);
    time(o, "indexing/at_add", "100000 rows of 64 into 65536", || f.call((&table, &ids, &rows)).map(drop))?;
    let f = jit(|t: &Array, i: &Array| grad(t, |t| t.take(i, 0).square().sum(..))).engine(o.engine);
    time(o, "indexing/embedding_gradient", "of 100000 rows of 64", || f.call((&table, &ids)).map(drop))?;
    let bins = Array::zeros(F32.of([1 << 16]));
    let (ids, ones) = (Array::arange(0..1_000_000) * 7919 % (1 << 16), Array::ones(F32.of([1_000_000])));
    let f = jit(|b: &Array, i: &Array, u: &Array| b.at(ix![i]).add(u)).engine(o.engine);
    time(o, "indexing/bins", "1000000 numbers into 65536", || f.call((&bins, &ids, &ones)).map(drop))
}
