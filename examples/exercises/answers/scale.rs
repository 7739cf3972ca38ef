//! Training, planning, typed arrays, debugging.
use crate::start::{Data, Model};
use atmesh::nd::{self, ArrayView1};
use atmesh::optim;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

// ANCHOR: adam_steps
pub(super) fn adam_steps(w: &Array, x: &Array) -> Result<Array> {
    let opt = optim::adam(0.1);
    let (mut w, mut state) = (w.clone(), opt.init(w)?);
    for _ in 0..2 {
        let slope = grad(&w, |w| x.dot(&w).square().mean(..));
        (w, state) = opt.step(&w, &slope, &state);
    }
    Ok(w)
}
// ANCHOR_END: adam_steps

// ANCHOR: accumulated
pub(super) fn accumulated(w: &Array, xs: &Array) -> Result<Array> {
    let loss = |w: Array, x: Array| x.dot(&w).square().sum(..);
    let (_, slope) = optim::accumulate(w, xs, loss); // the loop adds summands; one sum follows it
    Ok(slope)
}
// ANCHOR_END: accumulated

// ANCHOR: clipped
pub(super) fn clipped(w: &Array, x: &Array) -> Result<Array> {
    let opt = optim::chain([optim::clip_by_global_norm(1.0), optim::sgd(0.1)]); // in this order
    let slope = grad(w, |w| x.dot(&w).square().sum(..));
    let (next, _) = opt.step(w, &slope, &opt.init(w)?);
    Ok(next)
}
// ANCHOR_END: clipped

// ANCHOR: summed_bytes
pub(super) fn summed_bytes() -> Result<u64> {
    // bfloat16 has two bytes; an all-reduce is a reduce-scatter and a gather, of 15/16 each
    Ok(2 * 15 * (4096 * 4096 * 2) / 16)
}
// ANCHOR_END: summed_bytes

// ANCHOR: best_axis
pub(super) fn best_axis() -> Result<u64> {
    // on 2 × 4 devices: with 8 × 1 the gradients of all weights are summed, with 1 × 8 all activations
    Ok(4)
}
// ANCHOR_END: best_axis

// ANCHOR: typed_layer
type Input = T![f32; 16@Data, 32@Model];
type Weights = T![f32; 32@Model, 8];
type Output = T![f32; 16@Data, 8];

pub(super) fn typed_layer(x: &Input, w: &Weights) -> Result<Output> {
    let product: Output = x.matmul_to(w, P![Data, _]);
    Ok(product.relu())
}
// ANCHOR_END: typed_layer

// ANCHOR: typed_late
type Part = T![f32; 16@Data, 8; U: Model];

pub(super) fn typed_late(a: &Part, b: &Part) -> Result<Output> {
    let sum: Part = a + b;
    Ok(sum.reshard(P![=, =]))
}
// ANCHOR_END: typed_late

// ANCHOR: finite
pub(super) fn finite(x: &Array) -> Result<Array> {
    Ok(x.log_softmax(1)) // subtracts the maximum before the exponential
}
// ANCHOR_END: finite

// ANCHOR: masked_mean
pub(super) fn masked_mean(mesh: &Mesh, x: &Array) -> Result<Array> {
    shard_map(mesh, p!["X"], p![], |x: &Array| {
        let is_counted = x.gt(0.0).astype(F32);
        let (sum, count) = ((x * &is_counted).sum(..), is_counted.sum(..));
        sum.psum("X") / count.psum("X") // first both sums, then the quotient
    })
    .call(x)
}
// ANCHOR_END: masked_mean

// ANCHOR: less_sent
pub(super) fn less_sent(x: &Array) -> Result<Array> {
    Ok(x.relu().sum(0)) // without the gather: each device adds its rows first
}
// ANCHOR_END: less_sent

// ANCHOR: swapped
pub(super) fn swapped(mesh: &Mesh, x: &Array) -> Result<Array> {
    let swap = spmd(mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<f32>| {
        let other = dev.neighbor_periodic("X", 1)?;
        dev.send(other, &x)?; // does not wait
        dev.recv::<f32, nd::Ix1>(other)
    });
    swap.call(x)
}
// ANCHOR_END: swapped
