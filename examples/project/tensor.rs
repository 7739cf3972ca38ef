use crate::model::*;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== eight");
    eight()?;
    println!("== error");
    error()
}

// ANCHOR: layout
pub(crate) fn tensor(n: usize) -> Result<Mesh> {
    unsplit([("model", n)])?.with_logical_axes([("heads", "model"), ("mlp", "model")])
}
// ANCHOR_END: layout

// ANCHOR: train
fn losses() -> Result<()> {
    for (one, two) in train(step, 4, &unsplit([("device", 1)])?)?.iter().zip(train(step, 4, &tensor(2)?)?) {
        println!("{one:.4} on one device, {two:.4} on two");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    print_costs(&lower(step, Sizes { batch: 16, ..LARGE }, &tensor(2)?)?)
}
// ANCHOR_END: costs

// ANCHOR: eight
fn eight() -> Result<()> {
    print_costs(&lower(step, Sizes { batch: 16, ..LARGE }, &tensor(8)?)?)
}
// ANCHOR_END: eight

// ANCHOR: error
fn error() -> Result<()> {
    let (m, mesh) = (start(&tensor(2)?), tensor(2)?);
    let x = Array::ones([16, 16, 32]).put(&mesh, p!["batch", "seq", "embed"]);
    let hidden = einsum("btd,df->btf", [&x, &m.layers.up.slice(ix![0])]).gelu();
    if let Err(e) = einsum("btf,fd->btd", [&hidden, &m.layers.down.slice(ix![0])]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
