//! Explicit types, unreduced values, auto and manual mode.
use atmesh::prelude::*;

// ANCHOR: summed_product
pub(super) fn summed_product(x: &Array, w: &Array) -> Result<Array> {
    Ok(x.dot_to(w, p!["X", _]))
}
// ANCHOR_END: summed_product

// ANCHOR: biased
pub(super) fn biased(x: &Array, b: &Array) -> Result<Array> {
    Ok(x + b.reshard(p!["Y"]))
}
// ANCHOR_END: biased

// ANCHOR: heads
pub(super) fn heads(x: &Array) -> Result<Array> {
    Ok(x.reshape([16, 8, 8]).transpose([1, 0, 2]))
}
// ANCHOR_END: heads

// ANCHOR: late_sum
pub(super) fn late_sum(a: &Array, b: &Array) -> Result<Array> {
    let partial = p![_, _; U: "X"];
    Ok((a.dot_to(b, partial) + a.dot_to(2.0 * b, partial)).reshard(p![]))
}
// ANCHOR_END: late_sum

// ANCHOR: late_relu
pub(super) fn late_relu(a: &Array, b: &Array) -> Result<Array> {
    let partial = a.dot_to(b, p![_, _; U: "X"]);
    Ok(partial.reshard(p!["X", _]).relu()) // first the sum, scattered; then what is not linear
}
// ANCHOR_END: late_relu

// ANCHOR: one_sum
pub(super) fn one_sum(w: &Array, x: &Array, y: &Array) -> Result<Array> {
    let loss = |w: &Array, x: &Array| x.dot(w).square().sum(..);
    let marked = w.reshard(p![; R: "X"]); // its gradients are float32[32,8]{U:X}
    let (gx, gy) = (grad(&marked, |w| loss(&w, x)), grad(&marked, |w| loss(&w, y)));
    Ok((gx + gy).reshard(p![]))
}
// ANCHOR_END: one_sum

// ANCHOR: smoothed
pub(super) fn smoothed(x: &Array) -> Result<Array> {
    Ok((x.roll(1, 0) + x + x.roll(-1, 0)) / 3.0)
}
// ANCHOR_END: smoothed

// ANCHOR: pinned
pub(super) fn pinned(x: &Array, y: &Array) -> Result<Array> {
    Ok((x + y.t()).constrain(p![_, "X"]))
}
// ANCHOR_END: pinned

// ANCHOR: laplacian
pub(super) fn laplacian(x: &Array) -> Result<Array> {
    let rows = x.roll(1, 0) + x.roll(-1, 0);
    let columns = x.roll(1, 1) + x.roll(-1, 1);
    Ok(rows + columns - 4.0 * x)
}
// ANCHOR_END: laplacian

// ANCHOR: own_mean
pub(super) fn own_mean(mesh: &Mesh, x: &Array) -> Result<Array> {
    shard_map(mesh, p!["X"], p!["X"], |x: &Array| x - x.mean(..).pmean("X")).call(x)
}
// ANCHOR_END: own_mean

// ANCHOR: from_left
pub(super) fn from_left(mesh: &Mesh, x: &Array) -> Result<Array> {
    shard_map(mesh, p!["X"], p!["X"], |x: &Array| x + x.ppermute("X", Permutation::ring(1))).call(x)
}
// ANCHOR_END: from_left

// ANCHOR: own_softmax
pub(super) fn own_softmax(mesh: &Mesh, x: &Array) -> Result<Array> {
    shard_map(mesh, p!["X"], p!["X"], |x: &Array| {
        let e = (x - x.max(..).pmax("X")).exp();
        &e / e.sum(..).psum("X")
    })
    .call(x)
}
// ANCHOR_END: own_softmax
