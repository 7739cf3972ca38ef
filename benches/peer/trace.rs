//! How fast the front end is: a 48-layer transformer traced, differentiated, partitioned and compiled, by types alone.
//!
//! `cargo bench --bench trace -- [--layers L] [--runs N]`: one JSON line a workload, with the peer's names.
use atmesh::prelude::*;
use atmesh::{Args, einsum_to};
use std::time::{Duration, Instant};

/// The six weights of a layer.
type Layer = [Array; 6];
type Layers = Vec<Layer>;

const D: usize = 512;
const H: usize = 8;
const F: usize = 2048;
const S: usize = 128;

fn norm(x: &Array) -> Array {
    let y = x - x.mean(keep(-1));
    let z = x - x.mean(keep(-1));
    y * (z.square().mean(keep(-1)) + 1e-5).rsqrt()
}

fn block(x: &Array, p: &Layer) -> Array {
    let h = norm(x);
    let [q, k, v] = [0, 1, 2].map(|i| einsum("bsd,dhk->bshk", [&h, &p[i]]));
    let a = einsum("bshk,bthk->bhst", [&q, &k]) / ((D / H) as f64).sqrt();
    let a = (&a - a.max(keep(-1))).exp();
    let a = &a / a.sum(keep(-1));
    let o = einsum("bhst,bthk->bshk", [&a, &v]);
    let x = x + einsum_to("bshk,hkd->bsd", [&o, &p[3]], p!["data", _, _]);
    let h = norm(&x);
    let up = einsum("bsd,df->bsf", [&h, &p[4]]).maximum(0.0);
    x + einsum_to("bsf,fd->bsd", [&up, &p[5]], p!["data", _, _])
}

fn net(x: &Array, layers: &Layers) -> Array {
    layers.iter().fold(x.clone(), |x, p| block(&x, p)).square().mean(..)
}

/// Weights and a batch on this mesh: types without numbers.
fn args(mesh: &Mesh, layers: usize, batch: usize) -> (Layers, Array) {
    let of = |shape: &[usize], spec: Spec| F32.of(shape).on(mesh, spec).into_tree();
    let layer = |_| {
        let qkv = || of(&[D, H, D / H], p![_, "model", _]);
        let out = of(&[H, D / H, D], p!["model", _, _]);
        [qkv(), qkv(), qkv(), out, of(&[D, F], p![_, "model"]), of(&[F, D], p!["model", _])]
    };
    ((0..layers).map(layer).collect(), of(&[batch, S, D], p!["data", _, _]))
}

fn timed<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let t = Instant::now();
    let x = f()?;
    Ok((x, t.elapsed().as_secs_f64()))
}

/// The median of several runs.
fn median<T>(runs: usize, mut f: impl FnMut() -> Result<T>) -> Result<(f64, f64)> {
    f()?;
    let mut times = Vec::new();
    for _ in 0..runs {
        let t = Instant::now();
        let made = f()?;
        times.push(t.elapsed());
        drop(made);
    }
    times.sort();
    let s = |d: Duration| d.as_secs_f64();
    Ok((s(times[times.len() / 2]), s(times[0])))
}

fn main() -> Result<()> {
    let (mut layers, mut runs) = (48, 9);
    let mut line = std::env::args().skip(1);
    while let Some(a) = line.next() {
        match a.as_str() {
            "--layers" => layers = line.next().and_then(|s| s.parse().ok()).unwrap_or(layers),
            "--runs" => runs = line.next().and_then(|s| s.parse().ok()).unwrap_or(runs),
            _ => {} // cargo passes --bench
        }
    }
    let forward = jit(|ps: &Layers, x: &Array| net(x, ps));
    let gradient = jit(|ps: &Layers, x: &Array| grad(ps, |ps: Layers| net(x, &ps)));
    let name = format!("trace/transformer{layers}");

    let mesh = Mesh::new([("data", 4), ("model", 2)])?;
    let (ps, x) = args(&mesh, layers, 8);
    let equations = forward.trace((&ps, &x))?.program().equations.len();
    let (seconds, min) = median(runs, || forward.trace((&ps, &x)))?;
    println!(
        r#"{{"name": "{name}", "what": "tracing of the forward pass, {equations} equations", "seconds": {seconds:e}, "min": {min:e}, "runs": {runs}}}"#
    );

    let (traced, seconds) = timed(|| gradient.trace((&ps, &x)))?;
    let equations = traced.program().equations.len();
    let (lowered, lower) = timed(|| traced.lower())?;
    let (_, compile) = timed(|| lowered.compile())?;
    println!(
        r#"{{"name": "{name}_grad", "what": "trace, lower, compile of the gradient, {equations} equations", "seconds": {seconds:e}, "lower": {lower:e}, "compile": {compile:e}, "runs": 1}}"#
    );

    for (data, model) in [(4, 2), (8192, 8)] {
        let mesh = AbstractMesh::new([("data", data), ("model", model)])?;
        let (ps, x) = args(&mesh, layers, 8192);
        let (seconds, min) = median(runs.min(3), || forward.lower((&ps, &x)))?;
        println!(
            r#"{{"name": "{name}_devices/{}", "what": "tracing and partitioning on so many abstract devices", "seconds": {seconds:e}, "min": {min:e}}}"#,
            data * model
        );
    }
    Ok(())
}
