//! Explicit types, unreduced values, auto and manual mode.
use super::gap;
use atmesh::prelude::*;

// ANCHOR: summed_product
pub(super) fn summed_product(x: &Array, w: &Array) -> Result<Array> {
    let spec: Spec = gap()?;
    Ok(x.dot_to(w, spec))
}
// ANCHOR_END: summed_product

// ANCHOR: biased
pub(super) fn biased(x: &Array, b: &Array) -> Result<Array> {
    Ok(x + b) // an error: move the smaller operand
}
// ANCHOR_END: biased

// ANCHOR: heads
pub(super) fn heads(x: &Array) -> Result<Array> {
    let split = x.reshape([16, 8, 8]);
    let order: [i32; 3] = gap()?;
    Ok(split.transpose(order))
}
// ANCHOR_END: heads

// ANCHOR: late_sum
pub(super) fn late_sum(a: &Array, b: &Array) -> Result<Array> {
    let partial: Spec = gap()?;
    Ok((a.dot_to(b, partial) + a.dot_to(2.0 * b, partial)).reshard(p![]))
}
// ANCHOR_END: late_sum

// ANCHOR: late_relu
pub(super) fn late_relu(a: &Array, b: &Array) -> Result<Array> {
    let partial = a.dot_to(b, p![_, _; U: "X"]);
    Ok(partial.relu().reshard(p!["X", _])) // an error: relu of a summand
}
// ANCHOR_END: late_relu

// ANCHOR: one_sum
pub(super) fn one_sum(w: &Array, x: &Array, y: &Array) -> Result<Array> {
    let loss = |w: &Array, x: &Array| x.dot(w).square().sum(..);
    let marked: Array = gap()?; // w, with a mark
    let (gx, gy) = (grad(&marked, |w| loss(&w, x)), grad(&marked, |w| loss(&w, y)));
    Ok((gx + gy).reshard(p![]))
}
// ANCHOR_END: one_sum

// ANCHOR: smoothed
pub(super) fn smoothed(x: &Array) -> Result<Array> {
    let (left, right): (Array, Array) = gap()?;
    Ok((left + x + right) / 3.0)
}
// ANCHOR_END: smoothed

// ANCHOR: pinned
pub(super) fn pinned(x: &Array, y: &Array) -> Result<Array> {
    let sum = x + y.t();
    Ok(sum) // its rows are split
}
// ANCHOR_END: pinned

// ANCHOR: laplacian
pub(super) fn laplacian(x: &Array) -> Result<Array> {
    let rows = x.roll(1, 0) + x.roll(-1, 0);
    let columns: Array = gap()?;
    Ok(rows + columns - 4.0 * x)
}
// ANCHOR_END: laplacian

// ANCHOR: own_mean
pub(super) fn own_mean(mesh: &Mesh, x: &Array) -> Result<Array> {
    // wrong: the mean of a block
    shard_map(mesh, p!["X"], p!["X"], |x: &Array| x - x.mean(..)).call(x)
}
// ANCHOR_END: own_mean

// ANCHOR: from_left
pub(super) fn from_left(mesh: &Mesh, x: &Array) -> Result<Array> {
    let to: Permutation = gap()?;
    shard_map(mesh, p!["X"], p!["X"], |x: &Array| x + x.ppermute("X", to.clone())).call(x)
}
// ANCHOR_END: from_left

// ANCHOR: own_softmax
pub(super) fn own_softmax(mesh: &Mesh, x: &Array) -> Result<Array> {
    // wrong: the softmax of a block
    shard_map(mesh, p!["X"], p!["X"], |x: &Array| {
        let e = (x - x.max(..)).exp();
        &e / e.sum(..)
    })
    .call(x)
}
// ANCHOR_END: own_softmax
