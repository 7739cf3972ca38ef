use crate::both::both;
use crate::model::*;
use atmesh::nn;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== layer");
    one_layer()?;
    println!("== whole");
    whole()?;
    println!("== error");
    error()
}

// ANCHOR: layout
pub(crate) fn sequence() -> Result<Mesh> {
    both(4, 2)?.with_logical_axes([("seq", "model")])
}
// ANCHOR_END: layout

// ANCHOR: train
fn losses() -> Result<()> {
    for (whole, split) in train(step, 4, &both(4, 2)?)?.iter().zip(train(step, 4, &sequence()?)?) {
        println!("{whole:.4} with the sequence whole, {split:.4} with it split");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    print_costs(&lower(step, LARGE, &sequence()?)?)
}
// ANCHOR_END: costs

/// The part of a layer that has the wide matrices, and its derivative.
fn report(seq: impl Into<Axes>) -> Result<()> {
    let mesh =
        unsplit([("model", 8)])?.with_logical_axes([("mlp", "model")])?.with_logical_axes([("seq", seq)])?;
    let ty = |shape: [usize; 2], dims| F32.array_type(shape).on(&mesh, dims);
    let (up, down) = (ty([4096, 16384], p!["embed", "mlp"]), ty([16384, 4096], p!["mlp", "embed"]));
    let x = F32.array_type([16, 1024, 4096]).on(&mesh, p!["batch", "seq", "embed"]);
    // ANCHOR: layer
    let part = jit(|x: &Array, up: &Array, down: &Array| {
        grad((x, up, down), |(x, up, down)| {
            let h = einsum("btd,df->btf", [&normed(&x), &up]).gelu();
            einsum_to("btf,fd->btd", [&h, &down], p!["batch", "seq", "embed"]).square().sum(..)
        })
    });
    // ANCHOR_END: layer
    for c in part.lower((x, up, down))?.collectives().iter().filter(|c| c.bytes_per_device > 1000) {
        println!(
            "{:10} {:14} {:4} MB",
            c.phase.name(),
            c.kind.to_string(),
            c.bytes_per_device / 1_000_000
        );
    }
    Ok(())
}
fn one_layer() -> Result<()> {
    report("model")
}

// ANCHOR: whole
fn whole() -> Result<()> {
    report(())
}
// ANCHOR_END: whole

// ANCHOR: error
fn error() -> Result<()> {
    let mesh = sequence()?;
    let m = start(&mesh);
    let x = Array::ones([16, 16, 32]).put(&mesh, p!["batch", "seq", "embed"]);
    let h = nn::rms_norm(&x, 1.0); // not gathered
    if let Err(e) = einsum("btd,df->btf", [&h, &m.layers.up.slice(ix![0])]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
