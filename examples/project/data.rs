use crate::model::*;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== fewer");
    fewer()?;
    println!("== error");
    error()
}

// ANCHOR: layout
pub(crate) fn data() -> Result<Mesh> {
    unsplit([("x", 8)])?.with_logical_axes([("batch", "x")])
}
// ANCHOR_END: layout

// ANCHOR: train
fn losses() -> Result<()> {
    let on_one = train(step, 4, &unsplit([("device", 1)])?)?;
    for (one, eight) in on_one.iter().zip(train(step, 4, &data()?)?) {
        println!("{one:.4} on one device, {eight:.4} on eight");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    print_costs(&lower(step, LARGE, &data()?)?)
}
// ANCHOR_END: costs

// ANCHOR: fewer
fn fewer() -> Result<()> {
    for n in [2, 4, 8, 16] {
        let mesh = unsplit([("x", n)])?.with_logical_axes([("batch", "x")])?;
        let step = lower(step, LARGE, &mesh)?;
        let received: u64 = step.collectives().iter().map(|c| c.count * c.bytes_per_device).sum();
        println!("{n:2} devices: {:.1} GB, {}", received as f64 / 1e9, summary(&plan(&step)?));
    }
    Ok(())
}
// ANCHOR_END: fewer

// ANCHOR: error
fn error() -> Result<()> {
    let [ids, _] = Text::read()?.batch(0, Sizes { batch: 12, ..SMALL }, &data()?);
    if let Err(e) = ids.ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
