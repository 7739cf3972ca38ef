use crate::model::*;
use atmesh::optim::OptState;
use atmesh::prelude::*;

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== parts");
    parts()?;
    println!("== error");
    error()
}

// ANCHOR: layout
pub(crate) fn pipeline(stages: usize) -> Result<Mesh> {
    unsplit([("stage", stages)])?.with_logical_axes([("layers", "stage")])
}
// ANCHOR_END: layout

// ANCHOR: stages
/// The code of one device: microbatches `[parts, batch, seq, embed]` pass through its layers.
fn stages<const STAGES: usize>(layers: &Layer, parts: &Array) -> Array {
    let (stage, n) = (axis_index("stage"), parts.shape().map_or(0, |shape| shape[0]));
    let ticks = Array::arange(0..(n + STAGES - 1) as i32);
    let nothing = parts.slice(ix![0]).zeros_like().pvary("stage");
    let (_, made) = scan(nothing, ticks, |received: Array, tick: Array| {
        let next = parts.take(&tick.minimum(n as i32 - 1), 0); // the first stage begins a part
        let y = run(&stage.eq(0).select(&next, &received), layers);
        (y.ppermute("stage", Permutation::shift(1)), y)
    });
    stage.eq(STAGES as i32 - 1).select(made.slice(ix![STAGES - 1..]), 0.0).psum("stage")
}
// ANCHOR_END: stages

// ANCHOR: step
pub(crate) fn pipelined<const STAGES: usize, const PARTS: usize>(x: &Array, layers: &Layer) -> Result<Array> {
    let shape = x.shape()?;
    let parts = x.reshape([PARTS, shape[0] / PARTS, shape[1], shape[2]]);
    let pipeline = shard_map(&pipeline(STAGES)?, (p!["layers"], p![]), p![], stages::<STAGES>);
    Ok(pipeline.call((layers, parts))?.reshape(shape))
}
// ANCHOR_END: step

pub(crate) fn step<const S: usize, const P: usize>(
    m: &Gpt,
    state: &OptState,
    ids: &Array,
    next: &Array,
) -> (Array, Gpt, OptState) {
    let loss = |m: Gpt| loss_with(&m, ids, next, |x, layers| pipelined::<S, P>(x, layers).unwrap());
    let (loss, g) = value_and_grad(m, loss);
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}

// ANCHOR: train
fn losses() -> Result<()> {
    let on_one = train(crate::model::step, 4, &unsplit([("device", 1)])?)?;
    for (one, two) in on_one.iter().zip(train(step::<2, 4>, 4, &pipeline(2)?)?) {
        println!("{one:.4} on one device, {two:.4} in two stages");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    print_costs(&lower(step::<8, 32>, LARGE, &pipeline(8)?)?)
}
// ANCHOR_END: costs

// ANCHOR: parts
fn parts() -> Result<()> {
    let steps: [(usize, StepFn); 4] =
        [(1, step::<8, 1>), (4, step::<8, 4>), (16, step::<8, 16>), (64, step::<8, 64>)];
    for (parts, step) in steps {
        let idle = 100.0 * 7.0 / (parts as f64 + 7.0);
        println!(
            "{parts:2} parts, idle {idle:.0} %: {}",
            summary(&plan(&lower(step, LARGE, &pipeline(8)?)?)?)
        );
    }
    Ok(())
}
// ANCHOR_END: parts

// ANCHOR: error
fn error() -> Result<()> {
    let (m, mesh) = (start(&pipeline(2)?), pipeline(2)?);
    let stages = shard_map(&mesh, (p!["layers"], p![]), p![], |layers: &Layer, x: &Array| run(x, layers));
    let x = Array::ones([16, 16, 32]).put(&mesh, p![]);
    if let Err(e) = stages.call((&m.layers, &x)) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
