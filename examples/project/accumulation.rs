use crate::data::data;
use crate::model::*;
use atmesh::optim::{self, OptState};
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== summed");
    sums()?;
    println!("== more");
    more()?;
    println!("== error");
    error()
}

// ANCHOR: step
/// Makes microbatches, each with some rows of every device.
fn parts<const N: usize>(x: &Array) -> Array {
    let (rows, seq) = x.shape().map_or((0, 0), |shape| (shape[0], shape[1]));
    x.reshape([rows / N, N, seq]).swapaxes(0, 1)
}
fn accumulated<const N: usize>(m: &Gpt, state: &OptState, ids: &Array, next: &Array) -> (Array, Gpt, OptState) {
    let reduced = tree::map(m, |w| w.reshard(p![; R: "batch"]));
    let batches = (parts::<N>(ids), parts::<N>(next));
    let (loss, g) = optim::accumulate(&reduced, batches, |m, (ids, next)| loss(&m, &ids, &next));
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}
// ANCHOR_END: step

// ANCHOR: train
fn losses() -> Result<()> {
    let mesh = data()?;
    for (whole, parts) in train(step, 4, &mesh)?.iter().zip(train(accumulated::<2>, 4, &mesh)?) {
        println!("{whole:.4} at once, {parts:.4} in two microbatches");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    let s = Sizes { batch: 512, ..LARGE }; // four times as many rows
    print_costs(&lower(accumulated::<4>, s, &data()?)?)
}
// ANCHOR_END: costs

// ANCHOR: summed
fn summed<const N: usize>(m: &Gpt, state: &OptState, ids: &Array, next: &Array) -> (Array, Gpt, OptState) {
    let batches = (parts::<N>(ids), parts::<N>(next));
    let (loss, g) = optim::accumulate(m, batches, |m, (ids, next)| loss(&m, &ids, &next));
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}
fn sums() -> Result<()> {
    print_costs(&lower(summed::<4>, Sizes { batch: 512, ..LARGE }, &data()?)?)
}
// ANCHOR_END: summed

// ANCHOR: more
fn more() -> Result<()> {
    let steps: [(usize, StepFn); 4] =
        [(1, step), (2, accumulated::<2>), (4, accumulated::<4>), (16, accumulated::<16>)];
    for (n, step) in steps {
        let step = lower(step, Sizes { batch: 512, ..LARGE }, &data()?)?;
        println!("{n:2} microbatches: {}", summary(&plan(&step)?));
    }
    Ok(())
}
// ANCHOR_END: more

// ANCHOR: error
fn error() -> Result<()> {
    let [ids, _] = Text::read()?.batch(0, SMALL, &data()?);
    if let Err(e) = ids.reshape([2, 8, 16]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
