use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== memory");
    memory()?;
    println!("== split");
    split()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()
}

fn memory() -> Result<()> {
    let parameters = 7_000_000_000_u64;
    println!("7 B parameters with Adam, float32: {} GB", 16 * parameters / 1_000_000_000);
    for devices in [1, 8, 64] {
        println!("{devices:3} devices, everything split: {:6.2} GB on each", 112.0 / devices as f64);
    }
    // The same question for a program: one 4096 × 4096 matrix, its Adam state, and a step.
    // ANCHOR: memory
    let step = jit(|weights: &Array, gradient: &Array, mean: &Array, variance: &Array| {
        let mean = 0.9 * mean + 0.1 * gradient;
        let variance = 0.999 * variance + 0.001 * gradient.square();
        let weights = weights - 1e-3 * &mean / (variance.sqrt() + 1e-8);
        (weights, mean, variance)
    });
    for devices in [1, 8, 64] {
        let mesh = Mesh::without_devices([("X", devices)])?;
        let one = || F32.array_type([4096, 4096]).on(&mesh, p!["X", _]);
        let lowered = step.lower((one(), one(), one(), one()))?;
        let report = lowered.collectives();
        let (mib, count) = (report.peak_bytes() >> 20, report.len());
        println!("{devices:3} devices: {mib:4} MiB on each, {count} collectives");
    }
    // ANCHOR_END: memory
    Ok(())
}

// ANCHOR: split
fn split() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let (data, weights) = (Array::ones([64, 32]), Array::ones([32, 16]));
    let product = jit(|x: &Array, w: &Array| x.dot(w));
    for (what, d, w) in [
        ("nothing split", p![], p![]),
        ("the data    ", p!["X", _], p![]),
        ("the weights ", p![], p![_, "X"]),
    ] {
        let (d, w) = (data.put(&mesh, d), weights.put(&mesh, w));
        let result = product.call((&d, &w))?;
        let multiplications = result.shards()?[0].data.size()? * 32;
        println!(
            "{what}: {} · {} → {}: {multiplications} multiplications per device",
            type_of(&d),
            type_of(&w),
            type_of(&result)
        );
    }
    Ok(())
}
// ANCHOR_END: split

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let parameters = 70e9_f64;
    let bytes = parameters * (2.0 + 2.0 + 4.0 + 4.0 + 4.0); // weights and gradients in bfloat16; a copy and two moments in float32
    println!("{} GB; at 80 GB each: {} devices", bytes / 1e9, (bytes / 80e9).ceil());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("X", 3)])?;
    if let Err(e) = Array::ones([64, 32]).put(&mesh, p!["X", _]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake
