//! The atmesh side of the comparison with JAX: prints one JSON line per workload, with the names
//! that `benches/peers/jax_peer.py` uses.
//!
//! `cargo bench --bench peer -- [--only NAME,…] [--seconds S] [--engine threads] [--workers]`; a
//! name is a group (`heat1d`) or one workload of a group (`heat1d/104`). Workloads whose name ends
//! in `_plain` are plain Rust loops, for comparison. `--workers` is described in `peer/workers.rs`.
/// Times the calls of a program. With `--workers`, reports instead how its tasks would run with one
/// core per worker.
macro_rules! calls {
    ($o:expr, $name:expr, $what:expr, $f:ident, $args:expr) => {
        if $o.workers && $o.wants($name) {
            let compiled = $f.lower($args)?.compile()?;
            crate::workers::tell($o, $name, || Ok(compiled.profile($args)?.1))
        } else {
            crate::time($o, $name, $what, || $f.call($args).map(drop))
        }
    };
}

#[path = "peer/indexing.rs"]
mod indexing;
#[path = "peer/lines.rs"]
mod lines;
#[path = "peer/rows.rs"]
mod rows;
#[path = "timing/mod.rs"]
mod timing;
#[path = "peer/trace.rs"]
mod trace;
#[path = "peer/workers.rs"]
mod workers;

use atmesh::prelude::*;
use atmesh::{ConvOptions, Padding};
use std::collections::BTreeMap;
use timing::{CallTimes, is_selected, time_calls};

const N: usize = 8;

/// The command-line options.
struct Options {
    only: Vec<String>,
    seconds: f64,
    engine: EngineKind,
    workers: bool,
}

impl Options {
    /// Returns true if this workload, or its group, is selected.
    fn wants(&self, name: &str) -> bool {
        let also = name.split('/').next() == Some("reduce") && self.only.iter().any(|n| n == "elementwise");
        also || is_selected(&self.only, name)
    }
}

fn main() -> Result<()> {
    let mut o = Options { only: Vec::new(), seconds: 1.0, engine: EngineKind::Lockstep, workers: false };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        match a.as_str() {
            "--only" => {
                o.only = args.next().unwrap_or_default().split(',').map(str::to_string).collect();
            }
            "--seconds" => o.seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(1.0),
            "--engine" if args.next().as_deref() == Some("threads") => o.engine = EngineKind::Threads,
            "--workers" => o.workers = true,
            _ => {} // cargo passes `--bench`
        }
    }
    type Work = fn(&Options) -> Result<()>;
    let all: [(&str, Work); 18] = [
        ("psum", |o| collective(o, "psum", 1, p![], |x| x.psum("X"))),
        ("all_gather", |o| {
            collective(o, "all_gather", 8, p!["X"], |x| x.all_gather("X", CollectiveDim::tiled(0)))
        }),
        ("psum_scatter", |o| {
            collective(o, "psum_scatter", 1, p!["X"], |x| x.psum_scatter("X", CollectiveDim::tiled(0)))
        }),
        ("all_to_all", |o| {
            collective(o, "all_to_all", 1, p!["X"], |x| {
                let n = x.shape().map_or(0, |s| s[0]);
                x.reshape([N, n / N]).all_to_all("X", AllToAll::split(0).concat(0))
            })
        }),
        ("ppermute", |o| collective(o, "ppermute", 1, p!["X"], |x| x.ppermute("X", Permutation::ring(1)))),
        ("elementwise", elementwise),
        ("matmul", matmul),
        ("conv2d", conv2d),
        ("lines", lines::lines),
        ("seed_layer", seed_layer),
        ("logistic_step", logistic_step),
        ("mlp_step", mlp_step),
        ("rows", rows::rows),
        ("heat1d", heat1d),
        ("heat2d", heat2d),
        ("eager", eager),
        ("indexing", indexing::indexing),
        ("trace", trace::trace),
    ];
    for (name, work) in all {
        let wanted = |n: &String| {
            let group = n.split('/').next().unwrap_or(n);
            group == name || (name == "elementwise" && group == "reduce")
        };
        if o.only.is_empty() || o.only.iter().any(wanted) {
            work(&o)?;
        }
    }
    Ok(())
}

/// Runs two warm-up calls, then calls for some seconds. Prints the median, the minimum, the number
/// of calls and the time of the first call.
fn time<T>(o: &Options, name: &str, what: &str, f: impl FnMut() -> Result<T>) -> Result<()> {
    if o.workers || !o.wants(name) {
        return Ok(());
    }
    let CallTimes { first, min, median, runs } = time_calls(o.seconds, f)?;
    println!(
        r#"{{"name": "{name}", "what": "{what}", "seconds": {median:e}, "min": {min:e}, "runs": {runs}, "first": {first:e}}}"#
    );
    Ok(())
}

