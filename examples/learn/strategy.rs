use atmesh::plan::{Link, Machine, Plan};
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== large");
    large()?;
    println!("== small");
    small()?;
    println!("== exercise1");
    exercise_1()
}

/// The weights of eight layers, stacked.
#[derive(Clone, Tree)]
struct Weights<W = Array> {
    up: W,
    down: W,
}

// ANCHOR: layer
fn layer(x: Array, (up, down): (Array, Array)) -> Array {
    let up = up.to_compute(p!["embed", "mlp"]); // gathers what is stored in shards
    let h = x.dot_to(up, p!["batch", "mlp"]).gelu();
    x + h.dot_to(down.to_compute(p!["mlp", "embed"]), p!["batch", "embed"])
}
// ANCHOR_END: layer

// ANCHOR: step
fn loss(w: Weights, x: &Array) -> Array {
    let layer = |x: Array, w: (Array, Array)| {
        let keep = CheckpointPolicy::SaveAllButGathers; // gathered again in the backward pass
        (checkpoint_with((x, w), keep, |(x, w): (Array, (Array, Array))| layer(x, w)), ())
    };
    scan(x, (w.up, w.down), layer).0.astype(F32).square().mean(..)
}

fn step(w: &Weights, x: &Array) -> Weights {
    tree::map2(w, &grad(w, |w| loss(w, x)), |w, g| w - 0.1 * g)
}
// ANCHOR_END: step

// ANCHOR: layouts
/// Returns the layouts for 8 nodes of 8 devices.
fn layouts() -> Result<[(&'static str, Mesh); 4]> {
    let mesh = Mesh::without_devices([("node", 8), ("gpu", 8)])?;
    let mesh = mesh.with_logical_axes([("layers", ()), ("embed", ()), ("mlp", ())])?;
    let data = mesh.with_logical_axes([("batch", ("node", "gpu"))])?;
    let fsdp = data.with_storage_axes([("embed", ("node", "gpu"))])?;
    let tensor = mesh.with_logical_axes([("batch", "node"), ("mlp", "gpu")])?;
    let both = tensor.with_storage_axes([("embed", "node")])?;
    Ok([("data", data), ("FSDP", fsdp), ("data × tensor", tensor), ("FSDP × tensor", both)])
}
// ANCHOR_END: layouts

// ANCHOR: plan
/// Plans a step of eight layers on 64 H100s.
fn plan(mesh: &Mesh, tokens: usize, [d, f]: [usize; 2]) -> Result<Plan> {
    let stored = |spec| mesh.resolve_stored(spec);
    let up = BF16.array_type([8, d, f]).on(mesh, stored(p!["layers", "embed", "mlp"])?);
    let down = BF16.array_type([8, f, d]).on(mesh, stored(p!["layers", "mlp", "embed"])?);
    let x = BF16.array_type([tokens, d]).on(mesh, p!["batch", "embed"]);
    let machine = Machine::h100().nodes(8, Link::NVLINK_4, Link::switch(50e9).latency(1e-5));
    jit(step).donate([0]).lower((Weights { up, down }, x))?.plan(&machine)
}

fn print(tokens: usize, sizes: [usize; 2]) -> Result<()> {
    for (name, mesh) in layouts()? {
        let plan = plan(&mesh, tokens, sizes)?;
        let fits = if plan.fits() == Some(true) { "fits" } else { "too large" };
        println!(
            "{name:13} {:6.1} GB {:6.0} ms, of which {:3.0} ms communication: {fits}",
            plan.peak_bytes() as f64 / 1e9,
            1e3 * plan.seconds(),
            1e3 * plan.exposed_seconds().max(0.0),
        );
    }
    Ok(())
}
// ANCHOR_END: plan

// ANCHOR: large
fn large() -> Result<()> {
    for tokens in [1 << 15, 1 << 19] {
        println!("{tokens} tokens in a step");
        print(tokens, [16384, 65536])?;
    }
    Ok(())
}
// ANCHOR_END: large

// ANCHOR: small
fn small() -> Result<()> {
    print(1 << 19, [4096, 16384])
}
// ANCHOR_END: small

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let [_, (_, fsdp), ..] = layouts()?;
    for tokens in [1 << 15, 1 << 17, 1 << 19] {
        let plan = plan(&fsdp, tokens, [16384, 65536])?;
        println!("{:5} tokens per device: {:2.0} %", tokens / 64, 100.0 * plan.utilisation());
    }
    Ok(())
}
// ANCHOR_END: exercise1
