//! Compares predicted with measured times: measures the figures of this machine, and then times ten
//! programs for which a plan predicts the time. A second part times planning a training step of 418
//! billion parameters on many devices.
//!
//! `cargo bench --bench plan`; `… -- large` runs the second part only.
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;
use atmesh::tree::{Args, Tree};
use std::hint::black_box;
use std::time::{Duration, Instant};

const DEVICES: usize = 8;

/// Returns the minimum time of a call, in seconds.
fn least(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    let (mut best, begin) = (f64::INFINITY, Instant::now());
    let mut calls = 0;
    while begin.elapsed() < Duration::from_millis(1500) || calls < 5 {
        let start = Instant::now();
        call()?;
        best = best.min(start.elapsed().as_secs_f64());
        calls += 1;
    }
    Ok(best)
}

/// This machine as one device, described by the rates that its kernels reach.
struct Host {
    products: f64,
    elementwise: f64,
    bandwidth: f64,
    start: f64,
}

impl Host {
    fn measured() -> Result<Host> {
        let key = Key::new(7);
        let (n, long) = (1024, 1 << 24);
        let (a, b, x) = (key.normal([n, n]), key.normal([n, n]), key.normal([long]));
        let product = jit(|a: &Array, b: &Array| a.dot(b)).lower((&a, &b))?.compile()?;
        let copied = jit(|x: &Array| x * 2.0).lower(&x)?.compile()?;
        // The data fits in cache, so that only the elementwise functions take time.
        let few = key.normal([1 << 16]);
        let functions = jit(|x: &Array| (0..8).fold(x.clone(), |x, _| x.sin())).lower(&few)?.compile()?;
        let nothing = jit(|x: &Array| x + 1.0).lower(key.normal([4]))?.compile()?;
        let four = key.normal([4]);
        let cube = (n * n * n) as f64;
        Ok(Host {
            products: 2.0 * cube / least(|| product.call((&a, &b)).map(|y| drop(black_box(y))))?,
            bandwidth: 8.0 * long as f64 / least(|| copied.call(&x).map(|y| drop(black_box(y))))?,
            elementwise: 80.0 * (1 << 16) as f64
                / least(|| functions.call(&few).map(|y| drop(black_box(y))))?,
            start: least(|| nothing.call(&four).map(|y| drop(black_box(y))))?,
        })
    }
    /// Returns the machine model of one of `devices` virtual devices that share this host. Data of
    /// other devices is read from the same memory.
    fn shared(&self, devices: usize) -> Machine {
        let n = devices as f64;
        Machine::new("this machine")
            .flops(F32, self.products / n)
            .elementwise(self.elementwise / n)
            .memory(1e9, self.bandwidth / n)
            .launch_overhead(self.start)
            .links(Link::switch(self.bandwidth / n))
            .overlaps(false)
    }
}

/// Prints one row: the predicted time, the measured time, and their ratio.
fn line<I: Tree, A: Args<Owned = I> + Clone, O: Tree>(
    name: &str,
    host: &Host,
    devices: usize,
    f: impl Fn(A) -> Result<atmesh::Lowered<I, O>>,
    args: A,
) -> Result<()> {
    let lowered = f(args.clone())?;
    let said = lowered.plan(&host.shared(devices))?.seconds();
    let ready = lowered.compile()?;
    let took = least(|| ready.call(args.clone()).map(|y| drop(black_box(y))))?;
    println!("| {name} | {:.3} | {:.3} | {:.2} |", said * 1e3, took * 1e3, said / took);
    Ok(())
}

#[allow(dead_code)]
#[path = "../tests/xla_agreement/model.rs"]
mod model;

