use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== bound");
    bound()?;
    println!("== donate");
    donate()?;
    println!("== types");
    types()?;
    println!("== once");
    once()?;
    println!("== fewer");
    fewer()?;
    println!("== profile");
    profile()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: bound
/// Returns the plan of a step with this many examples per device.
fn plan(examples: usize) -> Result<atmesh::plan::Plan> {
    let mesh = Mesh::without_devices([("data", 8)])?;
    let x = BF16.array_type([8 * examples, 4096]).on(&mesh, p!["data", _]);
    let w = BF16.array_type([4096, 4096]).on(&mesh, p![]);
    let step = jit(|x: &Array, w: &Array| grad(w, |w| x.dot(w).square().mean(..)));
    step.lower((x, w))?.plan(&Machine::h100().links(Link::switch(50e9)))
}

// ANCHOR_END: bound

fn bound() -> Result<()> {
    // ANCHOR: bound
    for examples in [256, 4096, 65536] {
        let plan = plan(examples)?;
        let Some((bound, share)) = plan.bound() else { continue };
        println!("{examples:5} per device: {:.0} % of the time is {}", 100.0 * share, bound.name());
    }
    // ANCHOR_END: bound
    Ok(())
}

// ANCHOR: donate
fn donate() -> Result<()> {
    let x = || F32.array_type([1024, 1024]);
    let plain = jit(|x: &Array| 0.9 * x + 1.0);
    let donated = jit(|x: &Array| 0.9 * x + 1.0).donate([0]);
    for (name, f) in [("plain", plain), ("donated", donated)] {
        println!("{name}: {} MiB", f.lower(x())?.collectives().peak_bytes() >> 20);
    }
    Ok(())
}
// ANCHOR_END: donate

// ANCHOR: types
fn types() -> Result<()> {
    let traces = std::cell::Cell::new(0);
    let f = jit(|x: &Array| {
        traces.set(traces.get() + 1);
        x.square().sum(..)
    });
    for n in [5, 6, 7, 8] {
        let _ = f.call(Array::ones([n]))?;
    }
    println!("exact sizes: {} programs", traces.replace(0));
    let padded = jit(|x: &Array| {
        traces.set(traces.get() + 1);
        x.square().sum(..)
    });
    for n in [5, 6, 7, 8] {
        let _ = padded.call(Array::ones([n]).pad(0.0, [(0, 8 - n as i64, 0)]))?;
    }
    println!("padded:      {} programs", traces.get());
    Ok(())
}
// ANCHOR_END: types

// ANCHOR: once
fn once() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([64, 64]).put(&mesh, p!["X"]);
    let each = jit(|x: &Array| fori_loop(0..10, x.sum_to(.., p![]), |_, s| 0.5 * s + x.sum_to(.., p![])));
    let changing = jit(|x: &Array| fori_loop(0..10, x, |_, x| 0.5 * &x + 1e-4 * x.sum_to(.., p![])));
    println!("{}\n{}", each.lower(&x)?.collectives(), changing.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: once

// ANCHOR: fewer
fn fewer() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = F32.array_type([4096, 64]).on(&mesh, p!["X", _]);
    for spec in [p![], p!["X", _]] {
        let w = F32.array_type([64, 64]).on(&mesh, spec);
        let step = jit(move |x: &Array, w: &Array| w - 0.1 * x.t().dot_to(x, spec));
        let lowered = step.lower((x.clone(), w))?;
        let row = lowered.collectives().iter().next().expect("one collective");
        println!("weights {spec}: {} of {} bytes", row.kind, row.bytes_per_device);
    }
    Ok(())
}
// ANCHOR_END: fewer

// ANCHOR: profile
fn profile() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([256, 256]).put(&mesh, p!["X", _]);
    let f = jit(|x: &Array| x.dot_to(x.t(), p![]).exp()).engine(Threads);
    let (_, timeline) = f.lower(&x)?.compile()?.profile(&x)?;
    let mut ops: Vec<&str> = timeline.spans().iter().map(|span| span.op.as_str()).collect();
    ops.sort_unstable();
    ops.dedup();
    println!("{} devices; {}", timeline.tracks(), ops.join(", "));
    Ok(())
}
// ANCHOR_END: profile

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    println!("{:.1} %", 100.0 * plan(4096)?.utilisation());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let f = jit(|x: &Array| 0.9 * x).donate([0]);
    let x = Array::ones([4]);
    let copy = x.clone();
    let y = f.call(x)?;
    println!("{y} {}", copy.to_vec::<f32>().is_ok());
    Ok(())
}
// ANCHOR_END: exercise2
