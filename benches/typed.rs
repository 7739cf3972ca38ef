//! Measures the run-time cost of the typed layer: the same programs on typed and on untyped arrays,
//! called alternately.
//!
//! `cargo bench --bench typed`
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use std::time::{Duration, Instant};

mesh! { struct Grid { X: 8 } }
mesh! { struct Pod { Data: 2, Model: 4 } }

/// The two weights of a layer. Their sizes do not affect the timings.
type Weights = (T![f32; 16, 32@Model], T![f32; 32@Model, 16]);
type Batch = T![f32; 8@Data, 16];

fn main() -> Result<()> {
    println!("| program | typed, µs | untyped, µs |\n|---|---|---|");
    layer()?;
    trace()
}

/// Times one call of the compiled layer of the crate's front page.
fn layer() -> Result<()> {
    let grid = Grid::mesh()?;
    let key = Key::new(0);
    let x = key.normal([32]).put(&grid, p!["X"]);
    let (w, b) = (key.fold_in(1).normal([32, 4]), key.fold_in(2).normal([4]));
    let (w, b) = (w.put(&grid, p!["X"]), b.put(&grid, p![]));
    let typed = jit(|x: &T![f32; 32@X], w: &T![f32; 32@X, 4], b: &T![f32; 4]| {
        x.matmul_to(w, P![_]).add(b).logistic()
    });
    let untyped = jit(|x: &Array, w: &Array, b: &Array| (x.matmul_to(w, p![_]) + b).logistic());
    let t = (x.typed::<T![f32; 32@X]>()?, w.typed::<T![f32; 32@X, 4]>()?, b.typed::<T![f32; 4]>()?);
    compare(
        "a call of the layer `(x.matmul_to(w) + b).logistic()`",
        || typed.call((&t.0, &t.1, &t.2)).map(drop),
        || untyped.call((&x, &w, &b)).map(drop),
    )
}

fn typed_model(x: &Batch, layers: &[Weights]) -> Batch {
    layers.iter().fold(x.clone(), |x, (up, down)| {
        let y = x.add(&x.matmul(up).relu().matmul_to(down, P![=, _]));
        y.sub(&y.mean(keep(D1)))
    })
}
fn untyped_model(x: &Array, layers: &[(Array, Array)]) -> Array {
    layers.iter().fold(x.clone(), |x, (up, down)| {
        let y = &x + x.matmul(up).relu().matmul_to(down, p!["Data", _]);
        &y - y.mean(Dims::keep(1))
    })
}

/// Times tracing 48 layers.
fn trace() -> Result<()> {
    let pod = Pod::mesh()?;
    let (x, layers): (Batch, Vec<Weights>) =
        (<Batch>::ones(&pod), (0..48).map(|_| (Typed::ones(&pod), Typed::ones(&pod))).collect());
    let plain = (
        x.clone().untyped(),
        layers.iter().cloned().map(|(a, b)| (a.untyped(), b.untyped())).collect::<Vec<_>>(),
    );
    let typed = jit(|x: &Batch, layers: &Vec<Weights>| typed_model(x, layers));
    let untyped = jit(|x: &Array, layers: &Vec<(Array, Array)>| untyped_model(x, layers));
    let programs = (typed.trace((&x, &layers))?, untyped.trace((&plain.0, &plain.1))?);
    assert!(programs.0.program() == programs.1.program(), "both are the same program");
    compare(
        "a trace of 48 layers",
        || typed.trace((&x, &layers)).map(drop),
        || untyped.trace((&plain.0, &plain.1)).map(drop),
    )
}

/// Prints one row: the minimum time of many calls of each version, called alternately.
fn compare(
    name: &str,
    mut typed: impl FnMut() -> Result<()>,
    mut untyped: impl FnMut() -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let mut best = [f64::INFINITY; 2];
    while start.elapsed() < Duration::from_secs(4) {
        best[0] = best[0].min(timed(&mut typed)?);
        best[1] = best[1].min(timed(&mut untyped)?);
    }
    println!("| {name} | {:.2} | {:.2} |", best[0], best[1]);
    Ok(())
}
/// Returns the time of one of ten calls, in microseconds.
fn timed(f: &mut impl FnMut() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..10 {
        f()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e5)
}
