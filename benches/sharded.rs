//! Compares the same programs on arrays that are sharded over 8 virtual devices and on unsharded
//! arrays. This makes the table of the book's page "What a device is here".
//!
//! `cargo bench --bench sharded`
use atmesh::prelude::*;
use std::time::{Duration, Instant};

const N: usize = 8;
/// The time for which each program is called.
const LONG: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    println!("| program | 8 devices, µs | 1 device, µs |\n|---|---|---|");
    let rows = Mesh::new([("X", N)])?;
    let auto = Mesh::auto([("X", N)])?;

    let x = Key::new(0).normal([4096, 4096]);
    compare(
        "`2.0 * x.sin() + 1.0`, 4096 × 4096, rows sharded",
        &(&x, &x),
        &(&x.put(&rows, p!["X", _]), &x),
        |x, _| 2.0 * x.sin() + 1.0,
    )?;
    let (x, y) = (Key::new(0).normal([2048, 2048]), Key::new(1).normal([2048, 2048]));
    let grid = Mesh::new([("X", 2), ("Y", 4)])?;
    compare(
        "`x.dot(y)`, 2048³, rows of one and columns of the other sharded",
        &(&x, &y),
        &(&x.put(&grid, p!["X", _]), &y.put(&grid, p![_, "Y"])),
        |x, y| x.dot(y),
    )?;
    let x = Key::new(0).uniform([1 << 20]);
    compare("heat equation, 2²⁰ points, 100 steps", &(&x, &x), &(&x.put(&auto, p!["X"]), &x), |x, _| {
        fori_loop(0..100, x, |_, x| {
            let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
            x.at(ix![1..-1]).set(inner)
        })
    })?;
    let (x, w) = (Key::new(0).normal([32]), Key::new(1).normal([32, 4]));
    compare(
        "the layer `x.dot(w).logistic()`, `float32[32@X]`",
        &(&x, &w),
        &(&x.put(&rows, p!["X"]), &w),
        |x, w| x.dot(w).logistic(),
    )
}

/// Prints one row: the program with unsharded and with sharded arguments, called alternately.
fn compare(
    name: &str,
    whole: &(&Array, &Array),
    sharded: &(&Array, &Array),
    program: fn(&Array, &Array) -> Array,
) -> Result<()> {
    let f = jit(program);
    for args in [whole, sharded] {
        // Compile the program and allocate its buffers first.
        for _ in 0..3 {
            let _ = f.call(*args)?;
        }
    }
    let mut runs = [Vec::new(), Vec::new()];
    let start = Instant::now();
    while start.elapsed() < LONG || runs[0].len() < 5 {
        for (args, runs) in [whole, sharded].into_iter().zip(&mut runs) {
            let t = Instant::now();
            let y = f.call(*args)?;
            runs.push(t.elapsed().as_secs_f64() * 1e6);
            drop(y);
        }
    }
    let [one, eight] = runs.map(|mut runs| {
        runs.sort_by(f64::total_cmp);
        runs[runs.len() / 2]
    });
    println!("| {name} | {} | {} |", figures(eight), figures(one));
    Ok(())
}

/// Formats a number with two significant digits below ten, else with three.
fn figures(x: f64) -> String {
    if x < 10.0 {
        return format!("{x:.1}");
    }
    let unit = 10_f64.powf(x.log10().floor() - 2.0);
    format!("{}", (x / unit).round() * unit)
}
