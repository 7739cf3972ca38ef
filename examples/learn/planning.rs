use atmesh::{CheckpointPolicy, Phase, checkpoint_with};
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== fits");
    fits()?;
    println!("== holds");
    holds()?;
    println!("== which");
    which()?;
    println!("== layouts");
    layouts()?;
    println!("== time");
    how_long()?;
    println!("== keep");
    keep()?;
    println!("== measured");
    measured()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: block
/// Applies a block of a large model. Attention is omitted: its products are of the same kinds.
fn block(x: &Array, up: &Array, down: &Array) -> Array {
    let h = x.dot(up).gelu();
    h.dot_to(down, p!["data", _])
}

fn loss(x: &Array, up: &Array, down: &Array) -> Array {
    block(x, up, down).square().mean(..)
}
// ANCHOR_END: block

// ANCHOR: fits
fn fits() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 1024), ("model", 64)])?;
    println!("{} devices", mesh.size());
    let (tokens, d, f) = (4 << 20, 16384, 65536); // 4 Mi tokens per step
    let x = BF16.array_type([tokens, d]).on(&mesh, p!["data", _]);
    let up = BF16.array_type([d, f]).on(&mesh, p![_, "model"]);
    let down = BF16.array_type([f, d]).on(&mesh, p!["model", _]);
    let step = jit(|x: &Array, up: &Array, down: &Array| {
        let (up_, down_) = (up.clone(), down.clone());
        let (gu, gd) = grad((up, down), |(up, down)| loss(x, &up, &down));
        (up_ - 0.01 * gu, down_ - 0.01 * gd)
    });
    let lowered = step.lower((x, up, down))?;
    println!("{}", lowered.collectives());
    let all = lowered.collectives();
    println!("{:.2} GiB per device at most", all.peak_bytes() as f64 / (1u64 << 30) as f64);
    Ok(())
}
// ANCHOR_END: fits

// ANCHOR: holds
fn holds() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 1024), ("model", 64)])?;
    let (tokens, d, f) = (4 << 20, 16384, 65536);
    let step = jit(|x: &Array, up: Array, down: Array| {
        let (gu, gd) = grad((up.clone(), down.clone()), |(up, down)| loss(x, &up, &down));
        (up - 0.01 * gu, down - 0.01 * gd)
    });
    let lowered = step.donate([1, 2]).lower((
        BF16.array_type([tokens, d]).on(&mesh, p!["data", _]),
        BF16.array_type([d, f]).on(&mesh, p![_, "model"]),
        BF16.array_type([f, d]).on(&mesh, p!["model", _]),
    ))?;
    println!("{}", lowered.memory());
    Ok(())
}
// ANCHOR_END: holds

// ANCHOR: which
/// Plans a step on meshes of the same 65,536 devices.
fn which() -> Result<()> {
    let (tokens, d, f) = (4 << 20, 16384, 65536);
    // Nodes of eight share a switch, and other nodes are reached over the network.
    let machine = Machine::h100().nodes(8, Link::NVLINK_4, Link::switch(50e9).latency(1e-5));
    for (data, model) in [(16384, 4), (8192, 8), (4096, 16), (1024, 64), (256, 256)] {
        let mesh = Mesh::without_devices([("data", data), ("model", model)])?;
        let x = BF16.array_type([tokens, d]).on(&mesh, p!["data", _]);
        let up = BF16.array_type([d, f]).on(&mesh, p![_, "model"]);
        let down = BF16.array_type([f, d]).on(&mesh, p!["model", _]);
        let step =
            jit(|x: &Array, up: &Array, down: &Array| grad((up, down), |(up, down)| loss(x, &up, &down)));
        let plan = step.lower((x, up, down))?.plan(&machine)?;
        println!(
            "{data:5} × {model:3}: {:5.2} GiB per device, kernels {:4.1} ms, collectives {:4.1} ms, a step {:4.1} ms",
            plan.peak_bytes() as f64 / (1u64 << 30) as f64,
            1e3 * plan.kernel_seconds(),
            1e3 * plan.collective_seconds(),
            1e3 * plan.seconds()
        );
    }
    Ok(())
}
// ANCHOR_END: which

// ANCHOR: time
fn how_long() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 1024), ("model", 8)])?;
    let (tokens, d, f) = (4 << 20, 16384, 65536);
    let x = BF16.array_type([tokens, d]).on(&mesh, p!["data", _]);
    let up = BF16.array_type([d, f]).on(&mesh, p![_, "model"]);
    let down = BF16.array_type([f, d]).on(&mesh, p!["model", _]);
    let step = jit(|x: &Array, up: &Array, down: &Array| grad((up, down), |(up, down)| loss(x, &up, &down)));
    let machine = Machine::h100() // the rates of its data sheet
        // nodes of eight share a switch, and other nodes are reached over the network
        .nodes(8, Link::NVLINK_4, Link::switch(50e9).latency(1e-5));
    let plan = step.lower((x, up, down))?.plan(&machine)?;
    println!("{plan}");

    // By hand: five products, of 4096 rows on each device.
    let product = 2.0 * 4096.0 * 16384.0 * (65536.0 / 8.0);
    println!("a product: {:.3} ms", product / 989e12 * 1e3);
    // By hand: the gradient of `up` is summed over `data`.
    let (n, value) = (1024.0, 2.0 * 16384.0 * (65536.0 / 8.0));
    println!("a sum: {:.3} ms", (2.0 * 10.0 * 1e-5 + 2.0 * value * (n - 1.0) / n / 50e9) * 1e3);
    Ok(())
}
// ANCHOR_END: time

