//! Times dynamic indexing: a cache that a loop updates, a row lookup in a table, and the gradient
//! of the lookup.

use super::{Options, time};
use atmesh::prelude::*;
use std::hint::black_box;

/// Times a step that reads and writes one row of a cache of `rows` rows of 64 elements. The figure
/// is per step of 4096 steps, and includes one copy of the argument.
fn cache(o: &Options, rows: usize) -> Result<()> {
    let c = Array::zeros(F32.array_type([rows, 64]));
    let f = jit(move |c: &Array| {
        fori_loop(0..4096, c, move |i, c| {
            let i = i % rows as i32;
            c.at(ix![&i]).set(c.slice(ix![&i]) + 1.0)
        })
    })
    .engine(o.engine);
    calls!(o, &format!("indexing/cache_{rows}"), "4096 steps, a row of 64 each", f, &c)?;
    // Decoding servers donate the cache: each call gets the result of the previous call.
    let (f, mut kept) = (f.donate(0), Some(c * 1.0));
    time(o, &format!("indexing/cache_{rows}_kept"), "the same, donated", || {
        kept = Some(f.call(kept.take().expect("the last result"))?);
        Ok(())
    })
}

pub(crate) fn indexing(o: &Options) -> Result<()> {
    for rows in [1 << 10, 1 << 13, 1 << 16] {
        cache(o, rows)?;
    }
    let n = 100_000;
    let table = Key::new(1).normal([1 << 16, 64]);
    let ids = (Array::arange(0..n) * 7919) % (1 << 16);
    let f = jit(|t: &Array, i: &Array| t.take(i, 0)).engine(o.engine);
    calls!(o, "indexing/take", "100000 rows of 64 of 65536", f, (&table, &ids))?;
    let rows = Key::new(2).normal([n as usize, 64]);
    let f = jit(|t: &Array, i: &Array, u: &Array| t.at(ix![i]).add(u)).engine(o.engine);
    calls!(o, "indexing/at_add", "100000 rows of 64 into 65536", f, (&table, &ids, &rows))?;
    let f = jit(|t: &Array, i: &Array| grad(t, |t| t.take(i, 0).square().sum(..))).engine(o.engine);
    calls!(o, "indexing/embedding_gradient", "of 100000 rows of 64", f, (&table, &ids))?;
    let bins = Array::zeros(F32.array_type([1 << 16]));
    let (ids, ones) =
        (Array::arange(0..1_000_000) * 7919 % (1 << 16), Array::ones(F32.array_type([1_000_000])));
    let f = jit(|b: &Array, i: &Array, u: &Array| b.at(ix![i]).add(u)).engine(o.engine);
    calls!(o, "indexing/bins", "1000000 numbers into 65536", f, (&bins, &ids, &ones))?;
    plain(o, &table.to_vec()?, &rows.to_vec()?)
}

/// Times the same lookup and update as plain loops on one core.
fn plain(o: &Options, table: &[f32], rows: &[f32]) -> Result<()> {
    let ids = |n: usize| (0..n).map(|k| k * 7919 % (1 << 16)).collect::<Vec<_>>();
    let few = ids(100_000);
    let mut y = vec![0f32; rows.len()];
    time(o, "indexing/take_plain", "100000 rows of 64 of 65536, a loop", || {
        for (y, i) in y.chunks_exact_mut(64).zip(&few) {
            y.copy_from_slice(&table[64 * i..64 * (i + 1)]);
        }
        black_box(&mut y);
        Ok(())
    })?;
    let mut y = table.to_vec();
    time(o, "indexing/at_add_plain", "100000 rows of 64 into a copy of 65536, a loop", || {
        y.copy_from_slice(table);
        for (x, i) in rows.chunks_exact(64).zip(&few) {
            y[64 * i..64 * (i + 1)].iter_mut().zip(x).for_each(|(y, x)| *y += x);
        }
        black_box(&mut y);
        Ok(())
    })?;
    let (many, ones, mut y) = (ids(1_000_000), vec![1f32; 1_000_000], vec![0f32; 1 << 16]);
    time(o, "indexing/bins_plain", "1000000 numbers into 65536, a loop", || {
        y.fill(0.0);
        many.iter().zip(&ones).for_each(|(i, x)| y[*i] += x);
        black_box(&mut y);
        Ok(())
    })
}
