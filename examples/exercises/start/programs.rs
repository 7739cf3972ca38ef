//! Programs: indexing, derivatives, loops, random numbers, `vmap`.
use super::gap;
use atmesh::prelude::*;

// ANCHOR: looked_up
pub(super) fn looked_up(table: &Array, ids: &Array) -> Result<Array> {
    Ok(table.take(ids, 0)) // an error: which sharding has the result?
}
// ANCHOR_END: looked_up

// ANCHOR: counts
pub(super) fn counts(words: &Array) -> Result<Array> {
    let zeros = Array::zeros(I32.array_type([8]));
    // wrong: a word that occurs twice is counted once
    Ok(zeros.at(ix![words]).out_sharding(p![]).set(1))
}
// ANCHOR_END: counts

// ANCHOR: highest
pub(super) fn highest(x: &Array) -> Result<Array> {
    let dim: i32 = gap()?;
    Ok(x.cummax(dim))
}
// ANCHOR_END: highest

// ANCHOR: step
pub(super) fn step(w: &Array, x: &Array) -> Result<Array> {
    let slope: Array = gap()?; // of the sum of the squares of x·w, by w
    Ok(w - 0.1 * slope)
}
// ANCHOR_END: step

// ANCHOR: curvature
pub(super) fn curvature(x: &Array, v: &Array) -> Result<Array> {
    let f = |x: Array| x.powi(4).sum(..);
    // wrong: the first derivative, times v
    Ok(grad(x, f) * v)
}
// ANCHOR_END: curvature

// ANCHOR: held
pub(super) fn held(w: &Array, x: &Array) -> Result<Array> {
    Ok(grad(w, |w| {
        let guess = x.dot(&w);
        let target = 0.5 * &guess; // wrong: it is differentiated too
        (guess - target).square().sum(..)
    }))
}
// ANCHOR_END: held

// ANCHOR: power
pub(super) fn power(m: &Array, v: &Array) -> Result<Array> {
    // wrong: the length of v grows
    Ok(fori_loop(0..10, v, |_, v| m.dot(v.reshard(p![]))))
}
// ANCHOR_END: power

// ANCHOR: averages
pub(super) fn averages(xs: &Array) -> Result<Array> {
    let start = xs.slice(ix![0]).zeros_like();
    let (_, all) = scan(start, xs, |mean, x| {
        let next = 0.9 * mean + 0.1 * x;
        (next.clone(), next.sum(..)) // wrong: the second one is stacked
    });
    Ok(all)
}
// ANCHOR_END: averages

// ANCHOR: halved
pub(super) fn halved(x: &Array) -> Result<Array> {
    let stop: f32 = gap()?;
    Ok(while_loop(x, |x| x.square().sum(..).gt(stop), |x| x / 2.0))
}
// ANCHOR_END: halved

// ANCHOR: two_keys
pub(super) fn two_keys(key: &Key, _x: &Array) -> Result<Array> {
    let (a, b) = (key.normal([4]), key.normal([4])); // wrong: one key for both
    Ok(a - b)
}
// ANCHOR_END: two_keys

// ANCHOR: masked
pub(super) fn masked(mesh: &Mesh, x: &Array) -> Result<Array> {
    let kept = Key::new(7).bernoulli([64], 0.75).put(mesh, p!["X"]);
    Ok(kept.select(x, 0.0)) // wrong: the mean falls by a quarter
}
// ANCHOR_END: masked

// ANCHOR: own_slopes
pub(super) fn own_slopes(w: &Array, x: &Array) -> Result<Array> {
    let loss = |w: &Array, row: &Array| w.dot(row).tanh();
    // wrong: one gradient, of the sum over the rows
    let slope = grad(w, |w| vmap(x, |row| loss(&w, &row)).sum(..));
    Ok(slope.square().sum(..).sqrt())
}
// ANCHOR_END: own_slopes

// ANCHOR: distances
pub(super) fn distances(x: &Array, y: &Array) -> Result<Array> {
    let distance = |a: &Array, b: &Array| (a - b).square().sum(..);
    Ok(vmap(x, |a| distance(&a, y))) // wrong: y is all rows
}
// ANCHOR_END: distances
