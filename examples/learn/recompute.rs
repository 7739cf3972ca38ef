use atmesh::prelude::*;
use atmesh::{CheckpointPolicy, checkpoint_with};

fn main() -> Result<()> {
    println!("== first");
    first()?;
    println!("== named");
    named()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: first
fn layer(x: &Array, w: &Array) -> Array {
    let h = x.dot(w).gelu();
    x + h.dot(w.t()).gelu()
}

/// The loss of eight layers, whose weights are stacked.
fn loss(ws: &Array, x: &Array, layer: impl Fn(&Array, &Array) -> Array) -> Array {
    scan(x, ws, |x: Array, w: Array| (layer(&x, &w), ())).0.square().mean(..)
}

// ANCHOR_END: first

fn types() -> (ArrayType, ArrayType) {
    (F32.array_type([8, 256, 256]), F32.array_type([4096, 256]))
}

/// Prints the peak of a step.
fn peak(name: &str, step: Jit<'_, (Array, Array), Array>) -> Result<()> {
    let peak = step.lower(types())?.memory().peak_bytes >> 20;
    println!("{name}: {peak} MiB at most");
    Ok(())
}

fn first() -> Result<()> {
    // ANCHOR: first
    let all = jit(|ws: &Array, x: &Array| grad(ws, |ws| loss(&ws, x, layer)));
    let again = jit(|ws: &Array, x: &Array| {
        let cheap = |x: &Array, w: &Array| checkpoint((x, w), |(x, w)| layer(&x, &w));
        grad(ws, |ws| loss(&ws, x, cheap))
    });
    // ANCHOR_END: first
    peak("all values saved", all)?;
    peak("one per layer   ", again)
}

// ANCHOR: named
fn named() -> Result<()> {
    let named = jit(|ws: &Array, x: &Array| {
        let layer = |(x, w): (Array, Array)| {
            let h = x.dot(&w).checkpoint_name("h").gelu();
            x + h.dot(w.t()).gelu()
        };
        let policy = || CheckpointPolicy::named(["h"]);
        grad(ws, |ws| loss(&ws, x, |x, w| checkpoint_with((x, w), policy(), layer)))
    });
    peak("and one product ", named)
}
// ANCHOR_END: named

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let whole = jit(|ws: &Array, x: &Array| {
        grad(ws, |ws| checkpoint((&ws, x), |(ws, x)| loss(&ws, &x, layer)))
    });
    peak("one for all layers", whole)
}
// ANCHOR_END: mistake

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let (ws, x) = (Key::new(0).normal([3, 8, 8]), Key::new(1).normal([4, 8]));
    let plain = grad(&ws, |ws| loss(&ws, &x, layer));
    let cheap = |x: &Array, w: &Array| checkpoint((x, w), |(x, w)| layer(&x, &w));
    println!("{}", plain.array_equal(&grad(&ws, |ws| loss(&ws, &x, cheap)))?);
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 8)])?;
    let ws = || F32.array_type([8, 256, 256]).on(&mesh, p![_, "data", _]);
    let x = || F32.array_type([4096, 256]).on(&mesh, p!["data", _]);
    for policy in [CheckpointPolicy::SaveAll, CheckpointPolicy::SaveAllButGathers] {
        let step = jit(|ws: &Array, x: &Array| {
            let layer = |(x, w): (Array, Array)| layer(&x, &w.reshard(p![]));
            grad(ws, |ws| loss(&ws, x, |x, w| checkpoint_with((x, w), policy.clone(), layer)))
        });
        let lowered = step.lower((ws(), x()))?;
        let gathers = lowered.collectives().iter().filter(|c| c.kind.name() == "all_gather");
        println!("{policy:?}: {} gathers", gathers.map(|c| c.count).sum::<u64>());
    }
    Ok(())
}
// ANCHOR_END: exercise2
