//! Training, planning, typed arrays, debugging.
use super::gap;
use atmesh::nd::{self, ArrayView1};
use atmesh::optim;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

// ANCHOR: adam_steps
pub(super) fn adam_steps(w: &Array, x: &Array) -> Result<Array> {
    let opt = optim::adam(0.1);
    let (mut w, start) = (w.clone(), opt.init(w)?);
    for _ in 0..2 {
        let slope = grad(&w, |w| x.dot(&w).square().mean(..));
        (w, _) = opt.step(&w, &slope, &start); // wrong: the state is forgotten
    }
    Ok(w)
}
// ANCHOR_END: adam_steps

// ANCHOR: accumulated
pub(super) fn accumulated(w: &Array, xs: &Array) -> Result<Array> {
    let loss = |w: Array, x: &Array| x.dot(&w).square().sum(..);
    // four sums over the devices: one for each batch
    let slopes = (0..4).map(|k| grad(w, |w| loss(w, &xs.slice(ix![k]))));
    Ok(slopes.reduce(|a, b| a + b).expect("there are four") / 4.0)
}
// ANCHOR_END: accumulated

// ANCHOR: clipped
pub(super) fn clipped(w: &Array, x: &Array) -> Result<Array> {
    // wrong: the step is clipped, not the gradient
    let opt = optim::chain([optim::sgd(0.1), optim::clip_by_global_norm(1.0)]);
    let slope = grad(w, |w| x.dot(&w).square().sum(..));
    let (next, _) = opt.step(w, &slope, &opt.init(w)?);
    Ok(next)
}
// ANCHOR_END: clipped

// ANCHOR: summed_bytes
pub(super) fn summed_bytes() -> Result<u64> {
    let bytes = gap()?;
    Ok(bytes)
}
// ANCHOR_END: summed_bytes

// ANCHOR: best_axis
pub(super) fn best_axis() -> Result<u64> {
    let model = gap()?;
    Ok(model)
}
// ANCHOR_END: best_axis

mesh! { pub(crate) struct Pod { Data: 2, Model: 4 } }

// ANCHOR: typed_layer
type Input = T![f32; 16@Data, 32@Model];
type Weights = T![f32; 32@Model, 8];
type Output = T![f32; 16@Data, 8];

pub(super) fn typed_layer(x: &Input, w: &Weights) -> Result<Output> {
    let product: Output = gap()?; // x·w, summed over Model
    Ok(product.relu())
}
// ANCHOR_END: typed_layer

// ANCHOR: typed_late
type Part = T![f32; 16@Data, 8; U: Model];

pub(super) fn typed_late(a: &Part, b: &Part) -> Result<Output> {
    let sum: Part = gap()?; // without communication
    Ok(sum.reshard(P![=, =]))
}
// ANCHOR_END: typed_late

// ANCHOR: finite
pub(super) fn finite(x: &Array) -> Result<Array> {
    Ok(x.softmax(1).log()) // wrong: the logarithm of 0
}
// ANCHOR_END: finite

// ANCHOR: masked_mean
pub(super) fn masked_mean(mesh: &Mesh, x: &Array) -> Result<Array> {
    // wrong: devices have different numbers of positive elements
    shard_map(mesh, p!["X"], p![], |x: &Array| {
        let is_counted = x.gt(0.0).astype(F32);
        let mean = (x * &is_counted).sum(..) / is_counted.sum(..);
        mean.pmean("X")
    })
    .call(x)
}
// ANCHOR_END: masked_mean

// ANCHOR: less_sent
pub(super) fn less_sent(x: &Array) -> Result<Array> {
    let x = x.reshard(p![]); // which line of the program is not needed?
    Ok(x.relu().sum(0))
}
// ANCHOR_END: less_sent

// ANCHOR: swapped
pub(super) fn swapped(mesh: &Mesh, x: &Array) -> Result<Array> {
    let swap = spmd(mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<f32>| {
        let other = dev.neighbor_periodic("X", 1)?;
        let theirs = dev.recv::<f32, nd::Ix1>(other)?; // wrong: both wait here
        dev.send(other, &x)?;
        Ok(theirs)
    });
    swap.call(x)
}
// ANCHOR_END: swapped
