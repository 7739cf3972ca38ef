use crate::data::data;
use crate::model::*;
use atmesh::optim::OptState;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== stored");
    stored()?;
    println!("== kept");
    kept()?;
    println!("== error");
    error()
}

// ANCHOR: layout
pub(crate) fn fsdp() -> Result<Mesh> {
    data()?.with_storage_axes([("embed", "x")])
}
// ANCHOR_END: layout

// ANCHOR: train
fn losses() -> Result<()> {
    for (copies, shards) in train(step, 4, &data()?)?.iter().zip(train(step, 4, &fsdp()?)?) {
        println!("{copies:.4} with copies, {shards:.4} with shards");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    print_costs(&lower(step, LARGE, &fsdp()?)?)
}
// ANCHOR_END: costs

// ANCHOR: stored
fn stored() -> Result<()> {
    for mesh in [data()?, fsdp()?] {
        let m = start(&mesh);
        println!(
            "up: {}, of which a device has {}",
            type_of(&m.layers.up),
            type_of(&m.layers.up.shards()?[0].data)
        );
    }
    Ok(())
}
// ANCHOR_END: stored

// ANCHOR: kept
/// The same step, whose gathered weights are kept for the backward pass.
fn keeping(m: &Gpt, state: &OptState, ids: &Array, next: &Array) -> (Array, Gpt, OptState) {
    let run = |x: &Array, layers: &Layer| scan(x, layers, |x: Array, w: Layer| (layer(&x, &w), ())).0;
    let (loss, g) = value_and_grad(m, |m| loss_with(&m, ids, next, run));
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}
fn kept() -> Result<()> {
    print_costs(&lower(keeping, LARGE, &fsdp()?)?)
}
// ANCHOR_END: kept

// ANCHOR: error
fn error() -> Result<()> {
    let mesh = fsdp()?;
    let m =
        gpt(Sizes { embed: 36, heads: 6, ..SMALL }, |shape, dims| Array::ones(shape).put_stored(&mesh, dims));
    if let Err(e) = m.layers.up.ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
