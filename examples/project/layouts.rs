use crate::both::both;
use crate::data::data;
use crate::fsdp::fsdp;
use crate::model::*;
use crate::pipeline::{pipelined as stages, pipeline};
use crate::precision::mixed;
use crate::sequence::sequence;
use crate::tensor::tensor;
use atmesh::display::LineChart;
use atmesh::nn::Policy;
use atmesh::optim::OptState;
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== table");
    table(LARGE)?;
    println!("== few");
    table(Sizes { batch: 16, ..LARGE })?;
    println!("== nodes");
    nodes()?;
    println!("== error");
    error()
}

// ANCHOR: piped
/// The mixed step, in a pipeline of eight stages and sixteen parts.
fn pipelined(m: &Gpt, state: &OptState, ids: &Array, next: &Array) -> (Array, Gpt, OptState) {
    let policy = Policy::new(F32, BF16, F32);
    let run = |x: &Array, layers: &Layer| stages::<8, 16>(x, layers).unwrap();
    let loss = |m: Gpt| policy.cast_to_output(&loss_with(&policy.cast_to_compute(&m), ids, next, run));
    let (loss, g) = value_and_grad(m, loss);
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}
// ANCHOR_END: piped

// ANCHOR: layouts
fn layouts() -> Result<[(&'static str, Mesh); 7]> {
    let sharded = sequence()?.with_storage_axes([("embed", "data")])?;
    Ok([
        ("data", data()?),
        ("pipeline", pipeline(8)?),
        ("FSDP", fsdp()?),
        ("tensor", tensor(8)?),
        ("4 × 2", both(4, 2)?),
        ("4 × 2, sequence", sequence()?),
        ("4 × 2, sequence, FSDP", sharded),
    ])
}
// ANCHOR_END: layouts

// ANCHOR: table
fn table(s: Sizes) -> Result<()> {
    for (name, mesh) in layouts()? {
        let step = lower(if name == "pipeline" { pipelined } else { mixed }, s, &mesh)?;
        let received: u64 = step.collectives().iter().map(|c| c.count * c.bytes_per_device).sum();
        println!("{name:21} {:5.1} GB, {}", received as f64 / 1e9, summary(&plan(&step)?));
    }
    Ok(())
}
// ANCHOR_END: table

// ANCHOR: nodes
fn nodes() -> Result<()> {
    let machine = Machine::h100().nodes(8, Link::NVLINK_4, Link::switch(50e9).latency(1e-5));
    for batch in [1024, 128] {
        for (data, model) in [(64, 1), (16, 4), (8, 8), (4, 16)] {
            let mesh = both(data, model)?.with_logical_axes([("seq", "model")])?;
            let mesh = mesh.with_storage_axes([("embed", "data")])?;
            let plan = lower(mixed, Sizes { batch, ..LARGE }, &mesh)?.plan(&machine)?;
            println!("{batch:4} rows, {data:2} × {model:2}: {}", summary(&plan));
        }
    }
    Ok(())
}
// ANCHOR_END: nodes

// ANCHOR: error
fn error() -> Result<()> {
    if let Err(e) = lower(mixed, LARGE, &tensor(64)?) {
        println!("{}", e.to_string().split("\n\n").next().unwrap_or_default());
    }
    Ok(())
}
// ANCHOR_END: error

// ANCHOR: chart
/// Returns a chart of the planned times, by the number of rows in a batch.
pub(crate) fn chart() -> Result<LineChart> {
    let mut chart = LineChart::new("milliseconds per row, by rows in a batch");
    for (name, mesh) in
        layouts()?.into_iter().filter(|(name, _)| ["data", "FSDP", "tensor", "4 × 2"].contains(name))
    {
        let time = |batch: usize| {
            let plan = plan(&lower(mixed, Sizes { batch, ..LARGE }, &mesh)?)?;
            Ok((batch as f64, 1e3 * plan.seconds() / batch as f64))
        };
        chart = chart.line(name, [8, 16, 32, 64, 128].map(time).into_iter().collect::<Result<Vec<_>>>()?);
    }
    Ok(chart)
}
// ANCHOR_END: chart
