//! One program in several processes: a network is trained on the devices of all of them.
//!
//! `cargo run --example processes` is one process, and `scripts/processes 4 processes` starts four.
//! `-- mean` computes the mean of an array; `-- 1000` takes 1000 steps; `-- rate`, `-- read` and
//! `-- seed` make a mistake in process 1.
use atmesh::distributed::{Cluster, init};
use atmesh::prelude::*;
use std::ops::Range;

// ANCHOR: net
const ROWS: usize = 96;
const FEATURES: usize = 24;
const HIDDEN: usize = 48;

#[derive(Tree, Clone)]
struct Net {
    up: Array,
    down: Array,
}

/// Returns the loss. Each weight is split over the devices, and gathered where it is used.
fn loss(net: &Net, x: &Array, y: &Array) -> Array {
    let h = x.dot(net.up.reshard(p![])).tanh();
    (h.dot(net.down.reshard(p![])) - y).square().mean(..)
}

fn step(net: &Net, x: &Array, y: &Array, rate: f64) -> (Array, Net) {
    let (loss, g) = value_and_grad(net, |net| loss(&net, x, y));
    (loss, Net { up: &net.up - rate * g.up, down: &net.down - rate * g.down })
}
// ANCHOR_END: net

// ANCHOR: data
/// Returns some rows of the data, which a process could read from a file.
fn rows(range: Range<usize>) -> Array {
    let n = range.len();
    let elements: Vec<f32> = range.flat_map(row).collect();
    Array::from(elements).reshape([n, FEATURES])
}
fn row(k: usize) -> impl Iterator<Item = f32> {
    (0..FEATURES).map(move |j| ((k * FEATURES + j) as f32).sin())
}

fn data(mesh: &Mesh) -> Result<(Array, Array)> {
    let sharding = Sharding::new(mesh, p!["data"], &[ROWS, FEATURES])?;
    let x = Array::from_fn([ROWS, FEATURES], &sharding, |index| rows(index[0].clone()))?;
    let y = x.sum(1).tanh();
    Ok((x, y))
}
// ANCHOR_END: data

// ANCHOR: main
fn main() -> Result<()> {
    let cluster = init()?;
    let mesh = Mesh::new([("data", cluster.devices())])?;
    let (x, y) = data(&mesh)?;
    let [up, down] = Key::new(7).split();
    let net = Net {
        up: (up.normal([FEATURES, HIDDEN]) * 0.2).put(&mesh, p!["data"]),
        down: (down.normal([HIDDEN]) * 0.2).put(&mesh, p!["data"]),
    };
    match std::env::args().nth(1).as_deref() {
        Some("mean") => print_mean(&mesh),
        Some("rate") => another_rate(&cluster, &net, &x, &y),
        Some("read") => one_read(&cluster, &x),
        Some("seed") => another_seed(&cluster, &mesh, &x),
        steps => {
            train(&cluster, net, &x, &y, steps.map_or(Ok(101), str::parse).map_err(atmesh::Error::other)?)
        }
    }
}

fn train(cluster: &Cluster, mut net: Net, x: &Array, y: &Array, steps: usize) -> Result<()> {
    let step = jit(|net: &Net, x: &Array, y: &Array| step(net, x, y, 0.1)).donate(0);
    for k in 0..steps {
        let (loss, next) = step.call((net, x, y))?;
        net = next;
        let loss = loss.item::<f32>()?; // every process has it: no message
        if cluster.process() == 0 && k % 25 == 0 {
            println!("step {k:3}: loss {loss:.4}");
        }
    }
    Ok(())
}
// ANCHOR_END: main

// ANCHOR: rate
/// A mistake: the rate is a constant of the program, and process 1 has another one.
fn another_rate(cluster: &Cluster, net: &Net, x: &Array, y: &Array) -> Result<()> {
    let rate = if cluster.process() == 1 { 0.2 } else { 0.1 };
    let step = jit(|net: &Net, x: &Array, y: &Array| step(net, x, y, rate));
    step.call((net, x, y)).map(drop)
}
// ANCHOR_END: rate

// ANCHOR: read
/// A mistake: only process 1 reads elements that are on the devices of all processes.
fn one_read(cluster: &Cluster, x: &Array) -> Result<()> {
    if cluster.process() == 1 {
        println!("{:?}", x.to_vec::<f32>()?);
    }
    cluster.barrier("the data are there")
}
// ANCHOR_END: read

// ANCHOR: seed
/// A mistake: a value that should be the same everywhere comes from another seed in process 1.
fn another_seed(cluster: &Cluster, mesh: &Mesh, x: &Array) -> Result<()> {
    let noise = Key::new(cluster.process() as u64).normal([FEATURES]).put(mesh, p![]);
    println!("{}", (x + noise).sum(..).item::<f32>()?);
    Ok(())
}
// ANCHOR_END: seed

// ANCHOR: mean
/// Prints the mean of an array whose blocks are on the devices of all processes.
fn print_mean(mesh: &Mesh) -> Result<()> {
    let sharding = Sharding::new(mesh, p!["data"], &[ROWS])?;
    // `from_fn` calls this for the blocks of this process only
    let own = |index: &[Range<usize>]| index[0].clone().map(|k| k as f32).collect::<Array>();
    let x = Array::from_fn([ROWS], &sharding, own)?;
    let mean = x.mean(..).item::<f32>()?; // all processes have it
    println!("{mean}");
    Ok(())
}
// ANCHOR_END: mean