/// Times tracing, lowering and printing of a training step with Adam of 126 layers, as a loop and
/// unrolled.
fn planned() -> Result<()> {
    println!(
        "| devices | layers | trace, s | lower, s | print, s | together, s | rows | TB/device |\n|---|---|---|---|---|---|---|---|"
    );
    for mesh in [[4, 32, 8], [16, 128, 32]] {
        for scan in [true, false] {
            let c = model::Config { scan, ..model::Config::full() };
            let on = c.mesh(mesh)?;
            let step = jit(|s: &model::State, i: &Array, l: &Array| c.step(s, i, l));
            let args = (c.state(&on), c.ids(&on), c.ids(&on));
            let begin = Instant::now();
            let traced = step.trace(args)?;
            let trace = begin.elapsed().as_secs_f64();
            let lowered = traced.lower()?;
            let lower = begin.elapsed().as_secs_f64() - trace;
            let text = lowered.collectives().to_string();
            let all = begin.elapsed().as_secs_f64();
            println!(
                "| {} | {} | {trace:.3} | {lower:.3} | {:.3} | {all:.3} | {} | {:.3} |",
                on.size(),
                if scan { "in a loop" } else { "one by one" },
                all - trace - lower,
                black_box(text).lines().count(),
                lowered.collectives().bytes() as f64 / 1e12
            );
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    if std::env::args().any(|a| a == "large") {
        return planned();
    }
    let host = Host::measured()?;
    println!(
        "{:.0} Gflop/s in products, {:.1} Gop/s of others (ten for a function), {:.1} GB/s, {:.2} µs before a kernel\n",
        host.products / 1e9,
        host.elementwise / 1e9,
        host.bandwidth / 1e9,
        host.start * 1e6
    );
    println!("| program | planned, ms | measured, ms | quotient |\n|---|---|---|---|");
    let mesh = Mesh::new([("X", DEVICES)])?;
    let key = Key::new(1);
    let square = |n: usize, salt: u64| key.fold_in(salt).normal([n, n]);
    let rows = |n: usize, salt: u64| square(n, salt).put(&mesh, p!["X", _]);
    let (x, w, v) = (rows(1024, 0), square(1024, 1), square(1024, 2));
    let (up, down) = (w.put(&mesh, p![_, "X"]), v.put(&mesh, p!["X", _]));
    let (w, v) = (w.put(&mesh, p![]), v.put(&mesh, p![]));
    let n = DEVICES;
    let two = |f: fn(&Array, &Array) -> Array| move |a: (&Array, &Array)| jit(f).lower(a);
    let three = |f: fn(&Array, &Array, &Array) -> Array| move |a: (&Array, &Array, &Array)| jit(f).lower(a);
    line("x · w, rows over 8", &host, n, two(|x, w| x.dot(w)), (&x, &w))?;
    line("x · w, summed over 8", &host, n, two(|x, w| x.dot_to(w, p![])), (&up, &down))?;
    line("relu(x · w) · v", &host, n, three(|x, w, v| x.dot(w).relu().dot(v)), (&x, &w, &v))?;
    let mlp = |x: &Array, w: &Array, v: &Array| x.reshard(p![]).dot(w).relu().dot_to(v, p!["X", _]);
    line("the same, columns then rows", &host, n, three(mlp), (&x, &up, &down))?;
    let slope = |x: &Array, w: &Array| grad(w, |w| x.dot(&w).tanh().square().mean(..));
    line("its gradient, tanh", &host, n, two(slope), (&x, &w))?;
    let large = rows(4096, 3);
    line("x · 2 + y, 4096²", &host, n, two(|x, y| x * 2.0 + y), (&large, &large))?;
    line("sum of rows, 4096²", &host, n, two(|x, y| (x - y).sum(1)), (&large, &large))?;
    line("sin(x) · y, 4096²", &host, n, two(|x, y| x.sin() * y), (&large, &large))?;
    line("rows to columns, 4096²", &host, n, two(|x, _| x.reshard(p![_, "X"]) * 2.0), (&large, &x))?;
    let steps = |x: &Array, w: &Array| fori_loop(0..10, x, |_, c| c.dot(w).tanh());
    line("ten products in a loop", &host, n, two(steps), (&x, &w))?;
    println!();
    planned()
}
