//! Programs on arrays in several processes. Each process runs them on the lock-step engine too,
//! where it has all data, and compares.

use atmesh::distributed::init;
use atmesh::prelude::*;
use std::fmt::Debug;

fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    (x.dot(w) + b).logistic()
}

/// Compares the results of a call on both engines: integers exactly, floats within 2e-6 of the
/// maximum.
fn compare(name: &str, xla: &Array, lockstep: &Array) -> Result<()> {
    assert_eq!(type_of(xla), type_of(lockstep), "{name}");
    let (a, b) = (xla.astype(F32).to_vec::<f32>()?, lockstep.astype(F32).to_vec::<f32>()?);
    let scale = b.iter().fold(1e-30f32, |max, x| max.max(x.abs()));
    let tolerance = if xla.dtype()?.is_inexact() { 2e-6 * scale } else { 0.0 };
    let close = |pair: (&f32, &f32)| (pair.0 - pair.1).abs() <= tolerance;
    assert!(a.iter().zip(&b).all(close), "{name}: {a:?} {b:?}");
    println!("{name}: {} elements", a.len());
    Ok(())
}

/// README's layer and its gradient, with a sharded contraction.
pub(crate) fn layers() -> Result<()> {
    let cluster = init()?;
    let mesh = Mesh::new([("X", cluster.devices())])?;
    let [_, xk, wk, bk] = Key::new(1701).split();
    let (x, w, b) = (xk.normal([32]).put(&mesh, p!["X"]), wk.normal([32, 4]), bk.normal([4]));
    let call = |engine: EngineKind| jit(layer).engine(engine).call((&x, &w, &b));
    compare("layer", &call(EngineKind::Xla)?, &call(Lockstep)?)?;
    let gradient = |engine: EngineKind| {
        jit(|x: &Array, w: &Array, b: &Array| grad(x, |x| layer(&x, w, b).sum(..)))
            .engine(engine)
            .call((&x, &w, &b))
    };
    compare("gradient", &gradient(EngineKind::Xla)?, &gradient(Lockstep)?)?;
    // results stay on the devices, and are read twice
    let double = |engine: EngineKind| {
        let f = jit(|x: &Array| x * 2.0).engine(engine);
        f.call(f.call(&x)?)
    };
    let four = double(EngineKind::Xla)?;
    compare("twice", &four, &double(Lockstep)?)?;
    compare("twice, read again", &four, &double(Lockstep)?)?;
    // random numbers and integers are the same bits
    let mixed =
        |engine: EngineKind| jit(|x: &Array| (x * 1000.0).astype(I32).cumsum(0)).engine(engine).call(&x);
    compare("integers", &mixed(EngineKind::Xla)?, &mixed(Lockstep)?)?;
    cluster.barrier("all results are right")
}

/// Process 1 reads an array that is on all processes, and the others do not.
pub(crate) fn one_read_more() -> Result<()> {
    let cluster = init()?;
    let mesh = Mesh::new([("X", cluster.devices())])?;
    let x = Array::ones([32]).put(&mesh, p!["X"]);
    let y = jit(|x: &Array| x * 2.0).engine(EngineKind::Xla).call(&x)?;
    println!("computed");
    if cluster.process() == 1 {
        show(y.to_vec::<f32>()?);
    }
    cluster.barrier("the end")
}

fn show(values: impl Debug) {
    println!("{values:?}");
}