// ANCHOR: keep
/// Runs sixteen layers, each in a checkpoint with one of the policies.
fn keep() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 64)])?;
    let (rows, d, f) = (64 * 4096, 4096, 16384);
    let x = || BF16.array_type([rows, d]).on(&mesh, p!["data", _]);
    let up = || BF16.array_type([16, d, f]).on(&mesh, p![_, "data", _]);
    let down = || BF16.array_type([16, f, d]).on(&mesh, p![_, "data", _]);
    let machine = Machine::h100().links(Link::switch(50e9));
    for keep in [CheckpointPolicy::SaveAll, CheckpointPolicy::SaveAllButGathers, CheckpointPolicy::named(["h"]), CheckpointPolicy::SaveNothing] {
        let layer = |x: Array, (up, down): (Array, Array)| {
            let layer = checkpoint_with((x, up, down), keep.clone(), |(x, up, down): (Array, Array, Array)| {
                let h = x.dot(up.reshard(p![; R: "data"])).checkpoint_name("h");
                x + h.gelu().dot(down.reshard(p![; R: "data"]))
            });
            (layer, ())
        };
        let loss = |(up, down), x: &Array| scan(x, (up, down), layer).0.astype(F32).square().mean(..);
        let step = jit(|x: &Array, up: &Array, down: &Array| grad((up, down), |weights| loss(weights, x)));
        let lowered = step.lower((x(), up(), down()))?;
        let plan = lowered.plan(&machine)?;
        let again = plan.entries().iter().filter(|i| i.phase == Phase::Recomputed);
        let again = again.fold(0.0, |sum, i| sum + i.seconds * i.count as f64);
        println!(
            "{:22} {:6.2} GiB at most, {:5.1} ms again, {:6.1} ms a step",
            format!("{keep:?}"),
            lowered.memory().peak_bytes as f64 / (1u64 << 30) as f64,
            1e3 * again,
            1e3 * plan.seconds()
        );
    }
    Ok(())
}
// ANCHOR_END: keep

// ANCHOR: measured
fn measured() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let (x, w) = (Array::ones([256, 64]).put(&mesh, p!["X"]), Array::ones([64, 64]));
    let lowered = jit(|x: &Array, w: &Array| x.dot(w).tanh().sum(0)).engine(Threads).lower((&x, &w))?;
    let plan = lowered.plan(&Machine::new("a guess").flops(F32, 1e10).links(Link::switch(1e9)))?;
    let (_, timeline) = lowered.compile()?.profile((&x, &w))?;
    let both = timeline.compare(&plan);
    let named: Vec<&str> = both.rows.iter().map(|r| &*r.op).filter(|op| *op == "dot_general").collect();
    println!("{} devices; both have {}", timeline.tracks(), named.join(", "));
    // `println!("{timeline}")` and `println!("{both}")` print tables; times differ per machine.
    Ok(())
}
// ANCHOR_END: measured

// ANCHOR: layouts
/// Compares shardings of the block, changing one decision at a time.
fn layouts() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 16), ("model", 4)])?;
    let (x, wide) = ([4096, 1024], [1024, 4096]);
    for (what, up, down) in [
        ("weights replicated", p![], p![]),
        ("columns, then rows", p![_, "model"], p!["model", _]),
        ("both over data too", p!["data", "model"], p!["model", "data"]),
    ] {
        let f = jit(|x: &Array, up: &Array, down: &Array| {
            let (up, down) = (up.reshard(p![_, "model"]), down.reshard(p!["model", _]));
            loss(x, &up, &down)
        });
        let args = (
            F32.array_type(x).on(&mesh, p!["data", _]),
            F32.array_type(wide).on(&mesh, up),
            F32.array_type([4096, 1024]).on(&mesh, down),
        );
        let lowered = f.lower(args)?;
        let kinds: Vec<String> =
            lowered.collectives().iter().map(|c| format!("{} over {}", c.kind, c.axes)).collect();
        println!("{what}: peak {:5} KiB; {}", lowered.collectives().peak_bytes() >> 10, kinds.join(", "));
    }
    Ok(())
}
// ANCHOR_END: layouts

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 65_536)])?;
    let x = F32.array_type([1 << 30]).on(&mesh, p!["X"]);
    let lowered = jit(|x: &Array| x.sum(..)).lower(x)?;
    println!("{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let d = 16384_u64;
    for model in [1, 4, 64] {
        println!(
            "model = {model:2}: {:6.3} GiB of weights per device",
            (2 * 2 * d * 4 * d) as f64 / model as f64 / (1u64 << 30) as f64
        );
    }
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 1024), ("model", 64)])?;
    let f = jit(|x: &Array| x.sum(..));
    println!("{} bytes", f.lower(F32.array_type([65536]).on(&mesh, p!["data"]))?.collectives().bytes());
    if let Err(e) = f.call(Array::ones([65536]).put(&mesh, p!["data"])) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake
