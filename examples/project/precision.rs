use crate::data::data;
use crate::fsdp::fsdp;
use crate::model::*;
use atmesh::nn::Policy;
use atmesh::optim::OptState;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== lost");
    lost()?;
    println!("== types");
    types()?;
    println!("== error");
    error()
}

// ANCHOR: step
pub(crate) fn mixed(m: &Gpt, state: &OptState, ids: &Array, next: &Array) -> (Array, Gpt, OptState) {
    let policy = Policy::new(F32, BF16, F32); // of parameters, computations and results
    let (loss, g) =
        value_and_grad(m, |m| policy.cast_to_output(&loss(&policy.cast_to_compute(&m), ids, next)));
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}
// ANCHOR_END: step

// ANCHOR: train
fn losses() -> Result<()> {
    let mesh = fsdp()?;
    for (i, (full, mixed)) in
        train(step, 9, &mesh)?.iter().zip(train(mixed, 9, &mesh)?).enumerate().step_by(4)
    {
        println!("step {i}: {full:.4} in float32, {mixed:.4} with bfloat16");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    print_costs(&lower(mixed, LARGE, &fsdp()?)?)
}
// ANCHOR_END: costs

// ANCHOR: lost
fn lost() -> Result<()> {
    for dtype in [F32, BF16] {
        let w = (0..1000)
            .fold(Array::full([], 1.0).astype(dtype), |w, _| w + Array::full([], 1e-3).astype(dtype));
        println!("{dtype}: {}", w.astype(F32).item::<f32>()?);
    }
    Ok(())
}
// ANCHOR_END: lost

// ANCHOR: types
fn types() -> Result<()> {
    let m = start(&data()?);
    let half = Policy::new(F32, BF16, F32).cast_to_compute(&m);
    let [ids, next] = Text::read()?.batch(0, SMALL, &data()?);
    let g = grad(&m, |m| loss(&Policy::new(F32, BF16, F32).cast_to_compute(&m), &ids, &next));
    println!("{} computes, the gradient is {}", type_of(&half.layers.up), type_of(&g.layers.up));
    Ok(())
}
// ANCHOR_END: types

// ANCHOR: error
fn error() -> Result<()> {
    let m = start(&data()?);
    let x = Array::ones(BF16.array_type([16, 16, 32])).put(&data()?, p!["batch", "seq", "embed"]);
    if let Err(e) = einsum("btd,df->btf", [&x, &m.layers.up.slice(ix![0])]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
