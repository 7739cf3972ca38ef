//! Fine-tuning by low-rank adapters (LoRA): the base of a network is frozen, and only small factors
//! are trained, summed over devices and saved.
use atmesh::optim::{self, OptState, Optimizer};
use atmesh::prelude::*;
use std::collections::BTreeMap;

const EMBED: usize = 32;
const MLP: usize = 64;
const RANK: usize = 2;

// ANCHOR: model
/// A frozen matrix, and the two factors of what is added to it.
#[derive(Clone, Tree)]
struct Adapted<W = Array> {
    base: W,
    lora_a: W,
    lora_b: W,
}
#[derive(Clone, Tree)]
struct Net<W = Array> {
    up: Adapted<W>,
    down: Adapted<W>,
}

impl Adapted {
    fn apply(&self, x: &Array, out: Spec) -> Array {
        let low = x.dot_to(&self.lora_a, p!["batch", "rank"]);
        x.dot_to(&self.base, out) + low.dot_to(&self.lora_b, out)
    }
}
fn forward(net: &Net, x: &Array) -> Array {
    let h = net.up.apply(x, p!["batch", "mlp"]).gelu();
    x + net.down.apply(&h, p!["batch", "embed"])
}

/// Trains the factors; nothing is stored for other parameters.
fn optimizer() -> Optimizer {
    optim::partition([("*.lora_*", optim::adam(0.02)), ("*", optim::set_to_zero())])
}
fn step(net: &Net, state: &OptState, x: &Array, y: &Array) -> (Net, OptState, Array) {
    let (loss, g) = value_and_grad(net, |net| (forward(&net, x) - y).square().mean(..));
    let (net, state) = optimizer().step(net, &g, state);
    (net, state, loss)
}

/// Returns the factors by path: what is saved.
fn adapters(net: &Net) -> BTreeMap<String, Array> {
    let leaves = tree::paths(net).into_iter().zip(tree::leaves(net));
    leaves.filter(|(path, _)| path.contains(".lora_")).collect()
}
/// Replaces the factors of a network.
fn with_adapters(net: &Net, saved: &BTreeMap<String, Array>) -> Net {
    tree::map_named(net, |path, w| saved.get(path).unwrap_or(w).clone())
}
// ANCHOR_END: model

fn dims() -> Net<Spec> {
    let up = [p!["embed", "mlp"], p!["embed", "rank"], p!["rank", "mlp"]];
    let down = [p!["mlp", "embed"], p!["mlp", "rank"], p!["rank", "embed"]];
    let [up, down] = [up, down].map(|[base, lora_a, lora_b]| Adapted { base, lora_a, lora_b });
    Net { up, down }
}

/// Returns the base, with random factors; the second ones have elements of this size.
fn network(key: &Key, size: f64) -> Net {
    let matrix = |i: i64, rows: usize, columns: usize| Adapted {
        base: Key::new(0).fold_in(i).normal([rows, columns]) / (rows as f64).sqrt(),
        lora_a: key.fold_in(2 * i).normal([rows, RANK]) / (rows as f64).sqrt(),
        lora_b: key.fold_in(2 * i + 1).normal([RANK, columns]) * size,
    };
    Net { up: matrix(0, EMBED, MLP), down: matrix(1, MLP, EMBED) }
}

/// Fine-tunes on data × model devices. Returns the losses.
fn fine_tune(data: usize, model: usize, steps: usize) -> Result<Vec<f32>> {
    let mesh = Mesh::new([("data", data), ("model", model)])?
        .with_logical_axes([("batch", "data"), ("mlp", "model")])?
        .with_logical_axes([("embed", ()), ("rank", ())])?;
    let x = Key::new(2).normal([128, EMBED]).put(&mesh, p!["batch", "embed"]);
    // the new task is the base with a change of rank 2, which the factors have to find
    let y = forward(&tree::put(&network(&Key::new(3), 0.3), &mesh, dims()), &x);
    let base = tree::put(&network(&Key::new(1), 0.0), &mesh, dims());
    let (mut net, mut state, mut losses) = (base.clone(), optimizer().init(&base)?, Vec::new());
    let step = jit(step);
    if steps > 9 {
        println!("{}", type_of(&net.up));
        println!("{}", step.lower((&net, &state, &x, &y))?.collectives());
    }
    for _ in 0..steps {
        let loss;
        (net, state, loss) = step.call((&net, &state, &x, &y))?;
        losses.push(loss.item::<f32>()?);
    }
    // the factors are saved, and make the same network of the base
    let (trained, folder) =
        (adapters(&net), std::env::temp_dir().join(format!("lora-{}", std::process::id())));
    tree::save_npy(&trained, &folder)?;
    let loaded = with_adapters(&base, &tree::load_npy(&trained, &folder)?);
    std::fs::remove_dir_all(&folder).map_err(atmesh::Error::other)?;
    assert!(forward(&loaded, &x).array_equal(&forward(&net, &x))?);
    if steps > 9 {
        let [saved, all] = [tree::summary(&trained)?.bytes(), tree::summary(&net)?.bytes()];
        println!("saved: {} arrays, {saved} of {all} bytes", trained.len());
    }
    Ok(losses)
}

fn main() -> Result<()> {
    let losses = fine_tune(4, 2, 121)?;
    for i in (0..=120).step_by(40) {
        println!("step {i}: loss {:.5}", losses[i]);
    }
    assert!(losses[120] < 0.01 * losses[0]);
    let one = fine_tune(1, 1, 4)?;
    let same = one.iter().zip(&losses).all(|(a, b)| (a - b).abs() < 1e-4);
    println!("on one device, the same losses: {same}");
    Ok(())
}
