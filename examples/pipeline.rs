//! A pipeline (GPipe): four devices hold the layers of one network, two each, and microbatches pass
//! through the devices one after another. The gradients are those of the network on one device.
use atmesh::nn;
use atmesh::optim::{self, OptState};
use atmesh::prelude::*;

const STAGES: usize = 4;
const LAYERS: usize = 8;
const WIDTH: usize = 32;
const MICROBATCHES: usize = 8;
const BATCH: usize = 16;

// ANCHOR: layers
#[derive(Clone, Tree)]
struct Layers<T = Array> {
    scale: T,
    up: T,
    down: T,
}

/// Applies all layers that `layers` has, one after another.
fn run_layers(layers: &Layers, x: &Array) -> Array {
    scan(x, layers, |x, Layers { scale, up, down }| {
        let h = nn::layer_norm(&x, &scale, 0.0).dot(&up).gelu();
        (&x + h.dot(&down), ())
    })
    .0
}
// ANCHOR_END: layers

// ANCHOR: pipeline
/// Passes microbatches `[MICROBATCHES, BATCH, WIDTH]` through the stages; the code of one device.
///
/// At tick t, stage s works on microbatch t - s, so it is idle for STAGES - 1 ticks.
fn run_pipeline(layers: &Layers, batches: &Array) -> Array {
    let stage = axis_index("stage");
    let (first, last) = (stage.eq(0), stage.eq(STAGES as i32 - 1));
    let received = Array::zeros([BATCH, WIDTH]).pvary("stage");
    let ticks = Array::arange(0..(MICROBATCHES + STAGES - 1) as i32);
    let (_, sent) = scan(received, ticks, |received, tick| {
        let next = batches.take(&tick.minimum(MICROBATCHES as i32 - 1), 0);
        let y = run_layers(layers, &first.select(&next, &received));
        (y.ppermute("stage", Permutation::shift(1)), y)
    });
    // the results leave the last stage after STAGES - 1 ticks; all devices get them
    last.select(sent.slice(ix![STAGES - 1..]), 0.0).psum("stage")
}
// ANCHOR_END: pipeline

fn main() -> Result<()> {
    let key = Key::new(0);
    let layers = Layers {
        scale: Array::ones([LAYERS, WIDTH]),
        up: key.fold_in(0).normal([LAYERS, WIDTH, 2 * WIDTH]) * 0.1,
        down: key.fold_in(1).normal([LAYERS, 2 * WIDTH, WIDTH]) * 0.1,
    };
    let shape = [MICROBATCHES, BATCH, WIDTH];
    let (x, target) = (key.fold_in(2).normal(shape), key.fold_in(3).normal(shape));

    // ANCHOR: mesh
    let mesh = Mesh::new([("stage", STAGES)])?;
    let by_stage = || Layers { scale: p!["stage"], up: p!["stage"], down: p!["stage"] };
    let pipeline = shard_map(&mesh, (by_stage(), p![]), p![], run_pipeline);
    // ANCHOR_END: mesh
    let loss = |y: Array, target: &Array| (y - target).square().mean(..);
    let on_one = |layers: &Layers, x: &Array| vmap(x, |x| run_layers(layers, &x));
    let (loss_1, grads_1) = value_and_grad(&layers, |l| loss(on_one(&l, &x), &target));

    // ANCHOR: train
    let mut layers = tree::put(&layers, &mesh, by_stage());
    let (x, target) = (x.put(&mesh, p![]), target.put(&mesh, p![]));
    let optimizer = optim::adam(1e-2);
    let mut state = optimizer.init(&layers)?;
    let step = jit(|layers: &Layers, state: &OptState, x: &Array, target: &Array| {
        let (value, grads) = value_and_grad(layers, |l| pipeline.call((&l, x)).map(|y| loss(y, target)));
        let (layers, state) = optimizer.step(layers, &grads, state);
        (value, grads, layers, state)
    });
    // ANCHOR_END: train
    println!("up: {}", type_of(&layers.up));
    println!("{}", step.lower((&layers, &state, &x, &target))?.collectives());
    for i in 0..5 {
        let (value, grads, new_layers, new_state) = step.call((&layers, &state, &x, &target))?;
        if i == 0 {
            let alike =
                [(&grads.scale, &grads_1.scale), (&grads.up, &grads_1.up), (&grads.down, &grads_1.down)]
                    .map(|(a, b)| a.allclose_with(b, 1e-4, 1e-6));
            println!("loss on one device: {:.4}", loss_1.item::<f32>()?);
            println!(
                "gradients are those of one device: {}",
                alike.into_iter().all(|a| matches!(a, Ok(true)))
            );
        }
        println!("step {i}: loss {:.4}", value.item::<f32>()?);
        (layers, state) = (new_layers, new_state);
    }
    Ok(())
}
