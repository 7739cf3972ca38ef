//! Measures the overhead of running through XLA: writing a program as StableHLO, one call through a
//! PJRT plugin, and a chain of calls.
//!
//! `ATMESH_PJRT_PLUGIN=$(scripts/plugin) cargo bench --features xla --bench beyond -- FOLDER` also
//! saves the seed layer in FOLDER, so that `tools/run_stablehlo.py FOLDER
//! FOLDER/argument{0,1,2}.npy --cpu-devices 8 --repeat 3000` can time the same module called from
//! JAX. Without a plugin only the writing is timed.
use atmesh::Args;
use atmesh::pjrt::transfers;
use atmesh::prelude::*;
use std::hint::black_box;
use std::time::Instant;

fn main() -> Result<()> {
    writing()?;
    if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
        println!("calls are not timed: ATMESH_PJRT_PLUGIN is not set");
        return Ok(());
    }
    calls()
}

/// Returns the median and the minimum time of `calls` calls, in microseconds.
fn micros<T>(calls: usize, mut f: impl FnMut() -> Result<T>) -> Result<(f64, f64)> {
    let mut all = Vec::new();
    for _ in 0..calls {
        let begin = Instant::now();
        black_box(f()?);
        all.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    all.sort_by(f64::total_cmp);
    Ok((all[calls / 2], all[0]))
}

/// Times writing the gradient of a stack of layers as StableHLO text.
fn writing() -> Result<()> {
    let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
    let of = |shape: [usize; 2], spec| F32.array_type(shape).on(&mesh, spec).into_tree();
    let layers: Vec<(Array, Array)> =
        (0..400).map(|_| (of([16, 32], p![_, "tp"]), of([32, 16], p!["tp"]))).collect();
    let x = of([8, 16], p!["dp"]);
    let f = jit(|layers: &Vec<(Array, Array)>, x: &Array| {
        grad(layers, |layers: Vec<(Array, Array)>| {
            let last =
                layers.iter().fold(x.clone(), |x, (up, down)| x.matmul(up).tanh().matmul_to(down, p!["dp"]));
            last.square().mean(..)
        })
    });
    let traced = f.trace((&layers, &x))?;
    let equations = traced.program().equations.len() as f64;
    let (median, least) = micros(9, || traced.to_stablehlo())?;
    println!(
        "writing: {equations} equations, {} bytes of text; an equation {:.1} us, least {:.1}",
        traced.to_stablehlo()?.text().len(),
        median / equations,
        least / equations,
    );
    Ok(())
}

/// Times the layer of the README, and a training step whose results are the arguments of the next
/// call.
fn calls() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let [_, xk, wk, bk] = Key::new(1701).split();
    let (x, w, b) = (xk.normal([32]).put(&mesh, p!["X"]), wk.normal([32, 4]), bk.normal([4]));
    let layer = jit(|x: &Array, w: &Array, b: &Array| (x.dot(w) + b).logistic());
    if let Some(folder) = std::env::args().skip(1).find(|a| !a.starts_with('-')) {
        let folder = std::path::Path::new(&folder);
        layer.trace((&x, &w, &b))?.to_stablehlo()?.save(folder)?;
        for (k, a) in [&x, &w, &b].into_iter().enumerate() {
            a.save_npy(folder.join(format!("argument{k}.npy")))?;
        }
    }
    let layer = layer.engine(EngineKind::Xla);
    // The arguments are already on the plugin's devices, as JAX's are.
    let first = layer.call((&x, &w, &b))?;
    let before = transfers();
    let (median, least) = micros(3000, || layer.call((&x, &w, &b)))?;
    println!("the layer: a call {median:.0} us, least {least:.0} ({first})");
    println!("transfers of 3000 calls: {before:?} before, {:?} after", transfers());

    let step = jit(|x: &Array| x * 1.001 + 0.5).engine(EngineKind::Xla);
    let mut at = step.call(&x)?;
    let before = transfers();
    let begin = Instant::now();
    for _ in 0..100 {
        at = step.call(&at)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "a chain of 100 calls: {:.0} us each; {before:?} before, {:?} after",
        seconds * 1e4,
        transfers()
    );
    println!("its sum: {}", at.sum(..));
    Ok(())
}
