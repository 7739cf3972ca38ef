//! Times the front end: a 48-layer transformer is traced, differentiated, partitioned and compiled
//! from types alone.

use super::{Options, time};
use atmesh::prelude::*;
use atmesh::{Args, einsum_to};
use std::time::Instant;

/// The six weights of a layer.
type Layer = [Array; 6];
type Layers = Vec<Layer>;

const LAYERS: usize = 48;
const D: usize = 512;
const H: usize = 8;
const F: usize = 2048;
const S: usize = 128;

fn norm(x: &Array) -> Array {
    let y = x - x.mean(Dims::keep(-1));
    let z = x - x.mean(Dims::keep(-1));
    y * (z.square().mean(Dims::keep(-1)) + 1e-5).rsqrt()
}

fn block(x: &Array, p: &Layer) -> Array {
    let h = norm(x);
    let [q, k, v] = [0, 1, 2].map(|i| einsum("bsd,dhk->bshk", [&h, &p[i]]));
    let a = einsum("bshk,bthk->bhst", [&q, &k]) / ((D / H) as f64).sqrt();
    let a = (&a - a.max(Dims::keep(-1))).exp();
    let a = &a / a.sum(Dims::keep(-1));
    let o = einsum("bhst,bthk->bshk", [&a, &v]);
    let x = x + einsum_to("bshk,hkd->bsd", [&o, &p[3]], p!["data", _, _]);
    let h = norm(&x);
    let up = einsum("bsd,df->bsf", [&h, &p[4]]).maximum(0.0);
    x + einsum_to("bsf,fd->bsd", [&up, &p[5]], p!["data", _, _])
}

fn net(x: &Array, layers: &Layers) -> Array {
    layers.iter().fold(x.clone(), |x, p| block(&x, p)).square().mean(..)
}

/// Returns weights and a batch on this mesh, as types without data.
fn args(mesh: &Mesh, batch: usize) -> (Layers, Array) {
    let of = |shape: &[usize], spec: Spec| F32.array_type(shape).on(mesh, spec).into_tree();
    let layer = |_| {
        let qkv = || of(&[D, H, D / H], p![_, "model", _]);
        let out = of(&[H, D / H, D], p!["model", _, _]);
        [qkv(), qkv(), qkv(), out, of(&[D, F], p![_, "model"]), of(&[F, D], p!["model", _])]
    };
    ((0..LAYERS).map(layer).collect(), of(&[batch, S, D], p!["data", _, _]))
}

fn timed<T>(f: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let t = Instant::now();
    let x = f()?;
    Ok((x, t.elapsed().as_secs_f64()))
}

/// Times the front end alone: tracing the forward pass, all stages of the gradient, and
/// partitioning for few and for many devices.
pub(crate) fn trace(o: &Options) -> Result<()> {
    let forward = jit(|ps: &Layers, x: &Array| net(x, ps));
    let gradient = jit(|ps: &Layers, x: &Array| grad(ps, |ps: Layers| net(x, &ps)));

    let mesh = Mesh::new([("data", 4), ("model", 2)])?;
    let (ps, x) = args(&mesh, 8);
    let equations = forward.trace((&ps, &x))?.program().equations.len();
    let what = format!("tracing of the forward pass, {equations} equations");
    time(o, "trace/transformer48", &what, || forward.trace((&ps, &x)))?;

    let name = "trace/transformer48_grad";
    if o.wants(name) {
        let (traced, seconds) = timed(|| gradient.trace((&ps, &x)))?;
        let equations = traced.program().equations.len();
        let (lowered, lower) = timed(|| traced.lower())?;
        let (_, compile) = timed(|| lowered.compile())?;
        println!(
            r#"{{"name": "{name}", "what": "trace, lower, compile of the gradient, {equations} equations", "seconds": {seconds:e}, "lower": {lower:e}, "compile": {compile:e}, "runs": 1}}"#
        );
    }
    for (data, model) in [(4, 2), (8192, 8)] {
        let mesh = Mesh::without_devices([("data", data), ("model", model)])?;
        let (ps, x) = args(&mesh, 8192);
        let name = format!("trace/transformer48_devices{}", data * model);
        let what = format!("tracing and partitioning on {} abstract devices", data * model);
        time(o, &name, &what, || forward.lower((&ps, &x)))?;
    }
    Ok(())
}
