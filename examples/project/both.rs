use crate::model::*;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== shapes");
    shapes()?;
    println!("== error");
    error()
}

// ANCHOR: layout
pub(crate) fn both(data: usize, model: usize) -> Result<Mesh> {
    let mesh = unsplit([("data", data), ("model", model)])?;
    mesh.with_logical_axes([("batch", "data"), ("heads", "model"), ("mlp", "model")])
}
// ANCHOR_END: layout

// ANCHOR: train
fn losses() -> Result<()> {
    let on_one = train(step, 4, &unsplit([("device", 1)])?)?;
    for (one, both) in on_one.iter().zip(train(step, 4, &both(4, 2)?)?) {
        println!("{one:.4} on one device, {both:.4} on 4 × 2");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    print_costs(&lower(step, LARGE, &both(4, 2)?)?)
}
// ANCHOR_END: costs

// ANCHOR: shapes
fn shapes() -> Result<()> {
    for (data, model) in [(8, 1), (4, 2), (2, 4), (1, 8)] {
        println!("{data} × {model}: {}", summary(&plan(&lower(step, LARGE, &both(data, model)?)?)?));
    }
    Ok(())
}
// ANCHOR_END: shapes

// ANCHOR: error
fn error() -> Result<()> {
    let mesh = both(4, 2)?.with_logical_axes([("batch", "model")])?;
    let m = start(&mesh);
    let x = Array::ones([16, 16, 32]).put(&mesh, p!["batch", "seq", "embed"]);
    if let Err(e) = einsum("btd,df->btf", [&x, &m.layers.up.slice(ix![0])]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
