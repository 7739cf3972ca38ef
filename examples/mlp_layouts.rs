//! One network under three layouts: 8-way batch parallelism, 4-way batch and 2-way model
//! parallelism, and FSDP. The network names its own dimensions, and no axis of a mesh.
use atmesh::prelude::*;

// ANCHOR: model
#[derive(Clone, Tree)]
struct Mlp<W = Array> {
    up: W,
    down: W,
}

/// Returns the dimensions of the weights.
fn dims() -> Mlp<Spec> {
    Mlp { up: p!["embed", "mlp"], down: p!["mlp", "embed"] }
}

fn predict(w: &Mlp, x: &Array) -> Array {
    let w = tree::to_compute(w, dims());
    let h = x.dot_to(&w.up, p!["batch", "mlp"]).relu();
    h.dot_to(&w.down, p!["batch", "embed"])
}

fn step(w: &Mlp, x: &Array, y: &Array) -> (Array, Mlp) {
    let (loss, g) = value_and_grad(w, |w| (predict(&w, x) - y).square().mean(..));
    (loss, tree::map2(w, &g, |w, g| w - 0.1 * g))
}
// ANCHOR_END: model

// ANCHOR: layouts
fn layouts() -> Result<[(&'static str, Mesh); 3]> {
    let line = Mesh::new([("x", 8)])?.with_logical_axes([("embed", ()), ("mlp", ())])?;
    let batch = line.with_logical_axes([("batch", "x")])?;
    let both = Mesh::new([("data", 4), ("model", 2)])?
        .with_logical_axes([("batch", "data"), ("mlp", "model")])?
        .with_logical_axes([("embed", ())])?;
    let fsdp = batch.with_storage_axes([("embed", "x")])?;
    Ok([("8-way batch", batch), ("4-way batch, 2-way model", both), ("FSDP", fsdp)])
}
// ANCHOR_END: layouts

/// Trains for a few steps on a mesh. Returns the losses; prints the types and the report.
fn train(mesh: &Mesh, print: bool) -> Result<Vec<f32>> {
    let key = Key::new(0);
    let normal = |i: i64, shape: [usize; 2]| key.fold_in(i).normal(F32.array_type(shape)) * 0.3;
    let w = Mlp { up: normal(1, [16, 64]), down: normal(2, [64, 16]) };
    let mut w = tree::put_stored(&w, mesh, dims());
    let x = normal(3, [256, 16]).put(mesh, p!["batch", "embed"]);
    let y = normal(4, [256, 16]).put(mesh, p!["batch", "embed"]);
    let step = jit(step);
    let lowered = step.lower((&w, &x, &y))?;
    if print {
        println!("x: {}\nup: {}\ndown: {}", type_of(&x), type_of(&w.up), type_of(&w.down));
        println!("{}", w.up.visualize());
        println!("{}", lowered.collectives());
    }
    let mut losses = Vec::new();
    for _ in 0..3 {
        let (loss, next) = step.call((&w, &x, &y))?;
        losses.push(loss.item::<f32>()?);
        w = next;
    }
    Ok(losses)
}

/// Calls `f` with the name and the losses of each layout, on explicit and on auto axes.
#[allow(dead_code, reason = "tests of several processes call it")]
pub(crate) fn for_each_layout(mut f: impl FnMut(&str, Vec<f32>)) -> Result<()> {
    for (name, mesh) in layouts()? {
        f(&format!("{name}, explicit"), train(&mesh, false)?);
        f(&format!("{name}, auto"), train(&mesh.with_auto(mesh.axis_names())?, false)?);
    }
    Ok(())
}

fn main() -> Result<()> {
    for (name, mesh) in layouts()? {
        println!("== {name}\n{mesh}");
        let losses = train(&mesh, true)?;
        println!("losses: {losses:.4?}");
        // the same mesh with auto axes: the same source, without types
        let auto = train(&mesh.with_auto(mesh.axis_names())?, false)?;
        let same = losses.iter().zip(&auto).all(|(a, b)| (a - b).abs() < 1e-6);
        println!("with auto axes, the same losses: {same}\n");
    }
    Ok(())
}