fn collective(o: &Options, name: &str, cut: usize, out: Spec, body: fn(&Array) -> Array) -> Result<()> {
    let mesh = Mesh::new([("X", N)])?;
    for (size, elements) in [("4K", 1 << 10), ("256K", 1 << 16), ("4M", 1 << 20), ("32M", 1 << 23)] {
        let n = elements / cut;
        let x = (Array::arange(0..(N * n) as i32) % 97).astype(F32).put(&mesh, p!["X"]);
        let f = jit(shard_map(&mesh, p!["X"], out, body)).engine(o.engine);
        calls!(o, &format!("{name}/{size}"), "8 devices", f, &x)?;
    }
    Ok(())
}

fn elementwise(o: &Options) -> Result<()> {
    let mesh = Mesh::new([("X", N)])?;
    for n in [64, 4096, 8192] {
        let x = Array::arange(0..(n * n) as i32).astype(F32).reshape([n, n]) / (n * n);
        let x = x.put(&mesh, p!["X", _]).ready()?;
        let f = jit(|x: &Array| 2.0 * x.sin() + 1.0).engine(o.engine);
        calls!(o, &format!("elementwise/{n}"), "2*sin(x)+1", f, &x)?;
        let g = jit(|x: &Array| x.sum(0)).engine(o.engine);
        calls!(o, &format!("reduce/{n}"), "x.sum(0), rows sharded", g, &x)?;
    }
    Ok(())
}

fn matmul(o: &Options) -> Result<()> {
    let mesh = Mesh::new([("X", 4), ("Y", 2)])?;
    let n = 2048;
    let a = Array::ones([n, n]) / n;
    let cases = [
        ("none_contracted", p!["X", _], p![_, "Y"], p!["X", "Y"]),
        ("one_contracted", p![_, "X"], p![_, _], p![_, _]),
        ("both_contracted", p![_, "X"], p!["X", _], p![_, _]),
        ("both_contracted_scatter", p![_, "X"], p!["X", _], p!["X", _]),
        ("same_axis", p!["X", _], p![_, "X"], p!["X", _]),
        ("replicated", p![_, _], p![_, _], p![_, _]),
    ];
    for (name, lhs, rhs, out) in cases {
        let (x, y) = (a.put(&mesh, lhs), a.put(&mesh, rhs));
        let f = jit(move |x: &Array, y: &Array| x.dot_to(y, out)).engine(o.engine);
        calls!(o, &format!("matmul/{name}"), "2048^3 f32", f, (&x, &y))?;
    }
    Ok(())
}

/// Times a 3 × 3 convolution with unchanged spatial sizes, of 32 images of 28² with 64 features:
/// unsharded, with the batch sharded, and its gradient.
fn conv2d(o: &Options) -> Result<()> {
    let how = || ConvOptions::default().layout("NHWC", "HWIO", "NHWC").padding(Padding::Same);
    let mesh = Mesh::new([("X", N)])?;
    let (x, w) = (Key::new(0).normal([32, 28, 28, 64]), Key::new(1).normal([3, 3, 64, 64]));
    for (name, spec) in [("whole", p![]), ("batch", p!["X"])] {
        let x = x.put(&mesh, spec);
        let f = jit(|x: &Array, w: &Array| x.conv_with(w, how())).engine(o.engine);
        calls!(o, &format!("conv2d/{name}"), "32x28x28x64, 3x3", f, (&x, &w))?;
        let g = jit(|x: &Array, w: &Array| {
            grad((x, w), |(x, w): (Array, Array)| x.conv_with(w, how()).square().sum(..))
        });
        let g = g.engine(o.engine);
        calls!(o, &format!("conv2d/{name}_grad"), "of a sum of squares", g, (&x, &w))?;
    }
    Ok(())
}

fn seed_layer(o: &Options) -> Result<()> {
    let mesh = Mesh::new([("X", N)])?;
    let [_, xk, wk, bk] = Key::new(1701).split();
    let x = xk.normal([32]).put(&mesh, p!["X"]);
    let (w, b) = (wk.normal([32, 4]).put(&mesh, p![]), bk.normal([4]).put(&mesh, p![]));
    let f = jit(|x: &Array, w: &Array, b: &Array| (x.dot(w) + b).logistic()).engine(o.engine);
    calls!(o, "seed_layer", "sigmoid(x@W+b), x f32[32@X]", f, (&x, &w, &b))
}

