//! Programs: indexing, derivatives, loops, random numbers, `vmap`.
use atmesh::hvp;
use atmesh::prelude::*;

// ANCHOR: looked_up
pub(super) fn looked_up(table: &Array, ids: &Array) -> Result<Array> {
    Ok(table.take_to(ids, 0, p![])) // each device looks up its rows, and the sum has all of them
}
// ANCHOR_END: looked_up

// ANCHOR: counts
pub(super) fn counts(words: &Array) -> Result<Array> {
    let zeros = Array::zeros(I32.array_type([8]));
    Ok(zeros.at(ix![words]).out_sharding(p![]).add(1))
}
// ANCHOR_END: counts

// ANCHOR: highest
pub(super) fn highest(x: &Array) -> Result<Array> {
    Ok(x.cummax(1)) // along the rows: dimension 0 is split
}
// ANCHOR_END: highest

// ANCHOR: step
pub(super) fn step(w: &Array, x: &Array) -> Result<Array> {
    Ok(w - 0.1 * grad(w, |w| x.dot(w).square().sum(..)))
}
// ANCHOR_END: step

// ANCHOR: curvature
pub(super) fn curvature(x: &Array, v: &Array) -> Result<Array> {
    Ok(hvp(x, v, |x| x.powi(4).sum(..)))
}
// ANCHOR_END: curvature

// ANCHOR: held
pub(super) fn held(w: &Array, x: &Array) -> Result<Array> {
    Ok(grad(w, |w| {
        let guess = x.dot(&w);
        let target = (0.5 * &guess).stop_gradient();
        (guess - target).square().sum(..)
    }))
}
// ANCHOR_END: held

// ANCHOR: power
pub(super) fn power(m: &Array, v: &Array) -> Result<Array> {
    Ok(fori_loop(0..10, v, |_, v| {
        let v = m.dot(v.reshard(p![]));
        &v / v.square().sum(..).sqrt()
    }))
}
// ANCHOR_END: power

// ANCHOR: averages
pub(super) fn averages(xs: &Array) -> Result<Array> {
    let start = xs.slice(ix![0]).zeros_like();
    let (_, all) = scan(start, xs, |mean, x| {
        let next = 0.9 * mean + 0.1 * x;
        (next.clone(), next) // the carry, and what is stacked
    });
    Ok(all)
}
// ANCHOR_END: averages

// ANCHOR: halved
pub(super) fn halved(x: &Array) -> Result<Array> {
    Ok(while_loop(x, |x| x.square().sum(..).gt(1.0), |x| x / 2.0))
}
// ANCHOR_END: halved

// ANCHOR: two_keys
pub(super) fn two_keys(key: &Key, _x: &Array) -> Result<Array> {
    let [a, b] = key.split();
    Ok(a.normal([4]) - b.normal([4]))
}
// ANCHOR_END: two_keys

// ANCHOR: masked
pub(super) fn masked(mesh: &Mesh, x: &Array) -> Result<Array> {
    let kept = Key::new(7).bernoulli([64], 0.75).put(mesh, p!["X"]);
    Ok(kept.select(x / 0.75, 0.0)) // the mean stays
}
// ANCHOR_END: masked

// ANCHOR: own_slopes
pub(super) fn own_slopes(w: &Array, x: &Array) -> Result<Array> {
    let loss = |w: &Array, row: &Array| w.dot(row).tanh();
    Ok(vmap(x, |row| grad(w, |w| loss(&w, &row)).square().sum(..).sqrt()))
}
// ANCHOR_END: own_slopes

// ANCHOR: distances
pub(super) fn distances(x: &Array, y: &Array) -> Result<Array> {
    let distance = |a: &Array, b: &Array| (a - b).square().sum(..);
    Ok(vmap(x, |a| vmap(y, |b| distance(&a, &b))))
}
// ANCHOR_END: distances