/// Times eager operations on 4 elements: one with a constant scalar, one with a scalar that changes
/// at every call, a sum, and a chain of four. Also times reading 64 MiB back to the host.
fn eager(o: &Options) -> Result<()> {
    let x = Array::from([1f32, 2.0, 3.0, 4.0]);
    time(o, "eager/same", "x * 1.5, f32[4]", || (&x * 1.5).ready().map(drop))?;
    let mut t = 0f32;
    time(o, "eager/changing", "x * t, f32[4]", || {
        t += 0.5;
        (&x * t).ready().map(drop)
    })?;
    time(o, "eager/add", "x + x, f32[4]", || (&x + &x).ready().map(drop))?;
    time(o, "eager/chain", "four operations on f32[4]", || {
        ((&x + &x) * 2.0).sin().sum(..).ready().map(drop)
    })?;
    let x = Array::arange(0..1 << 24).astype(F32).ready()?;
    time(o, "eager/to_vec", "f32[2^24]", || x.to_vec::<f32>().map(drop))
}

type Params = BTreeMap<&'static str, Array>;

fn logistic_step(o: &Options) -> Result<()> {
    let mesh = Mesh::auto([("X", N)])?;
    let (batch, dim) = (128 * N, 32);
    let key = Key::new(1701);
    let (x, w) = (key.normal([batch, dim]), key.normal([dim, 1]));
    let y = x.dot(&w).gt(0).astype(F32);
    let (x, y) = (x.put(&mesh, p!["X", _]), y.put(&mesh, p!["X", _]));
    let p: Params = BTreeMap::from([("w", Array::zeros([dim, 1])), ("b", Array::zeros([1]))]);
    let p = tree::put(&p, &mesh, p![]);
    let step = jit(|p: &Params, x: &Array, y: &Array| {
        let g = grad(p, |p| ((x.dot(&p["w"]) + &p["b"]).logistic() - y).square().mean(..));
        tree::map2(p, &g, |a, g| a - 0.01 * g)
    })
    .engine(o.engine);
    calls!(o, "logistic_step", "B=1024 D=32 data parallel", step, (&p, &x, &y))
}

fn mlp_step(o: &Options) -> Result<()> {
    let mesh = Mesh::auto([("X", 4), ("Y", 2)])?;
    let (batch, dim, hidden) = (512, 512, 2048);
    let both = ("X", "Y");
    let cases = [
        ("dp", p![both, _], p![_, _], p![_, _]),
        ("fsdp", p![both, _], p![both, _], p![both, _]),
        ("tp", p![_, _], p![_, both], p![both, _]),
        ("dp_tp", p!["X", _], p![_, "Y"], p!["Y", _]),
    ];
    for (name, data, w1, w2) in cases {
        let key = Key::new(0);
        let (x, y) = (key.normal([batch, dim]).put(&mesh, data), key.normal([batch, dim]).put(&mesh, data));
        let p: Params = BTreeMap::from([
            ("w1", (key.normal([dim, hidden]) / 32).put(&mesh, w1)),
            ("w2", (key.normal([hidden, dim]) / 32).put(&mesh, w2)),
        ]);
        let step = jit(|p: &Params, x: &Array, y: &Array| {
            let g = grad(p, |p| (x.dot(&p["w1"]).relu().dot(&p["w2"]) - y).square().mean(..));
            tree::map2(p, &g, |a, g| a - 0.01 * g)
        })
        .out_specs(BTreeMap::from([("w1", w1), ("w2", w2)]))
        .engine(o.engine);
        calls!(o, &format!("mlp_step/{name}"), "B=512 D=512 H=2048", step, (&p, &x, &y))?;
    }
    Ok(())
}

fn heat1d(o: &Options) -> Result<()> {
    let mesh = Mesh::auto([("X", N)])?;
    for n in [104, 1 << 20] {
        let x = Array::arange(0..n).astype(F32).sin().put(&mesh, p!["X"]);
        let f = jit(|x: &Array| {
            fori_loop(0..100, x, |_, x| {
                let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
                x.at(ix![1..-1]).set(inner)
            })
        })
        .out_specs(p!["X"])
        .engine(o.engine);
        calls!(o, &format!("heat1d/{n}"), "100 steps", f, &x)?;
    }
    Ok(())
}

fn heat2d(o: &Options) -> Result<()> {
    let mesh = Mesh::auto([("X", 4), ("Y", 2)])?;
    let n = 2048;
    let x = Array::arange(0..(n * n) as i32).astype(F32).sin().reshape([n, n]).put(&mesh, p!["X", "Y"]);
    let f = jit(|x: &Array| {
        fori_loop(0..20, x, |_, x| {
            let c = x.slice(ix![1..-1, 1..-1]);
            let around = x.slice(ix![..-2, 1..-1]) + x.slice(ix![2.., 1..-1]);
            let around = around + x.slice(ix![1..-1, ..-2]) + x.slice(ix![1..-1, 2..]);
            x.at(ix![1..-1, 1..-1]).set(&c + 0.1 * (around - 4.0 * &c))
        })
    })
    .out_specs(p!["X", "Y"])
    .engine(o.engine);
    calls!(o, "heat2d/2048", "20 steps", f, &x)
}
